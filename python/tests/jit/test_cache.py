"""Compiled kernels on disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

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


def test_constants_that_print_alike_have_entries_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path))
    nans = [np.float64("nan"), -np.float64("nan"), float("nan")]
    for nan in nans:
        assert kernel(nan).wasm
    assert len(os.listdir(tmp_path)) == 3
    with pytest.raises(callbox.CompileError, match="dtype datetime64"):
        assert kernel(np.datetime64("2020-01-01")).wasm


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("earlier", [b"earlier", None])
def test_a_process_that_is_killed_leaves_the_old_or_the_new_module(tmp_path, earlier):
    # A child for each line of the module that saves, which kills it there.
    program = textwrap.dedent("""
        import itertools, os, pathlib, signal, sys
        from callbox._jit import _cache

        path = pathlib.Path(sys.argv[1])
        earlier = path.read_bytes() if path.exists() else None
        new = b"new" * 100_000
        found, asides = [], []
        for steps in itertools.count():
            for aside in {*path.parent.iterdir()} - {path}:
                asides.append(aside.name)
                aside.unlink()
            path.unlink(missing_ok=True) if earlier is None else path.write_bytes(earlier)
            if not (child := os.fork()):
                def trace(frame, event, argument):
                    global steps
                    if frame.f_code.co_filename != _cache.__file__:
                        return None
                    if event == "line":
                        steps -= 1
                        if steps < 0:
                            os.kill(os.getpid(), signal.SIGKILL)
                    return trace

                sys.settrace(trace)
                _cache.save(path, new)
                sys.settrace(None)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            content = path.read_bytes() if path.exists() else None
            assert content in (earlier, new), (steps, content[:10])
            found.append(content == new)
            if status == 0:
                break
            assert os.WTERMSIG(status) == signal.SIGKILL, status
        # All old until one line, and all new from there.
        assert found == sorted(found) and found[-1] and not found[0]
        assert list(path.parent.iterdir()) == [path]
        print(len(found), len(set(asides)), asides[0])
    """)
    path = tmp_path / "kernel.wasm"
    if earlier is not None:
        path.write_bytes(earlier)
        path.chmod(0o640)
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines, count, name = done.stdout.split()
    assert int(lines) > int(count) > 2
    if earlier is not None:
        assert path.stat().st_mode & 0o777 == 0o640
    # What is aside may still be written, until it is an hour old.
    aside, other = tmp_path / name, tmp_path / ".other.wasm.0123456789abcdef"
    for file in (aside, other):
        file.touch()
    kernel(8).save(path)
    assert set(tmp_path.iterdir()) == {path, aside, other}
    for file in (aside, other):
        os.utime(file, (time.time() - 3700,) * 2)
    kernel(8).save(path)
    assert set(tmp_path.iterdir()) == {path, other}
    assert path.read_bytes() == kernel(8).wasm


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    kernel(8).save(pipe)
    assert reader.communicate(timeout=60)[0] == kernel(8).wasm
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


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


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits")
def test_a_disk_with_room_for_no_module(tmp_path):
    # Writing more than the limit fails as on a full disk, in the middle of the file.
    program = textwrap.dedent("""
        import errno, resource, sys, warnings, callbox, numpy as np
        from callbox.types import f32

        @callbox.jit(elementwise=True)
        def f(x: f32) -> f32:
            return x * 3

        assert len(f.wasm) > 256
        f.save(sys.argv[1])

        @callbox.jit(elementwise=True)
        def g(x: f32) -> f32:
            return x * 4

        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (256, hard))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            assert g(np.ones(1, np.float32)) == [4]
        assert "not kept for the next process" in str(warned[0].message), warned
        for path in sys.argv[1:]:
            try:
                g.save(path)
            except OSError as error:
                assert error.errno == errno.EFBIG, error
            else:
                raise AssertionError(path)
    """)
    saved = tmp_path / "kernel.wasm"
    cache = tmp_path / "cache"
    environment = os.environ | {"CALLBOX_JIT_CACHE": str(cache)}
    command = [sys.executable, "-c", program, str(saved), str(tmp_path / "other.wasm")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    # The first module is whole, and nothing else was left.
    assert callbox.Host().load(saved).f(np.ones(1, np.float32)) == [3]
    assert len(os.listdir(cache)) == 1
    assert sorted(os.listdir(tmp_path)) == ["cache", "kernel.wasm"]


def test_a_device_without_room():
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("there is no /dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        kernel(8).save(full)
    # Root could have replaced it.
    assert full.is_char_device()
