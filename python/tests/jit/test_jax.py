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


def test_jit_vmap_and_grad():
    op = callbox_jax.op(cube)
    x = jnp.linspace(-2, 2, 12).reshape(3, 4)
    np.testing.assert_allclose(jax.jit(op)(x), x**3, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(op)(x), x**3, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(op(x)))(x), 3 * x**2, rtol=1e-6)
    np.testing.assert_allclose(callbox_jax.call(cube, x), x**3, rtol=1e-6)
