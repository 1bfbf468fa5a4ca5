"""Targets that take batches themselves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import callbox
import callbox.jax

#: In pseudocode: fill the first result with the number of its bytes in this call.
_FILL = (
    b"\x20\x00\x28\x02\x10\x28\x02\x00\x20\x00\x28\x02\x10\x28\x02\x04"
    b"\x20\x00\x28\x02\x10\x28\x02\x04\xfc\x0b\x00\x41\x00"
)
#: The same, but fails with FAILED_PRECONDITION.
_FAIL = b"\x41\x09"


def _declaration(name: str, *operands: list[str], traits: tuple[str, ...] = ("batched",)) -> dict:
    buffers = [
        {"name": f"x{i}", "element_types": ["u8"], "dimensions": dimensions} for i, dimensions in enumerate(operands)
    ]
    result = {"name": "y", "element_types": ["u8"], "dimensions": ["batch", "n"]}
    return {"name": name, "traits": list(traits), "operands": buffers, "results": [result]}


@pytest.fixture(scope="module")
def sizes(assemble):
    """Targets whose results tell the size of a call's result in bytes."""
    batch, weight = ["batch", "n"], ["n"]
    declarations = [
        _declaration("one", batch),
        _declaration("two", batch, batch),
        _declaration("weighted", batch, weight),
        _declaration("plain", batch, weight, traits=("pure",)),
        _declaration("fails", batch),
    ]
    names = [declaration["name"] for declaration in declarations]
    bodies = {name: _FAIL if name == "fails" else _FILL for name in names}
    return callbox.Host().load(assemble(bodies, declarations))


def _zeros(*shape: int) -> jax.Array:
    return jnp.zeros(shape, jnp.uint8)


def test_a_whole_batch_is_one_call(sizes):
    one, weighted = callbox.jax.op(sizes.one), callbox.jax.op(sizes.weighted)
    x, w = _zeros(7, 2, 3), _zeros(3)
    assert one.__name__ == "one"
    for wrapped in (lambda f: f, jax.jit):
        np.testing.assert_array_equal(wrapped(jax.vmap(one))(x), np.full((7, 2, 3), 42))
        np.testing.assert_array_equal(wrapped(jax.vmap(weighted, (0, None)))(x, w), np.full((7, 2, 3), 42))
        moved = wrapped(jax.vmap(one, 2, 1))(_zeros(2, 3, 7))
        np.testing.assert_array_equal(moved, np.full((2, 7, 3), 42))
    # Without a batch, and a batch of batches.
    np.testing.assert_array_equal(one(x[0]), np.full((2, 3), 6))
    np.testing.assert_array_equal(jax.vmap(jax.vmap(one))(_zeros(5, 2, 1, 3)), np.full((5, 2, 1, 3), 30))


def test_operands_that_elements_share_are_repeated(sizes):
    two = callbox.jax.op(sizes.two)
    found = jax.jit(jax.vmap(two, (0, None)))(_zeros(7, 2, 3), _zeros(2, 3))
    np.testing.assert_array_equal(found, np.full((7, 2, 3), 42))


def test_other_operands_that_differ_are_a_loop(sizes):
    weighted = callbox.jax.op(sizes.weighted)
    for axes, x, w in [((0, 0), _zeros(7, 2, 3), _zeros(7, 3)), ((None, 0), _zeros(2, 3), _zeros(7, 3))]:
        np.testing.assert_array_equal(jax.jit(jax.vmap(weighted, axes))(x, w), np.full((7, 2, 3), 6))
    plain = callbox.jax.op(sizes.plain)
    found = jax.jit(jax.vmap(plain, (0, None)))(_zeros(7, 2, 3), _zeros(3))
    np.testing.assert_array_equal(found, np.full((7, 2, 3), 6))


def test_a_failure_is_that_of_all_elements(sizes):
    fails = callbox.jax.op(sizes.fails, on_error="status")
    _, statuses = jax.jit(jax.vmap(fails))(_zeros(7, 2, 3))
    np.testing.assert_array_equal(statuses, np.full(7, 9))


def test_shards_are_cut_along_the_batch(sizes):
    mesh = Mesh(np.array(jax.devices()), ("i",))
    x = jax.device_put(_zeros(8, 3), NamedSharding(mesh, PartitionSpec("i")))
    one, two = callbox.jax.op(sizes.one), callbox.jax.op(sizes.two)
    found = jax.jit(one)(x)
    assert found.sharding.spec[0] == "i"
    np.testing.assert_array_equal(found, np.full((8, 3), 6))
    assert "all-gather" not in jax.jit(one).lower(x).compile().as_text()
    batches = jax.device_put(_zeros(8, 2, 3), NamedSharding(mesh, PartitionSpec("i")))
    found = jax.jit(jax.vmap(two, (0, None)))(batches, _zeros(2, 3))
    np.testing.assert_array_equal(found, np.full((8, 2, 3), 12))


def test_a_linear_layer_is_differentiated_and_batched(load):
    linear = callbox.jax.op(load("layers").linear)
    rng = np.random.default_rng(0)

    def quarters(*shape):
        return jnp.asarray(rng.integers(-8, 9, shape) / 4, jnp.float32)

    x, w, b = quarters(5, 3, 4), quarters(4, 2), quarters(2)

    def reference(x, w, b):
        return x @ w + b

    np.testing.assert_array_equal(jax.vmap(linear, (0, None, None))(x, w, b), reference(x, w, b))

    def loss(f):
        return lambda x, w, b: (f(x, w, b) ** 2).sum()

    def each(f):
        return jax.jit(jax.vmap(jax.grad(loss(f), (0, 1, 2)), (0, None, None)))(x, w, b)

    for found, expected in zip(each(linear), each(reference), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_whole_batch_is_no_vmap_method(sizes):
    with pytest.raises(ValueError, match="declares the trait batched"):
        callbox.jax.op(sizes.one, vmap_method="broadcast_all")
