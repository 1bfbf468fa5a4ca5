"""Runs each example as a user would, and compares its output."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.newest

EXAMPLES = Path(__file__).parents[2] / "examples"

#: The expected output of the examples. Three dots match anything.
PRINTED = {
    "add_n": """\
        by_value: 8.0
        by_reference: 8.0
        typed: 8.0
        """,
    "hostile": """\
        infinite_loop after ... s: DEADLINE_EXCEEDED: faults.wasm: target "infinite_loop" ran past its deadline of 200ms
        write_out_of_bounds after ... s: OUT_OF_RANGE: faults.wasm: target "write_out_of_bounds" trapped: out of bounds memory access
        infinite_recursion after ... s: RESOURCE_EXHAUSTED: faults.wasm: target "infinite_recursion" trapped: call stack exhausted
        grow_memory after ... s: RESOURCE_EXHAUSTED: faults.wasm: target "grow_memory" failed after memory of ... bytes was refused, ...
        healthy: 1.047552e+06
        {...: ..., ...: ..., ...: ...}
        """,
    "numpy_calls": """\
        <callbox.Module ... with squareplus, squareplus_grad>
        squareplus(x: float32|float64[..], *, beta: float32) -> y: float32|float64[..]
        <BLANKLINE>
        Computes the squareplus of each element: ...
        (x, *, beta, out=None, result_shape_dtypes=None, deadline=None)
        [0.41421357 0.618034   1.         1.618034   2.4142137 ]
        [0.41421357 0.618034   1.         1.618034   2.4142137 ]
        TypeError: squareplus(): operand 0 (x): expected dtype float32 or float64, found int32
        INVALID_ARGUMENT, recoverable: True: activation.wasm: target "squareplus" failed: ... "expected beta to be finite and not negative, found -1"
        {'calls': 3, 'bytes_in': 60, 'bytes_out': 40, 'failures': {'INVALID_ARGUMENT': 1}}
        """,
    "rms_norm": """\
        <callbox.Target rms_norm(x: float32[.., n], weight: float32[n], *, eps: float32) -> y: float32[.., n]>
        loss     float32[]: differs from JAX's own by ... of the largest
        dx       float32[8, 128, 512]: differs from JAX's own by ... of the largest
        dweight  float32[512]: differs from JAX's own by ... of the largest
        """,
    "sharded": """\
        four good shards: 4260.855, JAX alone: 4260.855
        shard 2 broken: nan, status 11
        OUT_OF_RANGE: faults.wasm: target "write_out_of_bounds" trapped: out of bounds memory access
        """,
    "train": """\
        step    0: loss ...
        step  500: loss ...
        step 1000: loss ...
        step 1500: loss ...
        step 2000: loss ...
        """,
}


@pytest.fixture(scope="module")
def run(guests: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Runs an example in a foreign folder, and returns its output."""
    folder = tmp_path_factory.mktemp("elsewhere")

    def run(name: str) -> str:
        done = subprocess.run(
            [sys.executable, EXAMPLES / f"{name}.py"],
            env={**os.environ, "CALLBOX_GUESTS": str(guests.resolve()), "JAX_PLATFORMS": "cpu"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def test_all_examples_are_tested():
    # `hub` needs a hub: `tests/hub/test_first_page.py` runs it.
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTED, "hub"}


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_prints_what_it_should(run, name):
    expected = "".join(f"{line.strip()}\n" for line in PRINTED[name].splitlines() if line.strip())
    printed = run(name)
    assert doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS), (
        f"expected\n{expected}\nfound\n{printed}"
    )


def test_the_loss_of_the_training_goes_down_at_every_look(run):
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", run("train"))]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 100
