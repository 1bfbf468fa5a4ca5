"""Measures callbox from Python, each figure beside its baseline, in one run.

Prints the table of benches/README.md. Run it with `cargo xtask bench --python`, which
builds what it needs.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import functools
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import callbox
import callbox.jax
import jax
import jax.numpy as jnp
import numpy as np

KIB = 1024
LOOPS = 10_000


def alternately(*functions: Callable[[], object], seconds: float, least: int = 20) -> list[float]:
    """The median time per call of each function in seconds.

    The functions take turns, so that load affects all of them.
    """
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times[0]) < least:
        for function, measured in zip(functions, times, strict=True):
            begun = time.perf_counter()
            function()
            measured.append(time.perf_counter() - begun)
    return [statistics.median(measured) for measured in times]


def many(function: Callable[[], object], times: int) -> Callable[[], None]:
    """Calls the function repeatedly, for calls shorter than the clock's overhead."""

    def repeated() -> None:
        for _ in range(times):
            function()

    return repeated


class Ops:
    """`y = x + n` in the sandbox, by a native handler, and by a callback into Python."""

    def __init__(self, guests: Path, native: Path) -> None:
        self.guests = guests
        self.host = callbox.Host()
        self.target = self.host.load(guests / "add_n.wasm").add_n
        library = ctypes.CDLL(str(native))
        for name in ("add_n", "add_n_in_place"):
            jax.ffi.register_ffi_target(f"native_{name}", jax.ffi.pycapsule(library[name]), platform="cpu")
        self.library = library

    def callbox(self, x: jax.Array, **options: object) -> jax.Array:
        return callbox.jax.call(self.target, x, n=1.0, **options)

    def native(self, x: jax.Array, name: str = "add_n", **options: object) -> jax.Array:
        result = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.ffi.ffi_call(f"native_{name}", result, **options)(x, n=np.float32(1.0))

    def callback(self, x: jax.Array) -> jax.Array:
        result = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda x: self.target(np.asarray(x), n=1.0), result, x)


