"""Arrays of elements of less than a byte, which XLA packs and guests do not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax

#: In pseudocode: copy the bytes of the first operand to the first result.
_COPY = (
    b"\x20\x00\x28\x02\x10\x28\x02\x00\x20\x00\x28\x02\x08\x28\x02\x00"
    b"\x20\x00\x28\x02\x10\x28\x02\x04\xfc\x0a\x00\x00\x41\x00"
)
_TYPES = {"int4": "s4", "uint4": "u4", "int2": "s2", "uint2": "u2", "float4_e2m1fn": "f4e2m1fn"}
_NAMES = [name for name in _TYPES if hasattr(jnp, name)]


@pytest.fixture(scope="module")
def module(assemble):
    """Targets that copy arrays of a dtype, and that return their bytes."""
    declarations, bodies = [], {}
    for name, element_type in _TYPES.items():
        x = {"name": "x", "element_types": [element_type], "dimensions": [".."]}
        for target, of in ((f"copy_{name}", element_type), (f"bytes_{name}", "u8")):
            y = {"name": "y", "element_types": [of], "dimensions": [".."]}
            declarations.append({"name": target, "traits": ["pure"], "operands": [x], "results": [y]})
            bodies[target] = _COPY
    return callbox.Host().load(assemble(bodies, declarations))


def _values(name: str, shape: tuple[int, ...]) -> jax.Array:
    count = int(np.prod(shape))
    bits = 2 if name.endswith("2") else 4
    return jnp.asarray(np.arange(count).reshape(shape) % 2 ** (bits - 1)).astype(name)


def _numbers(x: jax.Array) -> np.ndarray:
    return np.asarray(x.astype(jnp.float32))


@pytest.mark.newest
@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 3), (3, 4, 2)])
def test_elements_arrive_one_by_one(module, name, shape):
    x = _values(name, shape)
    copied = jax.jit(lambda x: callbox.jax.call(module[f"copy_{name}"], x))(x)
    assert copied.dtype == x.dtype
    np.testing.assert_array_equal(_numbers(copied), _numbers(x))
    # Computed by XLA before and after.
    doubled = jax.jit(lambda x: callbox.jax.call(module[f"copy_{name}"], x + x) + x)(x)
    np.testing.assert_array_equal(_numbers(doubled), _numbers(jax.jit(lambda x: (x + x) + x)(x)))
    found = jax.jit(lambda x: callbox.jax.call(module[f"bytes_{name}"], x))(x)
    np.testing.assert_array_equal(
        found, np.asarray(x).view(np.uint8) if shape else np.asarray(x)[None].view(np.uint8)[0]
    )


@pytest.mark.newest
def test_negative_numbers_have_zeros_in_the_other_bits(module):
    x = jnp.array([-1, -8, 7], jnp.int4)
    np.testing.assert_array_equal(callbox.jax.call(module.bytes_int4, x), [15, 8, 7])
    np.testing.assert_array_equal(_numbers(callbox.jax.call(module.copy_int4, x)), [-1, -8, 7])


@pytest.mark.newest
def test_batches_statuses_and_donated_operands(module):
    x = _values("int4", (3, 5))
    copied, statuses = jax.jit(jax.vmap(lambda x: callbox.jax.call(module.copy_int4, x, on_error="status")))(x)
    np.testing.assert_array_equal(_numbers(copied), _numbers(x))
    np.testing.assert_array_equal(statuses, np.zeros(3))
    in_place = jax.jit(lambda x: callbox.jax.call(module.copy_int4, x + x, input_output_aliases={0: 0}))
    np.testing.assert_array_equal(_numbers(in_place(x)), _numbers(x + x))


@pytest.mark.newest
@pytest.mark.parametrize(("how", "code"), [("healthy", 0), ("fails", 3), ("is closed", 9)])
def test_the_results_of_a_failure_are_filled(assemble, how, code):
    """By the target's own call, or by the handler if there is none."""
    x = {"name": "x", "element_types": ["s4"], "dimensions": [".."]}
    declaration = {"name": "copy", "operands": [x], "results": [{**x, "name": "y"}]}
    body = b"\x41\x03" if how == "fails" else _COPY
    with callbox.Host().load(assemble({"copy": body}, [declaration])) as module:
        call = jax.jit(lambda x: callbox.jax.call(module.copy, x, on_error="status"))
        x = jnp.array([1, 2, 3, 4, 5], jnp.int4)
        compiled = call.lower(x).compile()
        if how == "is closed":
            module.close()
        for _ in range(3):
            y, status = compiled(x)
            assert int(status) == code
            np.testing.assert_array_equal(_numbers(y), np.full(5, -1) if code else np.arange(1, 6))


@pytest.mark.skipif(jax.__version_info__ >= (0, 6, 2), reason="this version passes packed arrays")
@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_older_versions_of_jax_refuse_them(module, name):
    with pytest.raises(TypeError, match=rf"copy_{name}\(\): arrays of {name} need JAX 0.6.2 or newer, found 0\."):
        jax.jit(lambda x: callbox.jax.call(module[f"copy_{name}"], x))(jnp.arange(6).astype(name))
