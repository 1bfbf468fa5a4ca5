"""CUDA twins of jitted kernels, on the stand-in for the driver. No GPU is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import callbox
from callbox import math
from callbox.types import f32

STAND_IN = os.environ.get("CALLBOX_CUDA_STAND_IN")
_MADE = Path(__file__).parents[3].glob("target/nvrtc/lib/python3*/site-packages/nvidia/cu13/bin/ptxas")
PTXAS = shutil.which("ptxas") or next(_MADE, None)


@callbox.jit(elementwise=True, cuda=True)
def silu(x: f32) -> f32:
    return x / (1 + math.exp(-x))


@pytest.mark.skipif(STAND_IN is None, reason="CALLBOX_CUDA_STAND_IN is not set: there is no stand-in for the driver")
def test_twins_have_the_bits_of_the_modules():
    program = Path(__file__).with_name("cuda_twins.py")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "passed\n"), f"{done.stdout}\n{done.stderr}"


def test_twins_are_saved_and_loaded_without_a_grant(tmp_path):
    manifest = silu.save_cuda(tmp_path / "silu")
    assert sorted(path.name for path in manifest.parent.iterdir()) == ["callbox.json", "silu.ptx"]
    assert (manifest.parent / "silu.ptx").read_text() == silu.ptx
    # Rounded twice, as in the module.
    assert not re.search(r"\bfma\b|\bcall\b|\.approx|\.ftz", silu.ptx)
    silu.save(tmp_path / "silu.wasm")
    module = callbox.Host().load(tmp_path / "silu.wasm", native=manifest)
    assert module.silu.has_native
    assert silu.target.has_native


@pytest.mark.skipif(PTXAS is None, reason="there is no ptxas on the PATH or from `cargo xtask ptx`")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_ptxas_takes_a_twin(tmp_path, architecture):
    (tmp_path / "silu.ptx").write_text(silu.ptx)
    subprocess.run([PTXAS, f"-arch={architecture}", "silu.ptx", "-o", "silu.cubin"], cwd=tmp_path, check=True)


def test_what_has_no_twin():
    def whole(x: f32[n], y: f32[n]):
        y[0] = x[0]

    with pytest.raises(callbox.CompileError, match="only a kernel that is elementwise or has rows has a CUDA twin"):
        callbox.jit(cuda=True)(whole)

    @callbox.jit(elementwise=True, cuda=True)
    def table(x: f32[...], y: f32[...], *, c: f32[k]):
        for i in range(x.size):
            y[i] = x[i] * c[0]

    with pytest.raises(callbox.CompileError, match="a CUDA twin takes scalar attributes, but 'c' is an array"):
        _ = table.ptx

    @callbox.jit(elementwise=True, cuda=True)
    def capped(x: f32, *, most: f32 = float("inf")) -> f32:
        return min(x, most)

    with pytest.raises(callbox.CompileError, match="cannot say the default inf of 'most'"):
        _ = capped.ptx

    @callbox.jit(elementwise=True)
    def plain(x: f32) -> f32:
        return x

    with pytest.raises(callbox.CompileError, match="it was jitted without `cuda=True`"):
        _ = plain.ptx
    assert not plain.target.has_native
    np.testing.assert_array_equal(plain(np.float32([1])), [1])
