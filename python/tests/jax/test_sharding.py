"""Ops on four virtual devices of this process."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import callbox
import callbox.jax

P = PartitionSpec


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("i",))


def on(mesh: Mesh, x: np.ndarray, *spec: str | None) -> jax.Array:
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def test_a_sharded_call_gathers_nothing(load, mesh, shard_map):
    add_n = callbox.jax.op(load("add_n").add_n)
    program = jax.jit(shard_map(lambda x: add_n(x, n=1.0), mesh=mesh, in_specs=P("i"), out_specs=P("i")))
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    y = program(on(mesh, x, "i"))
    np.testing.assert_array_equal(y, x + 1)
    assert len(y.sharding.device_set) == 4
    compiled = program.lower(on(mesh, x, "i")).compile().as_text()
    assert callbox.FFI_TARGET in compiled
    assert "all-gather" not in compiled
    assert "all-reduce" not in compiled


def test_eager_and_plain_jitted_calls_take_sharded_arrays(load, mesh, shard_map):
    add_n = callbox.jax.op(load("add_n").add_n)
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(
        shard_map(lambda x: add_n(x, n=1.0), mesh=mesh, in_specs=P("i"), out_specs=P("i"))(on(mesh, x, "i")), x + 1
    )
    np.testing.assert_array_equal(jax.jit(lambda x: add_n(x, n=1.0))(on(mesh, x, "i")), x + 1)


def test_operands_that_are_the_same_everywhere(load, mesh, shard_map):
    rms_norm = callbox.jax.op(load("rms_norm").rms_norm, vjp=load("rms_norm").rms_norm_grad)
    x = np.random.default_rng(0).standard_normal((8, 4), np.float32)
    w = np.ones(4, np.float32)

    def loss(x, w):
        body = shard_map(lambda x, w: rms_norm(x, w, eps=0.5), mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"))
        return jnp.sum(body(x, w) ** 2)

    def expected(x, w):
        return jnp.sum((x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 0.5) * w) ** 2)

    found = jax.jit(jax.grad(loss, (0, 1)))(on(mesh, x, "i"), on(mesh, w))
    for a, b in zip(found, jax.grad(expected, (0, 1))(x, w), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_both_modes_and_second_derivatives_inside_of_shards(load, mesh, shard_map):
    kernels = load("activation")

    def curved(operands, _result, tangents, *, beta):
        (x, dy), (tx, tdy) = operands, tangents
        root = jnp.sqrt(x * x + beta)
        return tx * dy * beta / (2 * root**3) + tdy * (1 + x / root) / 2

    slope = callbox.jax.op(kernels.squareplus_grad, jvp=curved)
    op = callbox.jax.op(kernels.squareplus, vjp=slope, jvp=slope, defaults={"beta": 4.0})
    squareplus = shard_map(op, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    x = np.linspace(-2, 2, 8, dtype=np.float32)

    def exact(x):
        return (x + jnp.sqrt(x * x + 4)) / 2

    for transform in (
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
        lambda f: jax.grad(lambda x: jnp.sum(f(x) ** 2)),
        lambda f: lambda x: jax.jvp(jax.grad(lambda x: jnp.sum(f(x) ** 2)), (x,), (x,)),
    ):
        found, expected = jax.jit(transform(squareplus))(on(mesh, x, "i")), transform(exact)(x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


def test_batches_inside_of_shards(load, mesh, shard_map):
    add = callbox.jax.op(load("broadcast_add").broadcast_add)
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    w = np.arange(2, dtype=np.float32)
    program = shard_map(
        lambda w, x: jax.vmap(add, (None, 0))(w, x), mesh=mesh, in_specs=(P(), P("i")), out_specs=P("i")
    )
    np.testing.assert_array_equal(
        jax.jit(program)(on(mesh, w), on(mesh, x, "i")), x + np.array([0, 1, 0, 1], np.float32)
    )


# On JAX 0.5.0 every later program on these devices fails too, even ``x + 1``.
@pytest.mark.newest
def test_a_failing_shard_is_the_programs_failure(load, mesh, shard_map, failure):
    add = callbox.jax.op(load("faults").fail, result_shape_dtypes=lambda x, **_: x)
    body = shard_map(lambda x: add(x, code=9, message="not here"), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    assert "not here" in failure(jax.jit(body), on(mesh, np.ones(8, np.float32), "i"))


def test_a_failing_shard_before_a_collective_is_a_status_everywhere(load, mesh, shard_map):
    """`fail` fails on the second shard, as its operand says."""
    target = load("jax_misc").fail

    def body(how):
        result = jax.ShapeDtypeStruct((), np.int32)
        y, status = callbox.jax.call(
            target, how[0], result_shape_dtypes=result, on_error="status", api_version="API_VERSION_JAX_FFI"
        )
        return jax.lax.psum(y, "i")[None], jax.lax.pmax(status, "i")

    program = jax.jit(shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=(P("i"), P())))
    good = on(mesh, np.zeros(4, np.int32), "i")
    bad = on(mesh, np.array([0, 1, 0, 0], np.int32), "i")
    total, status = program(good)
    callbox.jax.check(status)
    assert total.tolist() == [0] * 4
    began = time.monotonic()
    _, status = program(bad)
    assert int(status) != 0
    assert time.monotonic() - began < 2
    with pytest.raises(callbox.CallError, match="out of memory"):
        callbox.jax.check(status)
    callbox.jax.check(program(good)[1])


@pytest.mark.newest
def test_traps_on_xlas_threads_are_contained(load, mesh, shard_map, failure):
    target = load("faults").read_out_of_bounds
    body = shard_map(
        lambda x: callbox.jax.call(target, x, result_shape_dtypes=x), mesh=mesh, in_specs=P("i"), out_specs=P("i")
    )
    assert "OUT_OF_RANGE" in failure(jax.jit(body), on(mesh, np.ones(8, np.float32), "i"))


# Explicit axes are newer than JAX 0.5.


@pytest.fixture(scope="module")
def explicit() -> Mesh:
    return jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))


X = np.random.default_rng(0).standard_normal((8, 3, 4), np.float32)
W = np.random.default_rng(1).standard_normal(4, np.float32)
WHOLE, ROWS = P(None, None, None), P("i", None, None)


def norm_reference(x, w):
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 0.5) * w


def squareplus_reference(x):
    return (x + jnp.sqrt(x * x + 4)) / 2


def eager(function):
    return function


def spec(x):
    return jax.typeof(x).sharding.spec


@pytest.mark.newest
@pytest.mark.parametrize("transform", [eager, jax.jit])
def test_results_over_explicit_axes(load, explicit, transform):
    """A result is sharded as requested, or as the declaration has it for the operands."""
    add_n = callbox.jax.op(load("add_n").add_n)
    norm = load("rms_norm").rms_norm
    as_said = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(explicit, P(None, None, "i")))
    with jax.set_mesh(explicit):
        x = jax.device_put(X, P("i"))
        sharded = transform(lambda x: add_n(x, n=1.0))(x)
        rows = transform(lambda x: callbox.jax.call(norm, x, W, eps=0.5))(x)
        pair = ("float32", X.shape)
        whole = transform(lambda x: callbox.jax.call(norm, x, W, eps=0.5, result_shape_dtypes=pair))(x)
        kept = transform(lambda x: callbox.jax.call(norm, x, W, eps=0.5, result_shape_dtypes=x))(x)
        said = transform(lambda x: callbox.jax.call(norm, x, W, eps=0.5, result_shape_dtypes=as_said))(x)
        y, status = transform(lambda x: callbox.jax.call(load("add_n").add_n, x, n=1.0, on_error="status"))(x)
    assert [spec(a) for a in (sharded, rows, whole, kept, said)] == [ROWS, ROWS, WHOLE, ROWS, P(None, None, "i")]
    assert (spec(y), spec(status)) == (ROWS, P())
    np.testing.assert_array_equal(sharded, X + 1)
    for found in (rows, whole, kept, said):
        np.testing.assert_allclose(found, norm_reference(X, W), rtol=1e-5, atol=1e-5)


@pytest.mark.newest
@pytest.mark.parametrize("transform", [eager, jax.jit])
def test_gradients_over_explicit_axes_are_sharded_as_their_operands(load, explicit, transform):
    norm = callbox.jax.op(load("rms_norm").rms_norm, vjp=load("rms_norm").rms_norm_grad)
    by_function = callbox.jax.op(
        load("rms_norm").rms_norm,
        vjp=lambda operands, _, cotangent, eps: jax.vjp(norm_reference, *operands)[1](
            jax.sharding.reshard(cotangent, jax.typeof(operands[0]).sharding)
        ),
    )

    def loss(function):
        return lambda x, w: jnp.sum(jnp.tanh(function(x, w)))

    expected = jax.grad(loss(norm_reference), (0, 1))(X, W)
    with jax.set_mesh(explicit):
        x, w = jax.device_put(X, P("i")), jax.device_put(W, P())
        for op in (norm, by_function):
            call = lambda x, w, op=op: op(x, w, eps=0.5)  # noqa: E731
            for function in (call, jax.vmap(call, (0, None))):
                found = transform(jax.grad(loss(function), (0, 1)))(x, w)
                assert [spec(a) for a in found] == [ROWS, P(None)]
                jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)
            each = transform(jax.vmap(jax.grad(loss(call)), (0, None)))(x, w)
            assert spec(each) == ROWS
            np.testing.assert_allclose(each, expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.newest
@pytest.mark.parametrize("transform", [eager, jax.jit])
def test_forward_derivatives_over_explicit_axes(load, explicit, transform):
    target, gradient = load("activation").squareplus, load("activation").squareplus_grad
    slope = lambda operands, _, tangents, beta: tangents[0] * (1 + operands[0] / jnp.sqrt(operands[0] ** 2 + beta)) / 2  # noqa: E731
    whole = lambda x, beta: jax.ShapeDtypeStruct(x.shape, x.dtype)  # noqa: E731
    expected = jax.jvp(squareplus_reference, (X,), (X,))
    with jax.set_mesh(explicit):
        x = jax.device_put(X, P("i"))
        for rule in (slope, gradient):
            for types, wanted in ((None, ROWS), (whole, WHOLE)):
                op = callbox.jax.op(target, jvp=rule, result_shape_dtypes=types)
                found = transform(lambda x, op=op: jax.jvp(lambda x: op(x, beta=4.0), (x,), (x,)))(x)
                assert [spec(a) for a in found] == [wanted, wanted]
                jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)
        op = callbox.jax.op(target, jvp=slope)
        reverse = transform(jax.grad(lambda x: op(x, beta=4.0).sum()))(x)
    assert spec(reverse) == ROWS
    np.testing.assert_allclose(reverse, jax.grad(lambda x: squareplus_reference(x).sum())(X), rtol=1e-5, atol=1e-5)


@pytest.mark.newest
def test_loops_and_branches_over_explicit_axes(load, explicit):
    """JAX requires the same types for what goes in and comes out."""
    norm = callbox.jax.op(
        load("rms_norm").rms_norm, vjp=load("rms_norm").rms_norm_grad, result_shape_dtypes=lambda x, w, eps: x
    )
    squareplus = callbox.jax.op(load("activation").squareplus, vjp=load("activation").squareplus_grad)

    def program(norm, squareplus):
        def run(x, w):
            x, _ = jax.lax.scan(lambda x, _: (norm(x, w) + squareplus(x), None), x, None, length=3)
            return jax.lax.cond(jnp.sum(x) > 0, lambda x: norm(x, w), lambda x: x, x).sum()

        return jax.jit(jax.grad(run))

    with jax.set_mesh(explicit):
        x, w = jax.device_put(X, P("i")), jax.device_put(W, P())
        found = program(lambda x, w: norm(x, w, eps=0.5), lambda x: squareplus(x, beta=4.0))(x, w)
    assert spec(found) == ROWS
    np.testing.assert_allclose(found, program(norm_reference, squareplus_reference)(X, W), rtol=1e-4, atol=1e-4)


@pytest.mark.newest
def test_shards_of_a_mesh_with_explicit_axes_gather_nothing(load, explicit):
    squareplus = callbox.jax.op(load("activation").squareplus, vjp=load("activation").squareplus_grad)
    with jax.set_mesh(explicit):
        x = jax.device_put(X, P("i"))
        body = jax.shard_map(lambda x: squareplus(x, beta=4.0), in_specs=P("i"), out_specs=P("i"))
        program = jax.jit(jax.grad(lambda x: body(x).sum()))
        found = program(x)
        assert "all-gather" not in program.lower(x).compile().as_text()
    assert spec(found) == ROWS
    np.testing.assert_allclose(found, jax.grad(lambda x: squareplus_reference(x).sum())(X), rtol=1e-5, atol=1e-5)