def floats(size: int) -> jax.Array:
    return jnp.arange(size // 4, dtype=jnp.float32)


def in_a_loop(ops: Ops) -> dict[str, float]:
    """A call inside `fori_loop`, 1 KiB."""
    x = floats(KIB)

    def loop(op: Callable[[jax.Array], jax.Array]) -> Callable[[], object]:
        run = jax.jit(lambda x: jax.lax.fori_loop(0, LOOPS, lambda _, x: op(x), x))
        return lambda: run(x).block_until_ready()

    ours, native = alternately(loop(ops.callbox), loop(ops.native), seconds=6)
    return {"callbox": ours / LOOPS, "baseline": native / LOOPS}


def jitted(ops: Ops) -> dict[str, float]:
    """A jitted call from Python, 1 KiB."""
    x = floats(KIB)
    ours, native = jax.jit(ops.callbox), jax.jit(ops.native)
    times = 100
    measured = alternately(
        many(lambda: ours(x).block_until_ready(), times),
        many(lambda: native(x).block_until_ready(), times),
        seconds=5,
    )
    return {"callbox": measured[0] / times, "baseline": measured[1] / times}


def donated(ops: Ops, size: int, threads: int, name: str = "add_n") -> dict[str, float]:
    """A jitted call with a donated operand on some threads, beside a native handler on one."""

    def run(op: Callable[..., jax.Array]) -> Callable[[], object]:
        in_place = jax.jit(lambda x: op(x, input_output_aliases={0: 0}), donate_argnums=0)
        held = [floats(size).block_until_ready()]

        def call() -> None:
            held[0] = in_place(held[0]).block_until_ready()

        return call

    shared = functools.partial(ops.callbox, threads=threads)
    native = functools.partial(ops.native, name=name)
    ours, baseline = alternately(run(shared), run(native), seconds=5)
    return {"callbox": ours, "baseline": baseline}


def by_callback(ops: Ops) -> dict[str, float]:
    """The FFI call beside `jax.pure_callback` of the same kernel, 1 KiB, in a jitted loop."""
    x = floats(KIB)
    loops = 200

    def loop(op: Callable[[jax.Array], jax.Array]) -> Callable[[], object]:
        run = jax.jit(lambda x: jax.lax.fori_loop(0, loops, lambda _, x: op(x), x))
        return lambda: run(x).block_until_ready()

    ours, callback = alternately(loop(ops.callbox), loop(ops.callback), seconds=5)
    return {"callbox": ours / loops, "baseline": callback / loops}


def by_callback_from_python(ops: Ops) -> dict[str, float]:
    """The same as jitted calls from Python."""
    x = floats(KIB)
    ours, callback = jax.jit(ops.callbox), jax.jit(ops.callback)
    measured = alternately(
        many(lambda: ours(x).block_until_ready(), 20),
        many(lambda: callback(x).block_until_ready(), 20),
        seconds=5,
    )
    return {"callbox": measured[0] / 20, "baseline": measured[1] / 20}


def direct(ops: Ops) -> dict[str, float]:
    """A direct call with a NumPy array and `out`, 1 KiB, beside `numpy.add`."""
    x = np.arange(KIB // 4, dtype=np.float32)
    out = np.empty_like(x)
    one = np.float32(1.0)
    target = ops.target
    times = 1000
    measured = alternately(
        many(lambda: target(x, n=1.0, out=out), times), many(lambda: np.add(x, one, out=out), times), seconds=3
    )
    return {"callbox": measured[0] / times, "baseline": measured[1] / times}


def direct_large(ops: Ops, size: int, threads: int) -> dict[str, float]:
    """A direct call with a large NumPy array and `out` on some threads, beside `numpy.add`."""
    x = np.arange(size // 4, dtype=np.float32)
    out = np.empty_like(x)
    one = np.float32(1.0)
    target = ops.target
    ours, numpy = alternately(
        lambda: target(x, n=1.0, out=out, threads=threads), lambda: np.add(x, one, out=out), seconds=4
    )
    return {"callbox": ours, "baseline": numpy}


def rows(ops: Ops, name: str) -> dict[str, float]:
    """A jitted call of a target with rows on 4096 x 1024, beside `jax.jit` of jnp's own."""
    x = jax.random.normal(jax.random.key(0), (4096, 1024), jnp.float32)
    weight = jnp.linspace(0.5, 1.5, 1024, dtype=jnp.float32)
    target = ops.host.load(ops.guests / f"{name}.wasm")[name]
    if name == "softmax":
        ours = jax.jit(lambda x: callbox.jax.call(target, x, threads=2))
        jnps = jax.jit(lambda x: jax.nn.softmax(x, axis=-1))
    else:
        ours = jax.jit(lambda x: callbox.jax.call(target, x, weight, eps=1e-6, threads=2))
        jnps = jax.jit(lambda x: x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight)
    np.testing.assert_allclose(np.asarray(ours(x)), np.asarray(jnps(x)), rtol=1e-4, atol=1e-6)
    measured = alternately(lambda: ours(x).block_until_ready(), lambda: jnps(x).block_until_ready(), seconds=5)
    return {"callbox": measured[0], "baseline": measured[1]}


def gradient(ops: Ops) -> dict[str, float]:
    """The jitted gradient of rms_norm on 4096 x 1024 in two threads, beside that of jnp's own."""
    x = jax.random.normal(jax.random.key(0), (4096, 1024), jnp.float32)
    weight = jnp.linspace(0.5, 1.5, 1024, dtype=jnp.float32)
    op = callbox.jax.op(ops.host.load(ops.guests / "rms_norm.wasm").rms_norm, threads=2)

    def ours(x: jax.Array, weight: jax.Array) -> jax.Array:
        return jnp.vdot(op(x, weight, eps=1e-6), x)

    def jnps(x: jax.Array, weight: jax.Array) -> jax.Array:
        return jnp.vdot(x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight, x)

    gradients = [jax.jit(jax.grad(function, argnums=(0, 1))) for function in (ours, jnps)]
    for found, expected in zip(*(gradient(x, weight) for gradient in gradients), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-3, atol=1e-3)
    calls = (functools.partial(lambda g: jax.block_until_ready(g(x, weight)), g) for g in gradients)
    measured = alternately(*calls, seconds=5)
    return {"callbox": measured[0], "baseline": measured[1]}


def product(ops: Ops) -> dict[str, float]:
    """A direct call of a product of 512 x 512 by lent mathematics, beside NumPy's, on one thread.

    `cargo xtask bench --python` sets OPENBLAS_NUM_THREADS, which is read when NumPy is imported.
    """
    matmul = ops.host.load(ops.guests / "maths.wasm").matmul
    a, b = np.random.default_rng(0).standard_normal((2, 512, 512), np.float32)
    out = np.empty_like(a)

    def ours() -> None:
        matmul(a, b, transpose_a=False, transpose_b=False, out=out, threads=1)

    ours()
    np.testing.assert_allclose(out, a @ b, rtol=1e-3, atol=1e-3)
    found, numpy = alternately(ours, lambda: np.matmul(a, b, out=out), seconds=4)
    return {"callbox": found, "baseline": numpy}


def direct_allocating(ops: Ops) -> dict[str, float]:
    """The same, allocating the result."""
    x = np.arange(KIB // 4, dtype=np.float32)
    one = np.float32(1.0)
    target = ops.target
    times = 1000
    measured = alternately(many(lambda: target(x, n=1.0), times), many(lambda: np.add(x, one), times), seconds=3)
    return {"callbox": measured[0] / times, "baseline": measured[1] / times}


def direct_new_attribute(ops: Ops) -> dict[str, float]:
    """A direct call with a new attribute value, beside one with the same value again."""
    x = np.arange(KIB // 4, dtype=np.float32)
    out = np.empty_like(x)
    values = itertools.count()
    target = ops.target
    times = 200
    measured = alternately(
        many(lambda: target(x, n=float(next(values)), out=out), times),
        many(lambda: target(x, n=1.0, out=out), times),
        seconds=3,
    )
    return {"callbox": measured[0] / times, "baseline": measured[1] / times}


def call_sites(ops: Ops, count: int) -> dict[str, float]:
    """Each call of a program with this many call sites, beside one with a fifth of them."""
    x = floats(KIB)

    def program(count: int) -> Callable[[], object]:
        def chain(x: jax.Array) -> jax.Array:
            for site in range(count):
                x = callbox.jax.call(ops.target, x, n=site * 0.5)
            return x

        run = jax.jit(chain)
        return lambda: run(x).block_until_ready()

    few = count // 5
    measured = alternately(program(count), program(few), seconds=4)
    return {"callbox": measured[0] / count, "baseline": measured[1] / few}


def eager(ops: Ops) -> dict[str, float]:
    """An op outside of `jax.jit`, 1 KiB, beside one of `jax.numpy`."""
    x = floats(KIB)
    op = callbox.jax.op(ops.target)
    times = 50
    measured = alternately(
        many(lambda: op(x, n=1.0).block_until_ready(), times),
        many(lambda: (x + 1.0).block_until_ready(), times),
        seconds=4,
    )
    return {"callbox": measured[0] / times, "baseline": measured[1] / times}


def aliased(ops: Ops) -> dict[str, float]:
    """A donated operand that shares its result's buffer, beside one only donated, 1 MiB."""

    def run(**options: object) -> Callable[[], object]:
        program = jax.jit(lambda x: ops.callbox(x, **options), donate_argnums=0)
        held = [floats(KIB**2).block_until_ready()]

        def call() -> None:
            held[0] = program(held[0]).block_until_ready()

        return call

    ours, plain = alternately(run(input_output_aliases={0: 0}), run(), seconds=4)
    return {"callbox": ours, "baseline": plain}


def shown(seconds: float) -> str:
    """Formats a time."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


@dataclasses.dataclass
class Row:
    """A measurement and its goal: the most ratio to the baseline, time more than it, or time."""

    name: str
    measure: Callable[[Ops], dict[str, float]]
    goal: str
    ratio: float | None = None
    more: float | None = None
    most: float | None = None

    def verdict(self, times: dict[str, float]) -> str:
        ours, baseline = times["callbox"], times["baseline"]
        if self.ratio is not None:
            reached = ours <= self.ratio * baseline
        elif self.more is not None:
            reached = ours - baseline <= self.more
        elif self.most is not None:
            reached = ours <= self.most
        else:
            return ""
        return "yes" if reached else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guests", type=Path, required=True)
    parser.add_argument("--native", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="measures the rows whose name has this text")
    arguments = parser.parse_args()
    ops = Ops(arguments.guests, arguments.native)
    x = floats(KIB)
    np.testing.assert_array_equal(np.asarray(ops.callbox(x)), np.asarray(ops.native(x)))

    rows_to_measure: list[Row] = [
        Row("call inside fori_loop, 1 KiB", in_a_loop, "at most 0.12 µs more", more=0.12e-6),
        Row("jitted call from Python, 1 KiB", jitted, "at most 1.05x", ratio=1.05),
    ]
    for name, size, goals in (("1 MiB", KIB**2, (1.3, 0.8)), ("64 MiB", 64 * KIB**2, (1.15, 1.0))):
        for threads, goal in zip((1, 2), goals, strict=True):
            what = f"{name}, donated, {threads} thread{'s'[: threads - 1]}"
            measure = functools.partial(donated, size=size, threads=threads)
            rows_to_measure.append(Row(what, measure, f"at most {goal}x", ratio=goal))
        measure = functools.partial(donated, size=size, threads=1, name="add_n_in_place")
        rows_to_measure.append(Row(f"{name}, donated, 1 thread, to a native loop on one array", measure, ""))
    for name in ("rms_norm", "softmax"):
        what = f"{name} 4096 x 1024, 2 threads, to jax.jit of jnp's"
        rows_to_measure.append(Row(what, functools.partial(rows, name=name), "at most 1.2x", ratio=1.2))
    rows_to_measure += [
        Row("gradient of rms_norm 4096 x 1024, 2 threads, to that of jnp's", gradient, "at most 1.2x", ratio=1.2),
        Row("product of 512 x 512 f32, lent, 1 thread, to NumPy's", product, "at most 1.15x", ratio=1.15),
    ]
    for name, size, goal in (("1 MiB", KIB**2, 1.5), ("64 MiB", 64 * KIB**2, 1.2)):
        for threads in (1, 2):
            what = f"direct NumPy call with out, {name}, {threads} thread{'s'[: threads - 1]}, to numpy.add"
            measure = functools.partial(direct_large, size=size, threads=threads)
            text, ratio = ("", None) if threads == 1 else (f"at most {goal}x", goal)
            rows_to_measure.append(Row(what, measure, text, ratio=ratio))
    rows_to_measure += [
        Row("jitted call from Python, 1 KiB, to pure_callback", by_callback_from_python, "at most 1/15", ratio=1 / 15),
        Row("call inside fori_loop, 1 KiB, to pure_callback", by_callback, ""),
        Row("direct NumPy call with out, 1 KiB, to numpy.add", direct, "at most 1.5 µs", most=1.5e-6),
        Row("direct NumPy call, allocating, 1 KiB, to numpy.add", direct_allocating, ""),
        Row("direct NumPy call with a new attribute", direct_new_attribute, "under 6 µs", most=6e-6),
        Row("each call of 300 call sites, to 60", functools.partial(call_sites, count=300), "under 5 µs", most=5e-6),
        Row("op outside of jit, 1 KiB, to jnp", eager, "at most 3x", ratio=3),
        Row("1 MiB, donated, aliased to not aliased", aliased, "at most 1x", ratio=1),
    ]
    chosen = [row for row in rows_to_measure if arguments.only in row.name]

    print(f"jax {jax.__version__}, numpy {np.__version__}, {os.cpu_count()} cores\n")
    print("| what | callbox | baseline | ratio | more | goal | reached |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    measured: dict[str, dict[str, float]] = {}
    for row in chosen:
        times = measured[row.name] = row.measure(ops)
        more = times["callbox"] - times["baseline"]
        cells = (
            row.name,
            shown(times["callbox"]),
            shown(times["baseline"]),
            f"{times['callbox'] / times['baseline']:.2f}x",
            f"{more * 1e6:+.2f} µs",
            row.goal,
            row.verdict(times),
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
