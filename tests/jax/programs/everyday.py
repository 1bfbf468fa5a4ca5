"""Sixty functions as users write them, from models, signals, statistics and simulations."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.scipy import linalg, special

from .registry import Subject, f32, lattice, s32, u32, wave

SUBJECT = Subject("everyday")
add = SUBJECT.add

A = wave((4, 6))
B = wave((6, 3), scale=2.0)
ROW = wave((9,), scale=3.0)
SQUARE = wave((4, 4)) + 4 * np.eye(4, dtype=np.float32)
IMAGE = lattice((1, 6, 6, 2))
NOTE = "The bound for small elements is at most two ULPs of the largest one."


def convolve(x, w, strides, padding, **options):
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=layout, **options)


def rotate(x, angles):
    a, b = x[..., :3], x[..., 3:]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


# Models.
add("everyday_embedding", lambda table, ids: table[ids].sum(1), lattice((7, 3)), s32([[0, 6], [3, 3]]), ulps=4)
add(
    "cross_entropy",
    lambda x, y: -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean(),
    A,
    s32(0, 5, 2, 1),
    ulps=4,
)
add("gelu_tanh", lambda x: jax.nn.gelu(x), ROW, ulps=64)
add("swish_gate", lambda x: x[:, :3] * jax.nn.silu(x[:, 3:]), A, ulps=4)
add("batch_norm", lambda x: (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-3), A, ulps=8)
add("group_norm", lambda x: jax.nn.standardize(x.reshape(4, 2, 3), axis=-1).reshape(4, 6) + 2, A, ulps=16)
add(
    "rotary",
    rotate,
    A,
    wave((4, 3)),
    ulps=8,
)
add("grouped_query", lambda q, k: jnp.einsum("hgd,hsd->hgs", q, k), wave((2, 3, 4)), wave((2, 5, 4)), ulps=16)
add("mask_causally", lambda x: jnp.where(jnp.tril(jnp.ones((4, 4), bool)), x, -1e9), SQUARE, ulps=4)
add("max_pool", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), IMAGE, ulps=4)
add("mean_pool", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9, IMAGE, ulps=4)
add(
    "convolve_image",
    lambda x, w: convolve(x, w, (2, 2), "SAME"),
    IMAGE,
    lattice((3, 3, 2, 4)),
    ulps=4,
)
add(
    "convolve_depthwise",
    lambda x, w: convolve(x, w, (1, 1), "VALID", feature_group_count=2),
    IMAGE,
    lattice((2, 2, 1, 2)),
    ulps=4,
)
add("pixel_shuffle", lambda x: x.reshape(3, 3, 2, 2).transpose(0, 2, 1, 3).reshape(6, 6), lattice((3, 3, 4)), ulps=4)
add("top_choices", lambda x: lax.top_k(jax.nn.softmax(x), 2), A, ulps=4)
add("one_hot_smoothed", lambda y: jax.nn.one_hot(y, 5) * 0.875 + 0.025, s32(0, 4, 2), ulps=4)
add("recurrent_cell", lambda x, h, w: jnp.tanh(jnp.concatenate([x, h], -1) @ w), wave((2, 3)), wave((2, 3)), B, ulps=4)
add("scan_recurrence", lambda xs: lax.scan(lambda h, x: (jnp.tanh(h * 0.5 + x), h), jnp.zeros(6), xs), A, ulps=8)
add("momentum_step", lambda p, m, g: (p - 0.01 * (0.9 * m + g), 0.9 * m + g), ROW, ROW, ROW * 0.5, ulps=4)
add(
    "everyday_adam_step",
    lambda p, m, v, g: p - 0.001 * (0.9 * m + 0.1 * g) / (jnp.sqrt(0.99 * v + 0.01 * g * g) + 1e-8),
    ROW,
    ROW,
    ROW * ROW,
    ROW * 0.25,
    ulps=4,
)
add("clip_by_norm", lambda g: g * jnp.minimum(1.0, 1.0 / jnp.linalg.norm(g)), ROW, ulps=4)
add("huber_gradient", lambda x: jax.grad(lambda x: jnp.where(abs(x) < 1, x * x / 2, abs(x) - .5).sum())(x), ROW, ulps=4)
add(
    "everyday_mixed_precision",
    lambda x, y: x.astype(jnp.bfloat16) @ y.astype(jnp.bfloat16),
    lattice((4, 6)),
    lattice((6, 3)),
    ulps=2,
)
add("quantize", lambda x: jnp.clip(jnp.round(x / 0.125), -128, 127).astype(jnp.int8), A)
# Linear algebra.
add(
    "least_squares",
    lambda a, b: linalg.cho_solve(linalg.cho_factor(a.T @ a + jnp.eye(3), lower=True), a.T @ b),
    wave((6, 3)),
    wave((6,)),
    ulps=4,
)
add("solve_triangle", lambda a, b: linalg.solve_triangular(jnp.tril(a), b, lower=True), SQUARE, wave((4, 2)), ulps=8)
add("solve_system", lambda a, b: jnp.linalg.solve(a, b), SQUARE, wave((4,)), ulps=4)
add("determinant", lambda a: jnp.linalg.det(a), SQUARE, ulps=4)
add("invert", lambda a: jnp.linalg.inv(a), SQUARE, ulps=16, note=NOTE)
add("factor_qr", lambda a: jnp.abs(jnp.linalg.qr(a)[1]), SQUARE, ulps=16)
add(
    "power_iteration",
    lambda a: lax.fori_loop(0, 5, lambda _, v: (a @ v) / jnp.linalg.norm(a @ v), jnp.ones(4)),
    SQUARE,
    ulps=64,
    note=NOTE,
)
add("gram_kernel", lambda x: jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1)), A, ulps=8)
add("kronecker", lambda x, y: jnp.kron(x, y), lattice((2, 2)), lattice((2, 3)), ulps=4)
add("covariance", lambda x: jnp.cov(x), A, ulps=4)
add("outer_update", lambda a, x, y: a + jnp.outer(x, y), SQUARE, wave((4,)), wave((4,)), ulps=4)
add("everyday_matrix_power", lambda a: jnp.linalg.matrix_power(a, 3), SQUARE, ulps=16)
# Signals and statistics.
add("everyday_spectrum", lambda x: jnp.abs(jnp.fft.rfft(x)), wave((16,)), ulps=4)
add(
    "filter_by_fft",
    lambda x, k: jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(k, 16), 16),
    wave((16,)),
    wave((4,)),
    ulps=8,
)
add("convolve_signal", lambda x, k: jnp.convolve(x, k, "same"), ROW, f32(0.25, 0.5, 0.25), ulps=8)
add("window_hann", lambda x: x * (0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(9) / 9)), ROW, ulps=16)
add("moving_average", lambda x: (jnp.cumsum(x)[3:] - jnp.cumsum(x)[:-3]) / 3, lattice((9,)), ulps=4)
add("interpolate", lambda x: jnp.interp(x, jnp.arange(5.0), jnp.arange(5.0) ** 2), ROW, ulps=4)
add("histogram", lambda x: jnp.zeros(4, jnp.int32).at[jnp.clip(x.astype(jnp.int32), 0, 3)].add(1), ROW)
add("median", lambda x: jnp.median(x), ROW, ulps=4)
add("ranks", lambda x: jnp.argsort(jnp.argsort(x)), ROW)
add("quantiles", lambda x: jnp.quantile(x, f32(0.25, 0.75)), ROW, ulps=4)
add("log_likelihood", lambda x: (-0.5 * x * x - 0.5 * jnp.log(2 * jnp.pi)).sum(), ROW, ulps=4)
add("logsumexp_rows", lambda x: special.logsumexp(x, axis=1), A, ulps=4)
add("normal_quantiles", lambda x: special.erf(x / jnp.sqrt(2.0)) * 0.5 + 0.5, ROW, ulps=16)
add("segment_sums", lambda x, s: jax.ops.segment_sum(x, s, 3), lattice((6,)), s32(0, 2, 2, 1, 0, 2), ulps=4)
add("dice", lambda key: jax.random.randint(key, (6,), 1, 7, jnp.int32), u32(0, 42))
add("shuffle", lambda key: jax.random.permutation(key, 8), u32(0, 7))
# Simulations and data.
add("heat_step", lambda u: u + 0.125 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)), lattice((9,)), ulps=4)
add("runge_kutta", lambda y: lax.fori_loop(0, 4, lambda _, y: y + 0.1 * (-(y + 0.05 * -y)), y), ROW, ulps=4)
add(
    "forces",
    lambda p: jax.grad(lambda p: (1 / (((p[:, None] - p[None]) ** 2).sum(-1) + 1)).sum())(p),
    wave((4, 2)),
    ulps=4,
)
add(
    "newton_root",
    lambda x: lax.while_loop(lambda s: jnp.abs(s * s - x) > 1e-3, lambda s: 0.5 * (s + x / s), x),
    f32(7.0)[0] if f32(7.0).ndim else f32(7.0),
    ulps=4,
)
add(
    "game_of_life",
    lambda g: (sum(jnp.roll(g, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j) | g) == 3,
    s32([[0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]),
)
add("sort_by_key", lambda k, v: lax.sort((k, v), num_keys=1), s32(3, 1, 2, 1), f32(0.0, 1.0, 2.0, 3.0), ulps=4)
add("replace_rows", lambda x, i, y: x.at[i].set(y), lattice((5, 3)), s32(4, 0), lattice((2, 3)), ulps=4)
add("hessian_diagonal", lambda x: jnp.diagonal(jax.hessian(lambda x: (jnp.sin(x) * x).sum())(x)), wave((4,)), ulps=4)
