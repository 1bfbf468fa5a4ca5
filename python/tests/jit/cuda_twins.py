"""Calls CUDA twins of jitted kernels on the stand-in for the driver: a program of test_cuda.py.

CALLBOX_CUDA_STAND_IN is the stand-in's path. It is loaded before the package, which looks for
libcuda.so by name.
"""

import ctypes
import os

ctypes.CDLL(os.environ["CALLBOX_CUDA_STAND_IN"])

import numpy as np  # noqa: E402

import callbox  # noqa: E402
from callbox import math  # noqa: E402
from callbox.types import f32, f64, i32, pred, u8  # noqa: E402

TABLE = np.array([1.0, 2.0, 3.0, 4.0], dtype=np.float32)


@callbox.jit(elementwise=True, cuda=True)
def gelu(x: f32, *, half: f32 = 0.5) -> f32:
    return half * x * (1 + math.erf(x * 0.7071067811865476))


@callbox.jit(elementwise=True, cuda=True)
def every_function(x: f32) -> tuple[f32, f32]:
    waves = math.sin(x) * math.cos(x) + math.tanh(x) - math.sigmoid(x)
    roots = math.sqrt(math.exp(x)) + math.rsqrt(math.expm1(x * x) + 1) + math.log(math.log1p(x * x) + 2)
    rounded = math.floor(x) + math.ceil(x) * math.trunc(x) + math.copysign(math.rint(x), x)
    return waves + roots, rounded


@callbox.jit(elementwise=True, cuda=True)
def chosen(a: i32, b: u8, *, wide: f64, negated: pred = False, table: i32 = -3) -> f64:
    value = a * wide + b + table
    return -value if negated else value


@callbox.jit(rows=True, cuda=True)
def rms_norm(x: f32["..", "n"], weight: f32["n"], y: f32["..", "n"], *, eps: f32 = 1e-6):
    """Divides each row by its root mean square."""
    if eps < 0:
        raise ValueError("eps must not be negative")
    rows, columns = x.shape
    for r in range(rows):
        total = 0.0
        for i in range(columns):
            total += x[r, i] * x[r, i]
        scale = 1 / math.sqrt(total / columns + eps)
        for i in range(columns):
            y[r, i] = x[r, i] * scale * weight[i]


@callbox.jit(rows=True, cuda=True)
def moments(x: f32["..", "m", "n"], y: f32["..", "n"], total: f32[".."]):
    for r in range(x.shape[0]):
        total[r] = 0
        for i in range(x.shape[2]):
            y[r, i] = TABLE[i % 4]
            for j in range(x.shape[1]):
                y[r, i] += x[r, j, i]
            total[r] += y[r, i]


@callbox.jit(rows=True, cuda=True)
def pairs(x: f32["..", "2*n"], y: f32["..", "n"]):
    for r in range(x.shape[0]):
        for i in range(y.shape[1]):
            y[r, i] = x[r, 2 * i] - x[r, 2 * i + 1]


@callbox.jit(rows=True, cuda=True)
def beyond(x: f32["..", "n"], y: f32["..", "n"]):
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            y[r, i] = x[r, i + 1_000_000]


def same(kernel, *arrays, **attributes):
    """Compares the bits of both platforms."""
    found = kernel(*arrays, platform="CUDA", **attributes)
    expected = kernel(*arrays, **attributes)
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def fails(code, message, kernel, *arrays, **attributes):
    try:
        kernel(*arrays, platform="CUDA", **attributes)
    except callbox.CallError as error:
        assert error.code == code and message in error.message, error
    else:
        raise AssertionError(f"expected {code}")


x = np.random.default_rng(0).normal(size=(3, 5, 33)).astype(np.float32)
for kernel in (gelu, every_function, chosen, rms_norm, moments, pairs, beyond):
    assert kernel.target.has_native, kernel
same(gelu, x)
same(gelu, x, half=2)
same(gelu, np.float32(1.5))
same(gelu, np.zeros((0, 3), np.float32))
same(every_function, np.float32([0.0, -0.0, 1e-40, 0.3, -3.5, 40.0, 1e6, np.inf, -np.inf, np.nan]))
a, b = np.arange(-7, 7, dtype=np.int32), np.arange(14, dtype=np.uint8) * 18
same(chosen, a, b, wide=0.1)
same(chosen, a, b, wide=0.1, negated=True, table=7)
same(rms_norm, x, x[0, 0])
same(rms_norm, x[:, :, :1].copy(), np.ones(1, np.float32), eps=0.5)
same(rms_norm, np.zeros((0, 33), np.float32), x[0, 0])
same(moments, x)
same(moments, x[0])
same(moments, np.zeros((2, 3, 0), np.float32))
same(pairs, x[:, :, :32].copy())
same(pairs, np.zeros((2, 0), np.float32))
# More rows than a block has threads.
same(rms_norm, np.arange(600, dtype=np.float32).reshape(300, 2), np.float32([1, 2]))
# A failure ends its call only.
fails("ABORTED", "rms_norm.ptx", rms_norm, x, x[0, 0], eps=-1)
fails("OUT_OF_RANGE", "operand 0", beyond, x)
same(rms_norm, x, x[0, 0])
print("passed")
