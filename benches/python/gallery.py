"""Measures kernels of the gallery, each beside the operation that a Python programmer has for it.

A row's two sides take NumPy arrays and return them, take turns in one run, and are compared
before they are measured. The baseline is XLA's program of the formula, or the operation of
NumPy or SciPy. Both sides have the same processors.

Left out are kernels for which none of the three has an operation: edit distances, byte pairs,
non-maximum suppression, ROI align, the CTC loss, geohashes, Bloom filters, points in polygons,
and files of images.

Prints a table and the geometric mean of the ratios. `cargo xtask bench --python` runs it.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.signal
import scipy.sparse
import scipy.special

#: The highest geometric mean of the ratios that is the goal.
GOAL = 1.3

Call = Callable[[], Any]


class Row(NamedTuple):
    """A kernel's call and the baseline's, with the tolerance that their results may differ by."""

    kernel: Call
    baseline: Call
    tolerance: float = 1e-5


class Gallery:
    """The modules, loaded when a row first needs them, and the operands."""

    def __init__(self, guests: Path, threads: int, small: bool) -> None:
        import callbox

        self.guests = guests
        self.threads = threads
        self.small = small
        self.host = callbox.Host()
        self.module = functools.cache(lambda name: self.host.load(guests / f"{name}.wasm"))
        self.random = np.random.default_rng(1)

    def call(self, name: str, *operands: np.ndarray, results: Any = None, **attributes: Any) -> Call:
        """A call of the target `module.target` in as many threads as the baseline has."""
        module, target = name.split(".")
        function = self.module(module)[target]
        return lambda: function(*operands, threads=self.threads, result_shape_dtypes=results, **attributes)

    def rows(self, most: int) -> int:
        """A number of rows, few where only the values matter."""
        return min(most, 16) if self.small else most

    def normal(self, *shape: int) -> np.ndarray:
        return self.random.normal(size=shape).astype(np.float32)

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        return self.random.uniform(low, high, shape)

    def integers(self, low: int, high: int, *shape: int, dtype: type = np.int32) -> np.ndarray:
        return self.random.integers(low, high, shape).astype(dtype)


def xla(function: Callable[..., Any], *operands: np.ndarray) -> Call:
    """The function compiled by XLA, from NumPy's arrays to NumPy's arrays."""
    import jax

    jitted = jax.jit(function)
    return lambda: jax.tree.map(np.asarray, jitted(*operands))


def layers(gallery: Gallery) -> dict[str, Row]:
    import jax
    import jax.numpy as jnp

    n = gallery.rows(4096)
    x, up, labels = gallery.normal(n, 1024), gallery.normal(n, 1024), gallery.integers(0, 1024, n)
    weight, bias, mask = gallery.normal(1024), gallery.normal(1024), gallery.normal(n, 1024) > 0
    w = gallery.normal(1024, 512) / 32
    q = gallery.normal(8, gallery.rows(512), 64)
    heads, positions = gallery.normal(n, 8, 64), gallery.integers(0, 4096, n)

    def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weight + bias

    def rms_norm(x: Any, weight: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight

    def rotary(x: Any, positions: Any) -> Any:
        angles = positions[:, None, None] * 10000.0 ** (-jnp.arange(32) / 32)
        a, b = x[..., :32], x[..., 32:]
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(q: Any) -> Any:
        scores = jnp.where(jnp.tri(q.shape[1], dtype=bool), q @ q.transpose(0, 2, 1) / 8, -jnp.inf)
        return jax.nn.softmax(scores, -1) @ q

    def cross_entropy(x: Any, labels: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1)[:, 0]

    call = gallery.call
    return {
        "gelu": Row(call("layers.gelu", x), xla(lambda x: jax.nn.gelu(x, approximate=False), x)),
        "silu": Row(call("layers.silu", x), xla(jax.nn.silu, x)),
        "swiglu": Row(call("layers.swiglu", x, up), xla(lambda x, up: jax.nn.silu(x) * up, x, up)),
        "linear": Row(call("layers.linear", x, w, bias[:512]), xla(lambda x, w, b: x @ w + b, x, w, bias[:512]), 1e-3),
        "layer_norm": Row(call("layers.layer_norm", x, weight, bias, eps=1e-5), xla(layer_norm, x, weight, bias), 1e-4),
        "rms_norm": Row(call("rms_norm.rms_norm", x, weight, eps=1e-5), xla(rms_norm, x, weight), 1e-4),
        "softmax": Row(call("softmax.softmax", x), xla(jax.nn.softmax, x)),
        "masked_softmax": Row(
            call("layers.masked_softmax", x, mask), xla(lambda x, m: jax.nn.softmax(x, where=m), x, mask)
        ),
        "log_softmax": Row(call("layers.log_softmax", x), xla(jax.nn.log_softmax, x), 1e-4),
        "cross_entropy": Row(call("layers.cross_entropy", x, labels, ignored=-1), xla(cross_entropy, x, labels), 1e-4),
        # XLA's powers and sines of large angles are less accurate.
        "rotary": Row(call("layers.rotary", heads, positions, base=1e4), xla(rotary, heads, positions), 1e-2),
        "attention": Row(call("layers.attention", q, q, q, scale=0.125, causal=True), xla(attention, q), 1e-3),
    }


def products(gallery: Gallery) -> dict[str, Row]:
    import jax
    import jax.numpy as jnp

    m, k, n, groups = gallery.rows(128), 1024, 1024, 8
    xi, wi = gallery.integers(-127, 128, m, k, dtype=np.int8), gallery.integers(-127, 128, n, k, dtype=np.int8)
    xs, ws = gallery.normal(m), gallery.normal(n)
    x, packed = gallery.normal(m, k), gallery.integers(0, 256, n, k // 2, dtype=np.uint8)
    scale, zero = gallery.normal(n, groups), gallery.uniform(0, 15, n, groups).astype(np.float32)

    def int8(x: Any, xs: Any, w: Any, ws: Any) -> Any:
        sums = jax.lax.dot_general(x, w, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)
        return xs[:, None] * ws * sums

    def int4(x: Any, packed: Any, scale: Any, zero: Any) -> Any:
        q = jnp.stack([packed & 15, packed >> 4], -1).reshape(n, groups, k // groups)
        return x @ (scale[..., None] * (q - zero[..., None])).reshape(n, k).T

    call = gallery.call
    return {
        "matmul_int8": Row(call("quantised.matmul_int8", xi, xs, wi, ws), xla(int8, xi, xs, wi, ws)),
        "matmul_int4": Row(
            call("quantised.matmul_int4", x, packed, scale, zero), xla(int4, x, packed, scale, zero), 1e-1
        ),
    }


def vision(gallery: Gallery) -> dict[str, Row]:
    import jax
    import jax.numpy as jnp

    image, colours = gallery.normal(1, 3, 256, 256), gallery.uniform(0, 1, gallery.rows(1 << 18), 3).astype(np.float32)
    grid = gallery.uniform(-1, 1, 1, 256, 256, 2).astype(np.float32)
    scores, logs = gallery.normal(8), gallery.normal(8, 32768)

    def resize(x: Any) -> Any:
        return jax.image.resize(x, (1, 3, 384, 384), "linear", antialias=False)

    def grid_sample(x: Any, grid: Any) -> Any:
        places = [(grid[0, ..., 1] + 1) * 128 - 0.5, (grid[0, ..., 0] + 1) * 128 - 0.5]
        sample = functools.partial(jax.scipy.ndimage.map_coordinates, order=1, cval=0.0)
        return jnp.stack([sample(channel, places) for channel in x[0]])[None]

    def to_linear(x: Any) -> Any:
        return jnp.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)

    def beam_step(scores: Any, logs: Any) -> Any:
        best, order = jax.lax.top_k((scores[:, None] + logs).ravel(), 8)
        return best, order // logs.shape[1], order % logs.shape[1]

    results = [("float32", (8,)), ("int32", (8,)), ("int32", (8,))]
    call = gallery.call
    return {
        "resize": Row(call("vision.resize", image, results=("float32", (1, 3, 384, 384))), xla(resize, image), 1e-4),
        "grid_sample": Row(call("vision.grid_sample", image, grid), xla(grid_sample, image, grid), 1e-3),
        "srgb_to_linear": Row(call("vision.srgb_to_linear", colours), xla(to_linear, colours)),
        "beam_step": Row(call("sequences.beam_step", scores, logs, results=results), xla(beam_step, scores, logs)),
    }


def tables(gallery: Gallery) -> dict[str, Row]:
    n = gallery.rows(1 << 20)
    counted, values = gallery.integers(0, 1000, n), gallery.normal(n)
    rows, segments = gallery.normal(n // 16, 16), gallery.integers(0, 1000, n // 16)
    sparse = scipy.sparse.random(4096, 4096, 0.01, "csr", dtype=np.float32, random_state=1)
    vector = gallery.normal(4096)
    places = [gallery.uniform(-90, 90, n), gallery.uniform(-180, 180, n)] * 2
    places[2], places[3] = places[2][::-1].copy(), places[3][::-1].copy()
    market = [gallery.uniform(low, high, n) for low, high in [(50, 150), (50, 150), (0.1, 2), (0.1, 0.5)]]
    states, matrix = gallery.uniform(-1, 1, gallery.rows(4096), 16), gallery.uniform(-1, 1, 16, 16)

    def segment_sum() -> np.ndarray:
        sums = np.zeros((1000, 16), np.float32)
        np.add.at(sums, segments, rows)
        return sums

    def haversine() -> np.ndarray:
        latitude, longitude, to_latitude, to_longitude = map(np.radians, places)
        a, b = np.sin((to_latitude - latitude) / 2), np.sin((to_longitude - longitude) / 2)
        squared = a * a + np.cos(latitude) * np.cos(to_latitude) * b * b
        return 2 * 6371.0 * np.arcsin(np.sqrt(squared))

    def black_scholes() -> np.ndarray:
        spot, strike, years, volatility = market
        deviation = volatility * np.sqrt(years)
        d = (np.log(spot / strike) + 0.03 * years) / deviation + deviation / 2
        discounted = strike * np.exp(-0.03 * years)
        return spot * scipy.special.ndtr(d) - discounted * scipy.special.ndtr(d - deviation)

    def linear_ode() -> np.ndarray:
        x, step = states, 0.01
        for _ in range(100):
            a = x @ matrix.T
            b = (x + step / 2 * a) @ matrix.T
            c = (x + step / 2 * b) @ matrix.T
            x = x + step / 6 * (a + 2 * b + 2 * c + (x + step * c) @ matrix.T)
        return x

    csr = (sparse.data, sparse.indices.astype(np.int32), sparse.indptr.astype(np.int32), vector)
    call = gallery.call
    return {
        "bincount": Row(
            call("tables.bincount", counted, results=("int32", (1000,))), lambda: np.bincount(counted, minlength=1000)
        ),
        "histogram": Row(
            call("tables.histogram", values, low=-4.0, high=4.0, results=("int32", (64,))),
            lambda: np.histogram(values, 64, (-4, 4))[0],
        ),
        "segment_sum": Row(
            call("tables.segment_sum", rows, segments, results=("float32", (1000, 16))), segment_sum, 1e-3
        ),
        "csr_matvec": Row(call("tables.csr_matvec", *csr, results=("float32", (4096,))), lambda: sparse @ vector, 1e-4),
        "haversine": Row(call("tables.haversine", *places, radius=6371.0), haversine, 1e-6),
        "black_scholes": Row(call("tables.black_scholes", *market, rate=0.03, put=False), black_scholes, 1e-9),
        "linear_ode": Row(call("tables.linear_ode", states, matrix, step=0.01, steps=100), linear_ode, 1e-9),
    }


GROUPS = (layers, products, vision, tables)


def compare(name: str, row: Row) -> None:
    """Checks that both sides of a row have the same values."""
    ours, theirs = row.kernel(), row.baseline()
    both = zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]
    for mine, other in both:
        np.testing.assert_allclose(mine, other, rtol=row.tolerance, atol=row.tolerance, err_msg=name)


def measure(row: Row, seconds: float) -> tuple[float, float]:
    """The median times of a kernel and its baseline, which take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times[0]) < 5:
        for call, measured in zip((row.kernel, row.baseline), times, strict=True):
            begun = time.perf_counter()
            call()
            measured.append(time.perf_counter() - begun)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guests", type=Path, required=True, help="the folder of the modules")
    parser.add_argument("--threads", type=int, default=2, help="the processors of both sides")
    parser.add_argument("--seconds", type=float, default=1.0, help="the time for each row")
    parser.add_argument("--only", default="", help="measures the rows whose name has this text")
    parser.add_argument("--check", action="store_true", help="compares the values of small calls, and measures none")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        # Before JAX is imported, which starts as many threads as there are processors.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    gallery = Gallery(arguments.guests, arguments.threads, arguments.check)
    rows = {name: row for group in GROUPS for name, row in group(gallery).items() if arguments.only in name}
    for name, row in rows.items():
        compare(name, row)
    print(f"{len(rows)} kernels agree with their baselines")
    if arguments.check or not rows:
        return
    print("\n| kernel | callbox | baseline | ratio |\n| --- | --- | --- | --- |")
    measured = {}
    for name, row in rows.items():
        ours, theirs = measured[name] = measure(row, arguments.seconds)
        print(f"| {name} | {ours * 1e3:.3f} ms | {theirs * 1e3:.3f} ms | {ours / theirs:.2f}x |", flush=True)
    ratios = [ours / theirs for ours, theirs in measured.values()]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"\nGeometric mean: {mean:.2f}x; the goal is at most {GOAL}x.")
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
