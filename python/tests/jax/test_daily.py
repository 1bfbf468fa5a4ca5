"""Programs of a person who uses JAX every day."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import callbox
import callbox.jax

P = PartitionSpec
KEY = jax.random.key(0)
EPS = 0.5


@pytest.fixture(scope="module")
def norm(load):
    module = load("rms_norm")
    return callbox.jax.op(module.rms_norm, vjp=module.rms_norm_grad, defaults={"eps": EPS})


def norm_of_jax(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPS) * weight


@pytest.fixture(scope="module")
def plus(load):
    module = load("activation")

    def curved(operands, results, tangents, beta):
        (x, dy), (tx, tdy) = operands, tangents
        root = jnp.sqrt(x**2 + beta)
        return tx * dy * beta / (2 * root**3) + tdy * (1 + x / root) / 2

    slope = callbox.jax.op(module.squareplus_grad, jvp=curved)
    return callbox.jax.op(module.squareplus, vjp=slope, jvp=slope, defaults={"beta": 4.0})


def plus_of_jax(x):
    return jax.nn.squareplus(x, 4.0)


@pytest.fixture(scope="module")
def softmax(load):
    def vjp(operands, y, ct):
        return (y * (ct - jnp.sum(y * ct, axis=-1, keepdims=True)),)

    return callbox.jax.op(load("softmax").softmax, vjp=vjp)


@pytest.fixture(scope="module")
def descend(load):
    return callbox.jax.op(load("typed_ffi").descend)


@pytest.fixture(scope="module")
def add_n(load):
    return callbox.jax.op(load("add_n").add_n)


def close(found, expected, atol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol, rtol=1e-4), found, expected)


def test_a_network_learns_with_kernels_as_activation_and_optimizer(plus, descend):
    keys = jax.random.split(KEY, 3)
    x = jax.random.normal(keys[0], (64, 2))
    y = jnp.sign(x[:, 0] * x[:, 1])
    params = {
        "first": {"w": jax.random.normal(keys[1], (2, 16)), "b": jnp.zeros(16)},
        "last": {"w": jax.random.normal(keys[2], (16,)) / 4, "b": jnp.zeros(())},
    }

    def loss(params):
        hidden = plus(x @ params["first"]["w"] + params["first"]["b"])
        return jnp.mean((hidden @ params["last"]["w"] + params["last"]["b"] - y) ** 2)

    @jax.jit
    def train(params, rates):
        def step(params, rate):
            value, grads = jax.value_and_grad(loss)(params)
            return jax.tree.map(functools.partial(descend, rate=rate), params, grads), value

        return jax.lax.scan(step, params, rates)

    _, losses = train(params, jnp.linspace(0.03, 0.01, 200))
    assert losses[-1] < 0.6 * losses[0]


def test_layers_in_a_scan_with_remat(norm):
    weights = jax.random.normal(KEY, (6, 8, 8)) / 3
    x = jax.random.normal(KEY, (4, 8))

    def model(norm, weights):
        block = jax.checkpoint(lambda x, w: (x + norm(x, jnp.ones(8)) @ w, None))
        return jnp.sum(jax.lax.scan(block, x, weights)[0] ** 2)

    found = jax.jit(jax.grad(functools.partial(model, norm)))(weights)
    close(found, jax.grad(functools.partial(model, norm_of_jax))(weights), atol=1e-3)


def test_attention_over_heads(softmax):
    q, k, v = jax.random.normal(KEY, (3, 2, 4, 6, 8))

    def attention(softmax, q, k, v):
        def head(q, k, v):
            scores = jnp.where(jnp.tri(6, dtype=bool), q @ k.T / 8**0.5, -jnp.inf)
            return softmax(scores) @ v

        return jax.vmap(jax.vmap(head))(q, k, v)

    ours, theirs = (functools.partial(attention, each) for each in (softmax, jax.nn.softmax))
    close(jax.jit(ours)(q, k, v), theirs(q, k, v))
    gradients = [jax.grad(lambda q, f=f: jnp.sum(f(q, k, v) ** 2))(q) for f in (ours, theirs)]
    close(*gradients)


def test_newtons_method_in_a_while_loop(plus):
    """Finds where squareplus is 3: x = 3 - 1/3."""

    def step(state):
        x, _ = state
        value, slope = jax.value_and_grad(plus)(x)
        return x - (value - 3) / slope, jnp.abs(value - 3)

    found = jax.jit(lambda: jax.lax.while_loop(lambda state: state[1] > 1e-6, step, (1.0, jnp.float32(1))))()
    close(found[0], 3 - 1 / 3)


def test_an_associative_scan_by_a_kernel(descend):
    x = jax.random.normal(KEY, (33,))
    found = jax.jit(lambda x: jax.lax.associative_scan(lambda a, b: descend(a, b, rate=-1.0), x))(x)
    close(found, jnp.cumsum(x))


def test_a_map_over_rows_one_by_one(norm):
    x = jax.random.normal(KEY, (10, 3, 8))
    close(jax.lax.map(lambda x: norm(x, jnp.ones(8)), x), norm_of_jax(x, jnp.ones(8)))


def test_jacobians_and_linear_maps(softmax):
    x = jax.random.normal(KEY, (5,))
    close(jax.jacrev(softmax)(x), jax.jacobian(jax.nn.softmax)(x))
    y, pull = jax.vjp(jax.vmap(softmax), x[None])
    close(pull(y)[0][0], jax.vjp(jax.nn.softmax, x)[1](y[0])[0])


def test_a_product_of_the_hessian_and_a_vector(plus):
    x, v = jax.random.normal(KEY, (2, 7))

    def product(f):
        return jax.jvp(jax.grad(lambda x: jnp.sum(f(x) ** 2)), (x,), (v,))[1]

    close(jax.jit(lambda: product(plus))(), product(plus_of_jax))


def test_branches_with_other_kernels(plus, add_n):
    branches = [plus, functools.partial(add_n, n=1.0), lambda x: x]
    program = jax.jit(lambda i, x: jax.lax.switch(i, branches, x))
    for i, expected in enumerate([plus_of_jax(2.0), 3.0, 2.0]):
        close(program(i, jnp.float32(2)), expected)
    close(jax.vmap(program, in_axes=(0, None))(jnp.arange(3), jnp.float32(2)), jnp.array([plus_of_jax(2.0), 3.0, 2.0]))


def test_gradients_of_a_guarded_value(plus):
    """A kernel that gets NaN only where its result is not used."""

    def f(x):
        safe = jnp.where(x > 0, x, 1.0)
        return jnp.sum(jnp.where(x > 0, plus(jnp.log(safe)), 0.0))

    gradient = jax.grad(f)(jnp.array([-1.0, 0.0, 2.0]))
    assert not np.isnan(gradient).any()
    assert gradient[2] > 0


def test_a_program_that_is_lowered_compiled_and_called(norm):
    x, weight = jax.random.normal(KEY, (4, 8)), jnp.ones(8)
    lowered = jax.jit(norm).lower(x, weight)
    assert "rms_norm" in lowered.as_text()
    compiled = lowered.compile()
    for _ in range(3):
        close(compiled(x, weight), norm_of_jax(x, weight))
    assert compiled.memory_analysis() is not None
    with pytest.raises(TypeError):
        compiled(x[:2], weight)


def test_shapes_without_values(norm):
    like = jax.eval_shape(
        jax.vmap(norm, in_axes=(0, None)), jnp.zeros((2, 4, 8)), jax.ShapeDtypeStruct((8,), "float32")
    )
    assert (like.shape, like.dtype) == ((2, 4, 8), jnp.float32)


def test_a_target_as_a_static_argument(guests):
    traces = []

    @functools.partial(jax.jit, static_argnums=0)
    def apply(target, x):
        traces.append(target.name)
        return callbox.jax.call(target, x, n=1.0)

    host = callbox.Host()
    for _ in range(3):
        close(apply(host.load(guests / "add_n.wasm").add_n, jnp.zeros(2)), jnp.ones(2))
    assert traces == ["add_n"]


def test_callbacks_and_prints_beside_kernels(add_n, capfd):
    seen = []

    @jax.jit
    def program(x):
        y = add_n(x, n=1.0)
        jax.debug.print("y is {y}", y=y)
        z = jax.pure_callback(lambda y: np.asarray(y) * 2, jax.ShapeDtypeStruct((3,), jnp.float32), y)
        jax.debug.callback(seen.append, z)
        return add_n(z, n=0.5)

    close(program(jnp.arange(3.0)), jnp.array([2.5, 4.5, 6.5]))
    jax.effects_barrier()
    assert "y is [1. 2. 3.]" in capfd.readouterr().out
    close(seen[0], np.array([2.0, 4.0, 6.0]))


def test_double_precision_within_a_block(load):
    """The same op takes both types, each in a program of its own."""
    plus = callbox.jax.op(load("activation").squareplus, defaults={"beta": 4.0})
    program = jax.jit(plus)
    single = program(np.float64(0.1))
    if hasattr(jax, "enable_x64"):
        enabled = jax.enable_x64(True)
    else:
        from jax.experimental import enable_x64

        enabled = enable_x64()
    with enabled:
        double = program(np.float64(0.1))
        assert double.dtype == np.float64
        np.testing.assert_allclose(double, (0.1 + np.sqrt(0.01 + 4)) / 2, rtol=1e-15)
    assert single.dtype == np.float32


def test_half_precision_weights_and_a_kernel_in_single_precision(norm):
    x = jax.random.normal(KEY, (4, 8), jnp.bfloat16)

    def loss(norm, x):
        return jnp.sum(norm(x.astype(jnp.float32), jnp.ones(8)).astype(jnp.bfloat16).astype(jnp.float32) ** 2)

    found, expected = (jax.grad(functools.partial(loss, f))(x) for f in (norm, norm_of_jax))
    assert found.dtype == jnp.bfloat16
    close(found.astype(jnp.float32), expected.astype(jnp.float32), atol=0.05)


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()[:4]), ("data",))


def test_data_parallel_training_is_that_of_one_device(norm, descend, mesh):
    x, y = jax.random.normal(KEY, (8, 6)), jax.random.normal(KEY, (8, 4))
    weights = {"w": jax.random.normal(KEY, (6, 4)), "scale": jnp.ones(4)}

    def step(weights, x, y):
        def loss(weights):
            return jnp.mean((norm(x @ weights["w"], weights["scale"]) - y) ** 2)

        return jax.tree.map(functools.partial(descend, rate=0.1), weights, jax.grad(loss)(weights))

    expected = jax.jit(step)(weights, x, y)
    sharding, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    program = jax.jit(step, in_shardings=(everywhere, sharding, sharding), out_shardings=everywhere)
    close(program(weights, x, y), expected)


def test_operands_that_are_donated_in_a_loop(add_n):
    program = jax.jit(lambda x: add_n(x, n=1.0) * 1.0, donate_argnums=0)
    x = jnp.zeros(1000)
    for _ in range(10):
        x = program(x)
    close(x, jnp.full(1000, 10.0))


def test_random_numbers_between_kernels(softmax):
    @jax.jit
    def sample(key):
        logits = jax.random.normal(key, (1000, 4))
        return jax.random.categorical(key, jnp.log(softmax(logits))), softmax(logits)

    drawn, probabilities = sample(KEY)
    again, _ = sample(KEY)
    np.testing.assert_array_equal(drawn, again)
    close(jnp.bincount(drawn, length=4) / 1000, probabilities.mean(0), atol=0.1)


def test_one_program_for_each_device(plus):
    x = jax.random.normal(KEY, (4, 5))
    program = jax.pmap(jax.value_and_grad(lambda x: jnp.sum(plus(x))))
    values, gradients = program(x)
    close(values, jax.vmap(lambda x: jnp.sum(plus_of_jax(x)))(x))
    close(gradients, jax.vmap(jax.grad(lambda x: jnp.sum(plus_of_jax(x))))(x))


def test_sums_over_the_axis_of_a_batch(norm):
    x = jax.random.normal(KEY, (4, 8))

    def centred(norm, x):
        return norm(x - jax.lax.pmean(x, "batch"), jnp.ones(8))

    found, expected = (
        jax.vmap(jax.grad(lambda x, f=f: jnp.sum(centred(f, x) ** 2)), axis_name="batch")(x)
        for f in (norm, norm_of_jax)
    )
    close(found, expected)


def test_programs_that_many_threads_trace(load):
    """Each thread makes an op of its own and traces it, while others call theirs."""
    import concurrent.futures

    def work(number):
        add_n = callbox.jax.op(load("add_n").add_n)
        return float(jax.jit(lambda x: add_n(x, n=float(number)).sum())(jnp.zeros(number + 1)))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(24))) == [number * (number + 1.0) for number in range(24)]


def test_failures_of_some_elements_as_data(load):
    """Elements with a negative `n` fail, and the others go on."""
    add_n = callbox.jax.op(load("add_n").add_n, on_error="status")
    faults = callbox.jax.op(load("faults").panic, on_error="status", result_shape_dtypes=lambda x: x)

    @jax.jit
    @jax.vmap
    def program(x):
        y, status = jax.lax.cond(x > 1, faults, lambda x: add_n(x, n=1.0), x)
        return jnp.where(status == 0, y, -1.0), status

    y, status = program(jnp.arange(4.0))
    close(y, jnp.array([1.0, 2.0, -1.0, -1.0]))
    with pytest.raises(callbox.CallError, match="ABORTED"):
        callbox.jax.check(status)
