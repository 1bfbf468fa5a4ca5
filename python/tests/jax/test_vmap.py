"""Batches for targets that have no notion of them."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax

METHODS = ["loop", "sequential", pytest.param("sequential_unrolled", marks=pytest.mark.newest)]
RNG = np.random.default_rng(0)
B = RNG.standard_normal((5, 3), np.float32)
C = RNG.standard_normal((5, 7), np.float32)


def reference(b: jax.Array, c: jax.Array) -> jax.Array:
    return jnp.resize(b, c.shape) + c


@pytest.fixture
def broadcast_add(load):
    return callbox.jax.op(load("broadcast_add").broadcast_add)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("in_axes", "b", "c"),
    [
        ((0, 0), B, C),
        ((None, 0), B[0], C),
        ((0, None), B, C[0]),
        ((-1, 0), B.T, C),
        ((1, -1), B.T, C.T),
        ((None, 1), B[0], C.T),
    ],
)
def test_a_batch_is_what_a_python_loop_is(load, method, in_axes, b, c):
    function = callbox.jax.op(load("broadcast_add").broadcast_add, vmap_method=method)
    expected = [
        function(
            np.take(b, i, in_axes[0]) if in_axes[0] is not None else b,
            np.take(c, i, in_axes[1]) if in_axes[1] is not None else c,
        )
        for i in range(5)
    ]
    batched = jax.vmap(function, in_axes)
    np.testing.assert_array_equal(batched(b, c), expected)
    np.testing.assert_array_equal(jax.jit(batched)(b, c), expected)


@pytest.mark.parametrize("inner", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize("outer", [(0, None), (None, 0), (0, 0)])
def test_batches_nest(broadcast_add, inner, outer):
    sizes = (4, 6)

    def operand(number: int, length: int) -> np.ndarray:
        batch = tuple(size for axes, size in zip((outer, inner), sizes, strict=True) if axes[number] is not None)
        return RNG.standard_normal((*batch, length), np.float32)

    b, c = operand(0, 3), operand(1, 7)
    nested = jax.vmap(jax.vmap(broadcast_add, inner), outer)
    expected = jax.vmap(jax.vmap(reference, inner), outer)(b, c)
    assert expected.shape == (4, 6, 7)
    np.testing.assert_array_equal(jax.jit(nested)(b, c), expected)


def test_three_batches_nest(broadcast_add):
    b, c = RNG.standard_normal((2, 4, 3), np.float32), RNG.standard_normal((5, 7), np.float32)
    nested = jax.vmap(jax.vmap(jax.vmap(broadcast_add, (None, 0)), (0, None)), (0, None), out_axes=1)
    expected = jax.vmap(jax.vmap(jax.vmap(reference, (None, 0)), (0, None)), (0, None), out_axes=1)(b, c)
    np.testing.assert_array_equal(nested(b, c), expected)


def test_a_batch_may_be_empty_or_have_one(broadcast_add):
    for size in (0, 1):
        assert jax.vmap(broadcast_add, (None, 0))(B[0], C[:size]).shape == (size, 7)
    np.testing.assert_array_equal(jax.vmap(broadcast_add, (None, 0))(B[0], C[:1]), [reference(B[0], C[0])])


def test_operands_that_the_batch_shares_are_not_copied(load):
    program = jax.jit(jax.vmap(lambda b, c: callbox.jax.call(load("broadcast_add").broadcast_add, b, c), (None, 0)))
    assert "(tensor<1x3xf32>, tensor<5x7xf32>) -> tensor<5x7xf32>" in program.lower(B[0], C).as_text()


def test_one_call_of_xlas_is_made_for_a_batch(guests):
    # A policy that no other host has, because programs find modules by file and policy.
    host = callbox.Host(policy={"limits": {"deadline_ms": 9_001}})
    target = host.load(guests / "broadcast_add.wasm").broadcast_add
    program = jax.jit(jax.vmap(lambda b, c: callbox.jax.call(target, b, c)))
    assert program.lower(B, C).as_text().count(f"@{callbox.FFI_TARGET}(") == 1
    program(B, C).block_until_ready()
    assert host.stats()["calls"] == 1


@pytest.mark.parametrize("method", METHODS)
def test_operands_with_aliases_have_batches(load, method):
    def program(x, y):
        results = (jax.ShapeDtypeStruct((3,), np.float32),) * 2
        return callbox.jax.call(
            load("typed_ffi").copy_remaining,
            x,
            y,
            result_shape_dtypes=results,
            input_output_aliases={0: 0},
            vmap_method=method,
        )

    x, y = B, B[0] + 1
    a, b = jax.jit(jax.vmap(program, (0, None)))(x, y)
    np.testing.assert_array_equal(a, x)
    np.testing.assert_array_equal(b, np.broadcast_to(y, x.shape))
    a, b = jax.jit(jax.vmap(program, (None, 0)))(y, x)
    np.testing.assert_array_equal(a, np.broadcast_to(y, x.shape))
    np.testing.assert_array_equal(b, x)


def test_results_may_have_other_ranks_than_operands(load):
    def describe(x):
        return callbox.jax.call(load("typed_ffi").describe, x, result_shape_dtypes=jax.ShapeDtypeStruct((5,), np.int64))

    described = jax.jit(jax.vmap(describe))(C)
    assert described.tolist() == [[11, 1, 7, 0, 28]] * 5


def test_scalars_have_batches(load):
    add_n = callbox.jax.op(load("add_n").add_n)
    np.testing.assert_array_equal(jax.vmap(lambda x: add_n(x, n=1))(jnp.arange(3.0)), [1, 2, 3])
    np.testing.assert_array_equal(jax.vmap(jax.vmap(lambda x: add_n(x, n=1)))(jnp.ones((2, 3))), np.full((2, 3), 2))


def test_one_failing_element_fails_the_batch(load, failure):
    program = jax.jit(jax.vmap(lambda b, c: callbox.jax.call(load("broadcast_add").broadcast_add, b, c), (None, 0)))
    assert "INVALID_ARGUMENT" in failure(program, jnp.ones(0), C)


@pytest.mark.newest
def test_without_a_method_there_is_no_batch(load):
    function = callbox.jax.op(load("add_n").add_n, vmap_method=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(function(1.0, n=1)) == 2.0
        with pytest.raises(NotImplementedError, match="vmap"):
            jax.vmap(lambda x: function(x, n=1))(jnp.ones(3))


def test_a_batch_in_a_scan_and_a_scan_in_a_batch(load):
    add_n = callbox.jax.op(load("add_n").add_n)

    def total(x):
        return jax.lax.scan(lambda carry, y: (add_n(carry, n=1) + y, carry), x, jnp.arange(4.0))

    expected = 4 + 6 + np.arange(3.0)
    last, carries = jax.jit(jax.vmap(total))(jnp.arange(3.0))
    np.testing.assert_array_equal(last, expected)
    assert carries.shape == (3, 4)
    batched, _ = jax.lax.scan(
        lambda carry, y: (jax.vmap(lambda x: add_n(x, n=1))(carry) + y, None), jnp.arange(3.0), jnp.arange(4.0)
    )
    np.testing.assert_array_equal(batched, expected)
