"""Runs small JAX functions with `callbox run`, and compares the results with those of JAX.

Each function runs twice: as the text before XLA's optimisation, and as the text after it. These
functions are not among those of `programs/`, whose results are kept as cases. This list finds what
JAX prints and callbox does not run.

    python tests/jax/everyday.py --callbox target/debug/callbox
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
from jaxlib import _hlo

from functions import FUNCTIONS, REFUSED

# The distance from JAX's value that is allowed, relative to the largest element of the result.
TOLERANCE = 2e-5


def texts(lowered) -> dict[str, str]:
    """The program before and after XLA's optimisation, as docs/programs.md prints it."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    (module,) = lowered.compile().runtime_executable().hlo_modules()
    return {
        "before": lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True),
        "after": module.to_string(options),
    }


def difference(found, expected) -> str:
    """What is wrong with a result; empty if nothing is."""
    expected = np.asarray(expected)
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"expected {expected.dtype}{expected.shape}, found {found.dtype}{found.shape}"
    if expected.dtype.kind in "iub":
        wrong = int((found != expected).sum())
        return f"{wrong} of {expected.size} elements differ" if wrong else ""
    finite = np.isfinite(expected)
    scale = max(1e-6, float(np.abs(expected[finite]).max(initial=0)))
    if not np.allclose(found, expected, rtol=0, atol=TOLERANCE * scale, equal_nan=True):
        return f"differs by {np.nanmax(np.abs(found - expected)) / scale:.2g} of the largest element"
    return ""


def outcome(callbox, text: str, arguments, expected, folder: Path) -> str:
    """What is wrong with one run; empty if nothing is."""
    (folder / "program.hlo").write_text(text)
    out = folder / "out"
    call = [callbox, "run", folder / "program.hlo", "--output-dir", out]
    for number, argument in enumerate(arguments):
        np.save(folder / f"{number}.npy", argument)
        call += ["--input", f"{number}={folder / f'{number}.npy'}"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[0]
    files = sorted(out.glob("*.npy"), key=lambda file: [int(n) for n in file.stem.split(".") if n.isdigit()])
    if len(files) != len(expected):
        return f"expected {len(expected)} results, found {[file.name for file in files]}"
    wrong = [difference(np.load(file), value) for file, value in zip(files, expected, strict=True)]
    return next(filter(None, wrong), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--callbox", type=Path, required=True, help="the command")
    parser.add_argument("--only", default="", help="runs the functions whose name has this text")
    options = parser.parse_args()
    failures, refused, runs = [], 0, 0
    for name, (function, arguments) in FUNCTIONS.items():
        if options.only not in name:
            continue
        jitted = jax.jit(function, keep_unused=True)
        expected = jax.tree.leaves(jitted(*arguments))
        for when, text in texts(jitted.lower(*arguments)).items():
            runs += 1
            with tempfile.TemporaryDirectory() as folder:
                wrong = outcome(options.callbox.resolve(), text, arguments, expected, Path(folder))
            if name in REFUSED and REFUSED[name] in wrong:
                refused += 1
            elif wrong:
                failures.append(f"{name}, {when}: {wrong}")
    held = runs - refused - len(failures)
    summary = f"{held} of {runs} texts gave JAX's values, and {refused} were refused by name"
    print("\n".join([*failures, summary]))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
