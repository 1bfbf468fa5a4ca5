"""Control flow: calls, loops, branches, barriers."""

import functools

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, f32, lattice, pred, s32

SUBJECT = Subject("control")


@SUBJECT.program(f32([-1, 0, 2, -3]))
def calls(x):
    """Functions that JAX compiles on their own become computations that are called."""

    @jax.jit
    def inner(x, y):
        return x * y, x - 1

    @jax.jit
    def outer(x):
        y, z = inner(x, x + 2)
        return inner(y, z)[0] + jax.nn.relu(x)

    return outer(x), outer(-x), jax.nn.relu(x)


@SUBJECT.program(lattice((4,)))
def fori_loop(x):
    return lax.fori_loop(0, 5, lambda i, carry: carry * 0.5 + jnp.float32(i), x)


@SUBJECT.program(f32([1, 2]), s32([0, 3, 7]))
def loop_counts(x, counts):
    """Bounds known only at run time, among them a loop that never runs."""
    return tuple(lax.fori_loop(0, counts[i], lambda _, carry: carry * 2, x) for i in range(3))


@SUBJECT.program(s32([27, 1, 97]))
def collatz(starts):
    """`while_loop` under `vmap`: lanes that are done keep their values by `select`."""

    def steps(start):
        def body(state):
            n, count = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

        return lax.while_loop(lambda state: state[0] != 1, body, (start, jnp.int32(0)))

    return jax.vmap(steps)(starts)


@SUBJECT.program(f32([2.0, 9.0, 0.25]))
def newton_square_root(x):
    """A loop that runs until it converges."""

    def body(state):
        y, _ = state
        return 0.5 * (y + x / y), y

    return lax.while_loop(lambda s: jnp.any(jnp.abs(s[0] - s[1]) > 1e-6 * s[0]), body, (x, x * 2))[0]


@SUBJECT.program(lattice((6, 2)))
def cumulative_sum(x):
    """`scan` stacks what each step returns with dynamic-update-slice."""

    def step(carry, row):
        total = carry + row
        return total, total

    return lax.scan(step, jnp.zeros(2, jnp.float32), x)


@SUBJECT.program(lattice((5, 3)))
def scan_reversed(x):
    def step(carry, row):
        return (carry[0] + 1, row), (carry[0], carry[1] * 2 + row)

    return lax.scan(step, (jnp.int32(0), jnp.ones(3, jnp.float32)), x, reverse=True)


@SUBJECT.program(s32(3))
def nested_loops(limit):
    def outer(i, total):
        return lax.fori_loop(0, i + 1, lambda j, t: t + i * 10 + j, total)

    return lax.fori_loop(0, limit, outer, jnp.int32(0))


@SUBJECT.program(pred([True, False]), f32([1, 2, 3]))
def cond(choose, x):
    def branches(p):
        return lax.cond(p, lambda x: (x * 2, x.sum()), lambda x: (-x, x.max()), x)

    return branches(choose[0]), branches(choose[1])


@SUBJECT.program(s32([-5, 0, 1, 2, 3, 100]), f32([1, -2]))
def switch(index, x):
    """An index out of range takes the last branch in HLO; JAX clamps it beforehand."""
    branches = [lambda x: x, lambda x: -x, lambda x: x * x, lambda x: x + 10]
    return tuple(lax.switch(index[i], branches, x) for i in range(6))


@SUBJECT.program(pred([True, False, True]), f32([1, 2, 3]))
def cond_under_vmap(choose, x):
    """Both branches run and `select` picks."""
    return jax.vmap(lambda p, x: lax.cond(p, lambda x: x * 3, lambda x: x - 1, x))(choose, x)


@SUBJECT.program(s32(4), f32([0.5, 1.5]))
def branch_in_loop(count, x):
    def body(i, x):
        return lax.cond(i % 2 == 0, lambda x: x * 2, lambda x: x + 1, x)

    return lax.fori_loop(0, count, body, x)


@SUBJECT.program(lattice((3,)), s32(2))
def barrier(x, y):
    x, y = lax.optimization_barrier((x * 2, y + 1))
    return x + 1, y * 2, lax.optimization_barrier(x)


@SUBJECT.program(lattice((4,)), ulps=8)
def rematerialized(x):
    """`checkpoint` recomputes the forward pass behind a barrier."""

    @jax.checkpoint
    def f(x):
        return jnp.sin(x) * x

    return jax.grad(lambda x: f(x).sum())(x)


@SUBJECT.program(f32([1, 2, 3, 4]), f32([5, 6, 7, 8]), jit={"donate_argnums": (0, 1)})
def donated(x, y):
    """Donated arguments: `input_output_alias` in the module's header."""
    return x + y, x - y


def sharded_options():
    """A mesh of one device, so that the texts carry sharding attributes and the program stays
    whole."""
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("i",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return mesh, {"in_shardings": (split, whole), "out_shardings": split}


MESH, OPTIONS = sharded_options()


def sharded(x, y):
    z = lax.with_sharding_constraint(x * y, jax.sharding.NamedSharding(MESH, jax.sharding.PartitionSpec(None, "i")))
    return z + 1


SUBJECT.add("sharded", sharded, lattice((2, 4)), lattice((2, 4)), jit=OPTIONS)


@SUBJECT.program(lattice((3,)))
def annotated(x):
    """Scopes and XLA metadata: `op_name`, `frontend_attributes`."""
    from jax.experimental.xla_metadata import set_xla_metadata

    with jax.named_scope('outer scope/with "quotes"'):
        y = x + 1
    with set_xla_metadata(color="blue", note='{"a": [1, 2]}'):
        return y * x


@SUBJECT.program(f32([1, 2, 3]), np.float32(2.0))
def static_and_partial(x, y):
    @functools.partial(jax.jit, static_argnames="times", inline=True)
    def repeat(x, times):
        for _ in range(times):
            x = x + y
        return x

    return repeat(x, times=3)


@SUBJECT.program(lattice((4,)))
def collectives(x):
    """Collectives of one device, which are copies."""

    def on_each(x):
        i = lax.axis_index("i")
        moved = lax.ppermute(x, "i", [(0, 0)]), lax.psum_scatter(x, "i", tiled=True), lax.all_gather(x, "i")
        return *moved, *lax.psum((x, x * 2), "i"), lax.pmax(x, "i"), i + lax.psum(1, "i")

    spec = jax.sharding.PartitionSpec("i")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    return jax.shard_map(on_each, mesh=mesh, in_specs=spec, out_specs=jax.sharding.PartitionSpec(), check_vma=False)(x)
