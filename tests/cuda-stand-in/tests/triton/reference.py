"""Computes what the Triton kernels must give, with NumPy in double precision: reference.py

Writes NAME.f32 beside this file: the results of the launches in `tests/ptx_triton.rs`, which makes
the same operands, as F32 in little-endian order.
"""

import math
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent


def operand(seed, *shape):
    """Multiples of 1/64 from -1/2 to 1/2, which F16 and F32 hold exactly."""
    index = np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(1000003 * seed)
    hashed = (index * np.uint64(2654435761)) % np.uint64(1 << 32)
    return ((hashed >> np.uint64(26)).astype(np.float64) / 64 - 0.5).reshape(shape)


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def attention(q, k, v, scale, causal):
    scores = scale * np.einsum("hid,hjd->hij", q, k)
    if causal:
        above = np.triu(np.ones(scores.shape[1:], dtype=bool), 1)
        scores = np.where(above, -np.inf, scores)
    return np.einsum("hij,hjd->hid", softmax(scores), v)


def layer_norm(x, weight, bias, epsilon):
    mean = x.mean(axis=1)
    scale = 1 / np.sqrt(x.var(axis=1) + epsilon)
    return (x - mean[:, None]) * scale[:, None] * weight + bias, mean, scale


def layer_norm_gradients(dy, x, weight, epsilon):
    """By the chain rule through the mean and the variance, step by step."""
    columns = x.shape[1]
    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred**2).mean(axis=1, keepdims=True)
    scale = (variance + epsilon) ** -0.5
    dnormal = dy * weight
    dscale = (dnormal * centred).sum(axis=1, keepdims=True)
    dvariance = dscale * -0.5 * (variance + epsilon) ** -1.5
    dcentred = dnormal * scale + dvariance * 2 * centred / columns
    dx = dcentred - dcentred.mean(axis=1, keepdims=True)
    return dx, (dy * centred * scale).sum(axis=0), dy.sum(axis=0)


def results():
    yield "add", operand(1, 1500) + operand(2, 1500)
    yield "softmax", softmax(8 * operand(1, 3, 700))
    x = operand(1, 1500) * 8
    yield "gelu", np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])
    x, weight = operand(1, 3, 1100), operand(2, 1100)
    yield "rms_norm", x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    x, weight, bias, dy = operand(1, 37, 300), operand(2, 300), operand(3, 300), operand(4, 37, 300)
    y, mean, scale = layer_norm(x, weight, bias, 1e-5)
    yield "layer_norm_y", y
    yield "layer_norm_mean", mean
    yield "layer_norm_scale", scale
    dx, dweight, dbias = layer_norm_gradients(dy, x, weight, 1e-5)
    yield "layer_norm_dx", dx
    yield "layer_norm_dweight", dweight
    yield "layer_norm_dbias", dbias
    yield "matmul", operand(1, 70, 48) @ operand(2, 48, 80)
    q, k, v = (operand(seed, 2, 100, 64) for seed in (1, 2, 3))
    yield "attention", attention(q, k, v, 0.125, False)
    yield "causal_attention", attention(q, k, v, 0.125, True)
    # Numbers from -32 to 31, of which those from 0 to 19 are counted.
    numbers = (operand(1, 1000) * 64).astype(int)
    yield "histogram", np.array([(numbers == bin).sum() for bin in range(20)])


for name, values in results():
    (HERE / f"{name}.f32").write_bytes(values.astype("<f4").tobytes())
