"""Arrays of JAX in direct calls, by JAX's own DLPack capsules."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import callbox

X = np.array([0, 1, 1, 0, 1, 0])


@pytest.fixture
def copy(load):
    return load("typed_ffi").copy_any


@pytest.mark.parametrize(
    "dtype",
    ["float32", "bfloat16", "float16", "int8", "uint8", "int32", "bool", "complex64", "float8_e4m3fn", "uint16"],
)
def test_arrays_as_operands(copy, dtype):
    x = jnp.asarray(X).astype(dtype)
    y = np.zeros(6, x.dtype)
    copy(x, out=y)
    assert y.tobytes() == np.asarray(x).tobytes()
    assert copy(x, result_shape_dtypes=x).tobytes() == y.tobytes()


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[::2], lambda x: x[1:, 1:], lambda x: x[0, 0]])
def test_arrays_of_any_layout(copy, view):
    x = view(jnp.arange(24.0).reshape(4, 6))
    y = np.zeros(x.shape, np.float32)
    copy(x, out=y)
    np.testing.assert_array_equal(y, x)


def test_arrays_on_several_devices(load):
    mesh = Mesh(np.array(jax.devices()[:4]), ("i",))
    x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("i")))
    np.testing.assert_array_equal(load("add_n").add_n(x, n=1.0), np.arange(8) + 1)
    other = jax.device_put(jnp.arange(8.0), jax.devices()[2])
    np.testing.assert_array_equal(load("add_n").add_n(other, n=1.0), np.arange(8) + 1)


def test_arrays_of_jax_are_not_written(load):
    x = jnp.zeros(4)
    for out in (x, (x,)):
        with pytest.raises(BufferError):
            load("add_n").add_n(jnp.ones(4), n=1.0, out=out)
    np.testing.assert_array_equal(x, np.zeros(4))


def test_results_become_arrays_of_jax(load):
    y = load("add_n").add_n(jnp.zeros(4), n=1.0)
    for made in (jnp.from_dlpack(y), jnp.asarray(y)):
        np.testing.assert_array_equal(made, np.ones(4))
    del y
    gc.collect()
    np.testing.assert_array_equal(made, np.ones(4))


def test_an_array_is_kept_while_it_is_read(guests):
    """No other thread frees it: the call has the capsule."""
    slow = callbox.Host().load(guests / "faults.wasm").infinite_loop
    like = jax.ShapeDtypeStruct((4,), np.float32)
    for _ in range(5):
        with pytest.raises(callbox.CallError, match="DEADLINE_EXCEEDED"):
            slow(jnp.ones(4), result_shape_dtypes=like, deadline=0.02)
        gc.collect()


def test_a_deleted_array_is_named(load):
    x = jnp.arange(3.0)
    x.delete()
    expected = (
        r"add_n\(\): operand 0 \(x\) is an array that JAX has deleted: a jitted function took its memory "
        r"\(donate_argnums\), or delete\(\) was called"
    )
    with pytest.raises(RuntimeError, match=expected) as raised:
        load("add_n").add_n(x, n=1.0)
    assert raised.value.__cause__ is not None
    with pytest.raises(RuntimeError, match=r"rms_norm\(\): operand 1 \(weight\) is an array"):
        load("rms_norm").rms_norm(np.ones((2, 3), np.float32), weight=x, eps=1.0)
    donated = jnp.ones(4)
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    with pytest.raises(RuntimeError, match=r"operand 0 \(x\) is an array that JAX has deleted"):
        load("add_n").add_n(donated, n=1.0)
