"""What callbox costs in Python: each figure beside its baseline, measured in one run.

Prints the table of benches/README.md. Run it with `cargo xtask bench --python`, which builds what it needs.
"""

from __future__ import annotations

import argparse
import ctypes
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
    """The median time of a call of each function, in seconds: they take turns, so that a slow moment is every one's."""
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
    """The function so many times: for what is shorter than the clock's own cost."""

    def repeated() -> None:
        for _ in range(times):
            function()

    return repeated


class Ops:
    """`y = x + n` three ways: in the sandbox, by a native handler, and by a callback into Python."""

    def __init__(self, guests: Path, native: Path) -> None:
        self.host = callbox.Host()
        self.target = self.host.load(guests / "add_n.wasm").add_n
        library = ctypes.CDLL(str(native))
        jax.ffi.register_ffi_target("native_add_n", jax.ffi.pycapsule(library.add_n), platform="cpu")
        self.library = library

    def callbox(self, x: jax.Array, **options: object) -> jax.Array:
        return callbox.jax.call(self.target, x, n=1.0, **options)

    def native(self, x: jax.Array, **options: object) -> jax.Array:
        result = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.ffi.ffi_call("native_add_n", result, **options)(x, n=np.float32(1.0))

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


def donated(ops: Ops, size: int) -> dict[str, float]:
    """A jitted call whose operand is given away: operand and result are one buffer."""

    def run(op: Callable[..., jax.Array]) -> Callable[[], object]:
        in_place = jax.jit(lambda x: op(x, input_output_aliases={0: 0}), donate_argnums=0)
        held = [floats(size).block_until_ready()]

        def call() -> None:
            held[0] = in_place(held[0]).block_until_ready()

        return call

    ours, native = alternately(run(ops.callbox), run(ops.native), seconds=5)
    return {"callbox": ours, "baseline": native}


def by_callback(ops: Ops) -> dict[str, float]:
    """The same kernel through `jax.pure_callback`, 1 KiB, to the FFI call, both inside a jitted loop."""
    x = floats(KIB)
    loops = 200

    def loop(op: Callable[[jax.Array], jax.Array]) -> Callable[[], object]:
        run = jax.jit(lambda x: jax.lax.fori_loop(0, loops, lambda _, x: op(x), x))
        return lambda: run(x).block_until_ready()

    ours, callback = alternately(loop(ops.callbox), loop(ops.callback), seconds=5)
    return {"callbox": ours / loops, "baseline": callback / loops}


def by_callback_from_python(ops: Ops) -> dict[str, float]:
    """The same, each a jitted call from Python."""
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


def direct_allocating(ops: Ops) -> dict[str, float]:
    """The same, with an array made for the result."""
    x = np.arange(KIB // 4, dtype=np.float32)
    one = np.float32(1.0)
    target = ops.target
    times = 1000
    measured = alternately(many(lambda: target(x, n=1.0), times), many(lambda: np.add(x, one), times), seconds=3)
    return {"callbox": measured[0] / times, "baseline": measured[1] / times}


def shown(seconds: float) -> str:
    """A time as a person reads it."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guests", type=Path, required=True)
    parser.add_argument("--native", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    ops = Ops(arguments.guests, arguments.native)
    x = floats(KIB)
    np.testing.assert_array_equal(np.asarray(ops.callbox(x)), np.asarray(ops.native(x)))

    loop, call = in_a_loop(ops), jitted(ops)
    rows: list[tuple[str, dict[str, float], str, bool | None]] = [
        ("call inside fori_loop, 1 KiB", loop, "at most 0.25 µs more", loop["callbox"] - loop["baseline"] <= 0.25e-6),
        ("jitted call from Python, 1 KiB", call, "at most 1.1x", call["callbox"] <= 1.1 * call["baseline"]),
    ]
    for name, size in (("1 MiB", KIB**2), ("64 MiB", 64 * KIB**2)):
        row = donated(ops, size)
        rows.append((f"{name}, donated", row, "at most 1.3x", row["callbox"] <= 1.3 * row["baseline"]))
    row = by_callback_from_python(ops)
    goal = row["callbox"] * 15 <= row["baseline"]
    rows.append(("jitted call from Python, 1 KiB, to pure_callback", row, "at most 1/15", goal))
    rows.append(("call inside fori_loop, 1 KiB, to pure_callback", by_callback(ops), "", None))
    row = direct(ops)
    rows.append(("direct NumPy call with out, 1 KiB, to numpy.add", row, "at most 1.5 µs", row["callbox"] <= 1.5e-6))
    rows.append(("direct NumPy call, allocating, 1 KiB, to numpy.add", direct_allocating(ops), "", None))

    print(f"jax {jax.__version__}, numpy {np.__version__}, {os.cpu_count()} cores\n")
    print("| what | callbox | baseline | ratio | more | goal | reached |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, row, goal_text, reached in rows:
        ratio = row["callbox"] / row["baseline"]
        more = (row["callbox"] - row["baseline"]) * 1e6
        verdict = "" if reached is None else ("yes" if reached else "no")
        print(
            f"| {name} | {shown(row['callbox'])} | {shown(row['baseline'])} | {ratio:.2f}x | {more:+.2f} µs | {goal_text} | {verdict} |"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({name: row for name, row, _, _ in rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
