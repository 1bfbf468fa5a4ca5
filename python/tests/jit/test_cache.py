"""Compiled kernels on disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time

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


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have owners and modes on POSIX alone")
def test_what_another_user_could_have_written_is_no_entry(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path))
    module = kernel(7).wasm
    (entry,) = tmp_path.iterdir()
    assert entry.stat().st_mode & 0o777 == 0o600
    assert _cache.find(entry.name) == module
    for path in (entry, tmp_path):
        kept = path.stat().st_mode
        for writers in (0o020, 0o002):
            path.chmod(kept | writers)
            assert _cache.find(entry.name) is None
        if path == tmp_path:
            with pytest.warns(UserWarning, match="not kept for the next process: .* others may write to it"):
                _cache.keep("other", module)
        path.chmod(kept)
    assert _cache.find(entry.name) == module
    monkeypatch.setattr(_cache.os, "geteuid", lambda: entry.stat().st_uid + 1)
    if entry.stat().st_uid != 0:
        assert _cache.find(entry.name) is None
    monkeypatch.undo()
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path))
    # An entry under another key, a link to an entry, and a FIFO, whose writer is not waited for.
    os.link(entry, tmp_path / "linked")
    (tmp_path / "link").symlink_to(entry)
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert [_cache.find(name) for name in ("linked", "link", "fifo")] == [None] * 3
    assert kernel(7).wasm == module


def test_what_a_killed_process_was_writing_is_deleted(tmp_path, monkeypatch):
    killed = "import os\nos.replace = lambda *_: os.kill(os.getpid(), 9)\n"
    process = start(tmp_path / "killed.py", tmp_path / "cache", padding=killed)
    process.communicate()
    assert process.returncode == -9
    (aside,) = (tmp_path / "cache").iterdir()
    assert re.fullmatch(r"\.[0-9a-f]{64}\.[0-9a-f]{16}", aside.name)
    other = tmp_path / "cache" / ".other"
    other.touch()
    os.utime(other, (0, 0))
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path / "cache"))
    # It may still be written, until it is an hour old.
    kernel(9).wasm  # noqa: B018
    assert aside.exists()
    os.utime(aside, (time.time() - 3700,) * 2)
    kernel(10).wasm  # noqa: B018
    assert not aside.exists()
    # The two entries, and a file that is none.
    assert other.exists()
    assert len(os.listdir(tmp_path / "cache")) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_compiles_on_its_own(tmp_path):
    program = textwrap.dedent("""
        import os, callbox, numpy as np
        from callbox._jit._worker import WORKER
        from callbox.types import f32

        def kernel(factor):
            @callbox.jit(elementwise=True)
            def f(x: f32) -> f32:
                return x * factor
            return f

        ones = np.ones(1, np.float32)
        kernel(2)(ones)
        parents = WORKER.process
        # As if another thread compiled: a copy of its lock is never released.
        with WORKER.lock:
            child = os.fork()
        if not child:
            print(kernel(3)(ones), WORKER.process is not parents, flush=True)
            WORKER.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(kernel(4)(ones), WORKER.process is parents)
    """)
    environment = os.environ | {"CALLBOX_JIT_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[3.] True\n[4.] True\n", done.stderr


def test_a_saved_module_has_the_mode_of_a_new_file(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path / "cache"))
    new = tmp_path / "new"
    new.touch()
    # The umask belongs to all threads: no one may set it, not even for a moment.
    monkeypatch.setattr(_cache.os, "umask", lambda _: pytest.fail("it set the umask"))
    kernel(8).save(tmp_path / "kernel.wasm")
    assert (tmp_path / "kernel.wasm").stat().st_mode == new.stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "kernel.wasm", "new"]


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
