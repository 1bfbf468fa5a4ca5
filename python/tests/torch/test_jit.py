"""Jitted kernels as operators of PyTorch, where Numba is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import callbox
import callbox.torch
from callbox.types import f32

pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path_factory.getbasetemp() / "jit-cache"))


@callbox.jit(elementwise=True)
def cube_grad(x: f32, dy: f32) -> f32:
    return 3 * x * x * dy


@callbox.jit(elementwise=True, vjp=cube_grad)
def cube(x: f32) -> f32:
    return x * x * x


@callbox.jit(rows=True)
def sums_of_pairs(x: f32["..", 2 * n], y: f32["..", n]):
    for r in range(x.shape[0]):
        for i in range(y.shape[1]):
            y[r, i] = x[r, 2 * i] + x[r, 2 * i + 1]


def test_values_and_gradients():
    op = callbox.torch.op(cube)
    x = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()
    y = op(x)
    np.testing.assert_allclose(y.detach(), x.detach() ** 3, rtol=1e-6)
    y.sum().backward()
    np.testing.assert_allclose(x.grad, 3 * x.detach() ** 2, rtol=1e-6)
    np.testing.assert_allclose(torch.vmap(op)(x.detach()), x.detach() ** 3, rtol=1e-6)


def test_computed_dimensions():
    x = torch.arange(24.0).reshape(2, 2, 6)
    assert torch.equal(callbox.torch.op(sums_of_pairs)(x), x[..., ::2] + x[..., 1::2])
