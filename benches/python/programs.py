"""Measures programs that JAX prints, run by `callbox run`, beside `jax.jit` in one run.

A program repeats a function 11 times, with a barrier between the repetitions, and another
runs it once. A tenth of the difference is the time of one repetition, without starting
the process, reading the files and compiling. Both sides have the same processors.

Prints the time and the processor time of each, for the text before and after XLA's
optimisation. `cargo xtask bench --python` runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

MANY = 11
#: The highest ratio to JAX that is the goal.
GOAL = 5.0


class Times(NamedTuple):
    """Times of one repetition in seconds."""

    wall: float
    processor: float


def repeated(step: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
    """The function that applies `step` so many times, none of which can be fused with another."""
    import jax

    def run(x: Any) -> Any:
        for _ in range(count):
            x = jax.lax.optimization_barrier(step(x))
        return x

    return run


def cases() -> dict[str, tuple[Callable[[int], Callable[..., Any]], list[Any]]]:
    """For each row a function of the number of repetitions, and the arguments."""
    import jax
    import jax.numpy as jnp

    def normal(*shape: int) -> Any:
        return jax.random.normal(jax.random.key(0), shape, jnp.float32)

    def chain(x: Any) -> Any:
        for _ in range(4):
            x = x * 0.999 + 0.001
        return x

    def dot(count: int) -> Callable[..., Any]:
        return lambda x, w: repeated(lambda x: x @ w, count)(x)

    def sums(count: int) -> Callable[..., Any]:
        # Of arrays of their own: XLA computes the sums of one array once.
        return lambda *arrays: [jnp.sum(x, axis=1) for x in arrays[:count]]

    def maxima(count: int) -> Callable[..., Any]:
        return lambda *arrays: [jnp.max(x, axis=1) for x in arrays[:count]]

    def of(step: Callable[[Any], Any]) -> Callable[[int], Callable[..., Any]]:
        return lambda count: repeated(step, count)

    x, w = normal(1024, 1024), normal(1024, 1024) / 32
    return {
        "dot, 1024 x 1024, f32": (dot, [x, w]),
        "dot, 1024 x 1024, bf16": (dot, [x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)]),
        "chain of eight, 16 M of f32": (of(chain), [normal(1 << 24)]),
        "sums of rows, 4096 x 1024 of f32": (sums, [normal(4096, 1024) + i for i in range(MANY)]),
        "maxima of rows, 4096 x 1024 of f32": (maxima, [normal(4096, 1024) + i for i in range(MANY)]),
        "softmax, 4096 x 1024 of f32": (of(lambda x: jax.nn.softmax(x, axis=-1)), [normal(4096, 1024)]),
    }


def texts(lowered: Any) -> dict[str, str]:
    """The program before and after XLA's optimisation, as docs/programs.md prints it."""
    from jaxlib import _hlo

    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    (module,) = lowered.compile().runtime_executable().hlo_modules()
    return {
        "before": lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True),
        "after": module.to_string(options),
    }


def timed(run: Callable[[], object], processor: Callable[[], float]) -> Times:
    """The times of one run."""
    before, begun = processor(), time.perf_counter()
    run()
    return Times(time.perf_counter() - begun, processor() - before)


def children() -> float:
    """The processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def each(once: list[Times], many: list[Times]) -> Times:
    """The times of one repetition, from the medians of both programs."""

    def of(field: int) -> float:
        few, much = (statistics.median(times[field] for times in all_times) for all_times in (once, many))
        return (much - few) / (MANY - 1)

    return Times(of(0), of(1))


def measure(command: Path, name: str, rounds: int, folder: Path) -> dict[str, Times]:
    """The times of a row: of JAX, and of callbox on both texts. All take turns."""
    import jax
    import numpy as np

    function, arguments = cases()[name]
    files: list[str] = []
    for number, argument in enumerate(arguments):
        np.save(folder / f"{number}.npy", np.asarray(argument))
        files += ["--input", f"{number}={folder / f'{number}.npy'}"]
    runs: dict[tuple[str, int], tuple[Callable[[], object], Callable[[], float]]] = {}
    for count in (1, MANY):
        jitted = jax.jit(function(count), keep_unused=True)
        lowered = jitted.lower(*arguments)
        runs["jax", count] = (lambda jitted=jitted: jax.block_until_ready(jitted(*arguments)), time.process_time)
        for when, text in texts(lowered).items():
            program = folder / f"{when}{count}.hlo"
            program.write_text(text)
            call = [command, "run", program, *files, "--json"]
            runs[when, count] = (lambda call=call: subprocess.run(call, check=True, capture_output=True), children)
    for run, _ in runs.values():
        run()
    times: dict[tuple[str, int], list[Times]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key, (run, processor) in runs.items():
            times[key].append(timed(run, processor))
    return {side: each(times[side, 1], times[side, MANY]) for side in ("jax", "before", "after")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--callbox", type=Path, required=True, help="the command, built in release mode")
    parser.add_argument("--threads", type=int, default=0, help="the processors of both sides; default: all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="measures the rows whose name has this text")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    processors = sorted(os.sched_getaffinity(0))
    # Before JAX is imported, which starts as many threads as there are processors.
    os.sched_setaffinity(0, processors[: arguments.threads or len(processors)])
    import jax

    print(f"jax {jax.__version__}, {len(os.sched_getaffinity(0))} processors\n")
    print("| what | text | callbox | jax | ratio | processor time | ratio | at most 5x |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    measured: dict[str, dict[str, Times]] = {}
    for name in (name for name in cases() if arguments.only in name):
        with tempfile.TemporaryDirectory() as folder:
            times = measured[name] = measure(arguments.callbox.resolve(), name, arguments.rounds, Path(folder))
        jaxs = times["jax"]
        for when in ("before", "after"):
            ours = times[when]
            ratio, of_processors = ours.wall / jaxs.wall, ours.processor / jaxs.processor
            cells = (
                name,
                when,
                f"{ours.wall * 1e3:.2f} ms",
                f"{jaxs.wall * 1e3:.2f} ms",
                f"{ratio:.2f}x",
                f"{ours.processor * 1e3:.2f} ms",
                f"{of_processors:.2f}x",
                "yes" if ratio <= GOAL else "no",
            )
            print(f"| {' | '.join(cells)} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
