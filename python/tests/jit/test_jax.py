"""Jitted kernels as ops of JAX."""

from __future__ import annotations

import numpy as np
import pytest

import callbox
from callbox.types import f32

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
callbox_jax = pytest.importorskip("callbox.jax")


@callbox.jit(elementwise=True)
def cube_grad(x: f32, dy: f32) -> f32:
    return 3 * x * x * dy


@callbox.jit(elementwise=True, vjp=cube_grad)
def cube(x: f32) -> f32:
    return x * x * x


@callbox.jit
def scale_grad(x: f32[m, n], weight: f32[n], dy: f32[m, n], dx: f32[m, n], dweight: f32[n]):
    for i in range(weight.size):
        dweight[i] = 0
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            dx[r, i] = dy[r, i] * weight[i]
            dweight[i] += dy[r, i] * x[r, i]


@callbox.jit(rows=True, vjp=scale_grad)
def scale(x: f32["..", n], weight: f32[n], y: f32["..", n]):
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            y[r, i] = x[r, i] * weight[i]


def test_a_derivative_of_two_operands():
    op = callbox_jax.op(scale)
    x, weight = jnp.linspace(-2, 2, 12).reshape(3, 4), jnp.arange(4.0)
    found = jax.jit(jax.grad(lambda *a: jnp.sum(jnp.sin(op(*a))), argnums=(0, 1)))(x, weight)
    expected = jax.grad(lambda x, w: jnp.sum(jnp.sin(x * w)), argnums=(0, 1))(x, weight)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_computed_dimensions():
    @callbox.jit(rows=True)
    def spread_grad(x: f32["..", n], dy: f32["..", 2 * n], dx: f32["..", n]):
        for r in range(dx.shape[0]):
            for i in range(dx.shape[1]):
                dx[r, i] = dy[r, 2 * i] + 3 * dy[r, 2 * i + 1]

    @callbox.jit(rows=True, vjp=spread_grad)
    def spread(x: f32["..", n], y: f32["..", 2 * n]):
        for r in range(x.shape[0]):
            for i in range(x.shape[1]):
                y[r, 2 * i] = x[r, i]
                y[r, 2 * i + 1] = 3 * x[r, i]

    op = callbox_jax.op(spread)
    x = jnp.linspace(-2, 2, 12).reshape(3, 4)
    expected = jnp.stack([x, 3 * x], -1).reshape(3, 8)
    np.testing.assert_allclose(jax.jit(jax.vmap(op))(x), expected)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: jnp.sum(op(x) ** 2)))(x), 20 * x, rtol=1e-6)


def test_without_a_derivative_the_gradient_is_refused():
    op = callbox_jax.op(cube_grad)
    x = jnp.linspace(-2, 2, 12)
    with pytest.raises(Exception, match="vjp|derivative|differentiat"):
        jax.grad(lambda x: jnp.sum(op(x, x)))(x)


def test_jit_vmap_and_grad():
    op = callbox_jax.op(cube)
    x = jnp.linspace(-2, 2, 12).reshape(3, 4)
    np.testing.assert_allclose(jax.jit(op)(x), x**3, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(op)(x), x**3, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(op(x)))(x), 3 * x**2, rtol=1e-6)
    np.testing.assert_allclose(callbox_jax.call(cube, x), x**3, rtol=1e-6)
