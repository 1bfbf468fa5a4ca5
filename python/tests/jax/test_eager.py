"""Calls outside of transformations, which run as programs that are compiled once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax
from callbox.jax import _call, _eager

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def traced(monkeypatch) -> list[str]:
    """The names of the targets that were traced meanwhile."""
    names: list[str] = []
    bind = _call.bind

    def counted(target, *rest):
        names.append(target.name)
        return bind(target, *rest)

    monkeypatch.setattr(_call, "bind", counted)
    _call.eager_call.cache_clear()
    return names


def test_a_call_on_arrays_is_traced_once_for_each_type_and_attribute(load, traced):
    target = load("add_n").add_n
    function = callbox.jax.op(target)
    for _ in range(3):
        np.testing.assert_array_equal(callbox.jax.call(target, jnp.asarray(X), n=1.5), X + np.float32(1.5))
        np.testing.assert_array_equal(callbox.jax.call(target, X, n=1.5), X + np.float32(1.5))
        np.testing.assert_array_equal(function(X, n=1.5), X + np.float32(1.5))
    assert len(traced) == 1
    np.testing.assert_array_equal(function(X[0], n=1.5), X[0] + np.float32(1.5))
    np.testing.assert_array_equal(function(X, n=2.5), X + np.float32(2.5))
    assert len(traced) == 3


def test_equal_attributes_of_other_types_are_told_apart(load, traced):
    target = load("add_n").add_n
    for n in (1, 1.0, np.float32(1), np.array(1, np.float32)):
        np.testing.assert_array_equal(callbox.jax.call(target, X, n=n), X + 1)
    assert len(traced) == 4
    with pytest.raises(TypeError, match="attribute"):
        callbox.jax.call(target, X, n=True)
    for n in (0.0, -0.0):
        zero = np.full(3, -0.0, np.float32)
        result = np.asarray(callbox.jax.call(target, zero, n=n))
        assert np.signbit(result).tolist() == np.signbit(zero + np.float32(n)).tolist()


@pytest.mark.parametrize(
    "attributes",
    [
        {"a": 1, "b": True, "c": 0.5, "d": "text", "e": b"bytes", "f": np.int8(3)},
        {"a": -0.0, "b": float("inf"), "c": 5e-324, "d": 0.1},
        {"a": np.arange(6, dtype=np.int16).reshape(2, 3).T, "b": np.zeros((0, 3)), "c": np.array(2 + 1j)},
        {"a": np.asarray(jnp.ones(3, jnp.bfloat16))},
        {},
    ],
)
def test_a_key_holds_the_attributes(attributes):
    key = _eager.frozen(attributes)
    thawed = _eager.thawed(key)
    assert list(thawed) == list(attributes)
    for name, value in attributes.items():
        assert type(thawed[name]) is type(value)
        assert np.asarray(thawed[name]).dtype == np.asarray(value).dtype
        assert np.asarray(thawed[name]).tobytes() == np.asarray(value).tobytes()
    assert hash(key) == hash(_eager.frozen(attributes))


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [1, 2],
        {"a": 1},
        None,
        np.zeros(5000),
        "x" * 5000,
        np.array([None]),
        np.str_("x\0"),
        np.bytes_(b""),
    ],
)
def test_other_attributes_have_no_key(value):
    assert _eager.frozen({"a": value}) is None


def test_the_results_of_a_call_are_part_of_the_program(load):
    target = load("typed_ffi").copy_remaining
    x, y = jnp.ones(3), jnp.arange(2)
    types = (jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((2,), np.int32))
    for _ in range(2):
        results = callbox.jax.call(target, x, y, result_shape_dtypes=types)
        assert isinstance(results, tuple)
        np.testing.assert_array_equal(results[0], x)
        np.testing.assert_array_equal(results[1], y)


def test_an_error_is_raised_by_each_call(load, failure):
    target = load("add_n").add_n
    for _ in range(2):
        with pytest.raises(TypeError, match="expected the attributes"):
            callbox.jax.call(target, X, m=1.0)
        assert "Info must be >= 0" in failure(lambda: callbox.jax.call(target, X, n=-1.0))


def test_a_constant_inside_of_a_transformation_is_an_operand(load):
    target = load("add_n").add_n
    constant = jnp.asarray(X)
    program = jax.jit(lambda x: x + callbox.jax.call(target, constant, n=1.0))
    np.testing.assert_array_equal(program(jnp.ones((2, 3))), X + 2)
    gradient = jax.grad(lambda x: (x * callbox.jax.call(target, constant, n=1.0)).sum())
    np.testing.assert_array_equal(gradient(jnp.ones((2, 3))), X + 1)
    mapped = jax.vmap(lambda x: x + callbox.jax.call(target, constant, n=1.0).sum())
    np.testing.assert_array_equal(mapped(jnp.arange(3.0)), np.arange(3) + (X + 1).sum())
