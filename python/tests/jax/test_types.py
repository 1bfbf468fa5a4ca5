"""Types, as mypy sees them in a user's program. Its environment is the one with the newest JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import callbox
import callbox.__main__

pytest.importorskip("mypy")

PROGRAM = """
from typing import assert_type

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

import callbox
import callbox.errors
import callbox.jax
import callbox.samples
import kernels

x = np.ones((2, 3), np.float32)
assert_type(kernels.rms_norm(x, [1.0, 1.0, 1.0], eps=1e-6), npt.NDArray[np.float32])
dx, dweight = kernels.rms_norm_grad(x, weight=x[0], dy=x, eps=1e-6, deadline=0.5)
assert_type(dweight, npt.NDArray[np.float32])
kernels.rms_norm(jnp.ones((2, 3)), x[0], eps=1, out=x)


def rms_norm(x: jax.Array, weight: jax.Array) -> jax.Array:
    with callbox.Host(policy={"limits": {"deadline_ms": 50}}).load(callbox.samples.rms_norm) as module:
        norm = callbox.jax.op(module.rms_norm, on_error="raise", vmap_method="loop", defaults={"eps": 1e-6})
        program = jax.jit(lambda x: jnp.sum(norm(x, weight)))
        result: jax.Array = program(x)
        return result


@callbox.errors.as_call_errors()
def code(x: jax.Array) -> str | None:
    try:
        rms_norm(x, x[0])
    except callbox.CallError as error:
        return f"{error.code} {error.blame} {error.module} {error.target} {error.backtrace[-1:]}"
    except Exception as error:
        found = callbox.errors.from_jax(error)
        return None if found is None else found.code
    return None


assert_type(code(jnp.ones((2, 3))), str | None)
exported = callbox.jax.export(jax.jit(code), bundle=True)(jnp.zeros(3))
print(callbox.jax.deserialize(exported.serialize()).modules, callbox.stats(), callbox.Host().stats())
"""

#: Lines with one mistake each, and what mypy says of it.
MISTAKES = {
    'callbox.jax.op(module.f, on_error="explode")': 'Argument "on_error" to "op" has incompatible type',
    'callbox.jax.op(module.f, vmap_method="broadcast_all")': 'Argument "vmap_method" to "op" has incompatible type',
    "kernels.rms_norm(x, x)": 'Missing named argument "eps" for "rms_norm"',
    'kernels.rms_norm(x, x, eps="small")': 'Argument "eps" to "rms_norm" has incompatible type "str"',
    "kernels.rms_norm(x, eps=1.0)": 'Missing positional argument "weight" in call to "rms_norm"',
    "kernels.unknown(x)": 'Module has no attribute "unknown"',
    "callbox.Host(policies={})": 'Unexpected keyword argument "policies" for "Host"',
}


@pytest.fixture
def check(guests, tmp_path, capsys):
    """Checks programs strictly, beside the stubs of `rms_norm`. Returns mypy's lines."""
    callbox.__main__.main(["stubs", str(guests / "rms_norm.wasm")])
    (tmp_path / "kernels.pyi").write_text(capsys.readouterr().out)

    def run(*files: Path) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *files],
            # Python finds no modules here, and mypy does.
            env={**os.environ, "MYPYPATH": str(tmp_path), "PYTHONSAFEPATH": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert not done.stderr
        return [line for line in done.stdout.splitlines() if ": note: " not in line]

    return run


def test_a_program_has_types(check, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert check(program) == []


def test_mistakes_are_found(check, tmp_path):
    program = tmp_path / "program.py"
    head = [
        "import numpy as np, callbox, callbox.jax, kernels",
        "x, module = np.ones(3), callbox.Host().load('f.wasm')",
    ]
    program.write_text("\n".join([*head, *MISTAKES]))
    found = check(program)
    assert len(found) == len(MISTAKES), found
    for number, (line, message) in enumerate(zip(found, MISTAKES.values(), strict=True), len(head) + 1):
        assert line.startswith(f"program.py:{number}: error: ")
        assert message in line


def test_stubs_of_all_guests(check, guests, tmp_path, capsys):
    stubs = []
    for guest in sorted(guests.glob("*.wasm")):
        try:
            callbox.Host().load(guest)
        except callbox.CallError as error:
            assert error.code == "PERMISSION_DENIED"
            continue
        callbox.__main__.main(["stubs", str(guest)])
        stubs.append(tmp_path / f"of_{guest.stem}.pyi")
        stubs[-1].write_text(capsys.readouterr().out)
    assert len(stubs) > 20
    assert check(*stubs) == []
