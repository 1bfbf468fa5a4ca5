"""Compiled kernels on disk."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import callbox
from callbox._jit import _cache, _worker
from callbox.types import f32

SOURCE = """
import sys, callbox, numpy as np
from callbox.types import f32

{padding}
@callbox.jit(elementwise=True)
def {name}(x: f32) -> f32:
    return x * {factor}

print({name}(np.ones(3, np.float32)).tolist(), {name}.module.digest)
"""


def start(path, folder, name="f", factor=3, padding=""):
    path.write_text(SOURCE.format(name=name, factor=factor, padding=padding))
    environment = os.environ | {"CALLBOX_JIT_CACHE": str(folder)}
    return subprocess.Popen([sys.executable, str(path)], env=environment, stdout=subprocess.PIPE, text=True)


def test_two_processes_compile_the_same_source_at_once(tmp_path):
    folder = tmp_path / "cache"
    both = [start(tmp_path / f"{i}.py", folder) for i in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("[3.0, 3.0, 3.0] ")
    # One entry, and nothing that was written aside.
    assert len(os.listdir(folder)) == 1
    # The same source elsewhere in another file is the same kernel; another factor is another.
    assert start(tmp_path / "moved.py", folder, padding="\n\n").communicate()[0] == outputs[0]
    assert len(os.listdir(folder)) == 1
    assert start(tmp_path / "other.py", folder, factor=4).communicate()[0].startswith("[4.0, 4.0, 4.0] ")
    assert len(os.listdir(folder)) == 2


def kernel(factor):
    def g(x: f32) -> f32:
        return x * factor

    return callbox.jit(elementwise=True)(g)


def test_an_entry_replaces_compiling(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path))
    module = kernel(5).wasm
    (entry,) = tmp_path.iterdir()
    monkeypatch.setattr(_worker.WORKER, "compile", lambda *_: pytest.fail("it was compiled again"))
    assert kernel(5).wasm == module
    monkeypatch.undo()
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path))
    # A damaged entry is compiled again.
    entry.write_bytes(entry.read_bytes()[:-1])
    assert kernel(5).wasm == module
    assert _cache.find(entry.name) == module


def test_a_full_disk(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path / "cache"))
    saved = tmp_path / "kernel.wasm"
    saved.write_bytes(b"before")
    monkeypatch.setattr(_cache.os, "replace", full)
    compiled = kernel(6)
    with pytest.warns(UserWarning, match="not kept for the next process: .*No space left on device"):
        np.testing.assert_array_equal(compiled(np.ones(2, np.float32)), [6, 6])
    with pytest.raises(OSError, match="No space left"):
        compiled.save(saved)
    assert saved.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["cache", "kernel.wasm"]
