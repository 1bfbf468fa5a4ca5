"""`callbox.load`: modules in `.wasm` files, and beside weights in `.safetensors` files."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import callbox

WEIGHTS = np.arange(3, dtype=np.float32).tobytes()


def file_of(header: dict[str, object] | bytes, elements: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + elements


def tensor(start: int, size: int, dtype: str = "U8") -> dict[str, object]:
    return {"dtype": dtype, "shape": [size], "data_offsets": [start, start + size]}


@pytest.fixture
def add_n(guests: Path) -> bytes:
    return (guests / "add_n.wasm").read_bytes()


@pytest.fixture
def model(add_n: bytes, tmp_path: Path):
    """Writes a model with modules of these names."""

    def model(*names: str) -> Path:
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        header["callbox_weights"] = {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}
        elements = WEIGHTS
        for name in names:
            header[f"callbox.{name}"] = tensor(len(elements), len(add_n))
            elements += add_n
        path = tmp_path / "model.safetensors"
        path.write_bytes(file_of(header, elements))
        return path

    return model


def test_a_module_beside_weights_is_loaded_by_its_file_or_its_name(model, add_n, host):
    digest = hashlib.sha256(add_n).hexdigest()
    x = np.zeros(2, np.float32)
    np.testing.assert_array_equal(callbox.load(model("add-n")).add_n(x, n=2.0), x + 2)
    kernels = callbox.load(model("add-n", "other"), "other", host=host, digest=digest)
    assert kernels.digest == digest
    kernels.add_n(x, n=1.0)
    assert host.stats()["calls"] == 1
    assert callbox.load(str(model("add-n")), "add-n") == callbox.load(model("add-n"))


def test_a_module_alone_is_loaded_too(guests, tmp_path, add_n):
    assert list(callbox.load(guests / "add_n.wasm")) == ["add_n"]
    with pytest.raises(ValueError, match="the file is a module: it has no package 'x'"):
        callbox.load(guests / "add_n.wasm", "x")
    with pytest.raises(FileNotFoundError):
        callbox.load(tmp_path / "none.safetensors")


def test_a_path_may_have_bytes_that_are_no_text(tmp_path, add_n):
    path = os.fsencode(tmp_path) + b"/\xff.wasm"
    with open(path, "wb") as file:
        file.write(add_n)
    for name in [path, os.fsdecode(path)]:
        assert list(callbox.load(name)) == ["add_n"]


@pytest.mark.parametrize(
    ("kind", "error", "found"),
    [(stat.S_IFIFO, OSError, "a FIFO"), (stat.S_IFSOCK, OSError, "a socket"), (0, IsADirectoryError, "a directory")],
)
def test_only_regular_files_are_opened(tmp_path, host, kind, error, found):
    """Opening a FIFO without a writer would not return."""
    path = tmp_path / "k.wasm"
    if kind:
        os.mknod(path, kind | 0o600)
    else:
        path.mkdir()
    link = tmp_path / "link.wasm"
    link.symlink_to(path)
    for load in (callbox.load, host.load):
        for name in (path, link):
            with pytest.raises(error) as caught:
                load(name)
            assert str(caught.value) == f"cannot read {name}: expected a regular file, found {found}"


def test_a_device_is_not_opened(host):
    for load in (callbox.load, host.load):
        with pytest.raises(OSError, match="^cannot read /dev/zero: expected a regular file, found a device$"):
            load("/dev/zero")


def fails(code: str, message: str, *args: object, **options: object) -> None:
    with pytest.raises(callbox.CallError) as caught:
        callbox.load(*args, **options)  # type: ignore[arg-type]
    assert (caught.value.code, message in caught.value.message) == (code, True), str(caught.value)
    assert str(caught.value).isprintable()


def test_a_module_that_is_not_there_or_not_wanted_is_refused(model):
    fails("NOT_FOUND", "the file has no package: a U8 tensor `callbox.NAME` is one", model())
    fails("NOT_FOUND", "the file has no package 'b'", model("a"), "b")
    fails("INVALID_ARGUMENT", "expected name=, one of 'a', 'b'", model("b", "a"))
    fails("PERMISSION_DENIED", f"expected the digest {'0' * 64}, found ", model("a"), digest="0" * 64)
    small = callbox.Host(policy={"limits": {"module_bytes": 100}})
    fails("RESOURCE_EXHAUSTED", "expected a module of at most 100 bytes (`module_bytes`)", model("a"), host=small)


def test_arguments_of_the_wrong_kind_are_told(guests):
    path = guests / "add_n.wasm"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert callbox.load(os.fsencode(path), digest=digest).digest == digest
    for wrong in (digest.upper(), f"sha256:{digest}", digest[:-1], ""):
        fails("INVALID_ARGUMENT", f"64 lower-case hexadecimal digits as digest, found '{wrong}'", path, digest=wrong)
    for options, message in (
        ({"digest": 7}, "expected a str as digest, found int"),
        ({"host": "x"}, "expected a callbox.Host as host, found str"),
    ):
        with pytest.raises(TypeError, match=message):
            callbox.load(path, **options)  # type: ignore[arg-type]


def test_a_lock_holds_for_packages_beside_weights(model, add_n, tmp_path):
    lock = tmp_path / "callbox.lock"

    def locked(file: str, digest: str = hashlib.sha256(add_n).hexdigest()) -> None:
        # As `callbox lock model.safetensors` writes it.
        entry = {"file": file, "digest": digest, "size": len(add_n)}
        lock.write_text(json.dumps({"format": 1, "files": [entry]}))

    x = np.zeros(2, np.float32)
    path = model("add-n", "other")
    locked("model.safetensors#callbox.add-n")
    np.testing.assert_array_equal(callbox.load(path, "add-n", lock=lock).add_n(x, n=2.0), x + 2)
    missing = f"{path}#callbox.other is not in {lock}: `callbox lock` writes it down"
    fails("PERMISSION_DENIED", missing, path, "other", lock=lock)
    # Through a link, and in a file with another end, which Python reads too.
    link = tmp_path / "link.safetensors"
    link.symlink_to(path)
    callbox.load(link, "add-n", lock=lock)
    other = path.rename(tmp_path / "weights.bin")
    fails("PERMISSION_DENIED", f"{other}#callbox.add-n is not in {lock}", other, "add-n", lock=lock)
    locked("weights.bin#callbox.add-n")
    callbox.load(other, "add-n", lock=lock)
    locked("weights.bin#callbox.add-n", "0" * 64)
    fails("PERMISSION_DENIED", f"found {len(add_n)} bytes, ", other, "add-n", lock=lock)
    # The entry of a file is none of a package in it.
    locked("weights.bin")
    fails("PERMISSION_DENIED", "is not in", other, "add-n", lock=lock)
    fails("NOT_FOUND", "expected to read", other, "add-n", lock=tmp_path / "none.lock")


@pytest.mark.parametrize(
    "info",
    [
        tensor(0, 8, "I8"),
        tensor(0, 9),
        tensor(-1, 8),
        {**tensor(0, 8), "shape": [2, 4]},
        {**tensor(0, 8), "data_offsets": [8, 0]},
        {**tensor(0, 8), "data_offsets": [0.0, 8.0]},
        {**tensor(0, 8), "data_offsets": [False, 8]},
        {"dtype": "U8"},
        7,
    ],
)
def test_a_tensor_that_is_no_module_is_refused(tmp_path, info):
    path = tmp_path / "m.safetensors"
    path.write_bytes(file_of({"callbox.k": info}, bytes(8)))
    fails("INVALID_ARGUMENT", "expected a U8 tensor of one dimension inside the file for 'callbox.k'", path)


@pytest.mark.parametrize(
    ("contents", "code", "message"),
    [
        (b"", "INVALID_ARGUMENT", "expected a .wasm or a .safetensors file"),
        (b"\0\0\0\0\0\0\0\x80{}", "INVALID_ARGUMENT", "expected a .wasm or a .safetensors file"),
        (file_of(b"[]", b""), "INVALID_ARGUMENT", "expected an object"),
        (file_of(b"{", b""), "INVALID_ARGUMENT", "header of the .safetensors file: "),
        (file_of(b"\xff", b""), "INVALID_ARGUMENT", "header of the .safetensors file: "),
        (file_of(b"[" * 200_000, b""), "INVALID_ARGUMENT", "header of the .safetensors file: "),
        (file_of(b'{"a": 1, "a": 2}', b""), "INVALID_ARGUMENT", "a key occurs twice"),
        (file_of(b" " * ((16 << 20) + 1), b""), "RESOURCE_EXHAUSTED", "expected a header of at most 16777216 bytes"),
        (file_of({"callbox.k": tensor(0, 8)}, b"no wasm."), "INVALID_ARGUMENT", ""),
        (file_of({"callbox.k": tensor(0, 0)}, b""), "INVALID_ARGUMENT", ""),
    ],
)
def test_damaged_files_are_refused(tmp_path, contents, code, message):
    path = tmp_path / "m.safetensors"
    path.write_bytes(contents)
    fails(code, message, path)


def large(add_n: bytes, path: Path) -> Path:
    """Writes a module with a custom section of 40 MiB."""
    size = 40 << 20
    section = [0x80 | size & 0x7F, 0x80 | size >> 7 & 0x7F, 0x80 | size >> 14 & 0x7F, size >> 21]
    path.write_bytes(add_n + b"\0" + bytes(section) + b"\0" * size)
    return path


LIMITED = """
import callbox, resource, sys
host = callbox.Host()
path, left = sys.argv[1], int(sys.argv[2])
source = open(path, "rb").read()
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + left, used + left))
for load in (lambda: callbox.load(path, host=host), lambda: host.load(path), lambda: host.load(source)):
    try:
        load()
    except MemoryError as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize("mebibytes", [2, 20])
def test_a_file_may_be_larger_than_the_memory_that_is_left(add_n, tmp_path, mebibytes):
    path = large(add_n, tmp_path / "large.wasm")
    command = [sys.executable, "-c", LIMITED, path, str(mebibytes << 20)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == ["MemoryError"] * 3


def test_the_process_may_end_while_a_thread_loads(add_n, tmp_path):
    """A thread that waits for the GIL then must have no frames of Rust."""
    path = large(add_n, tmp_path / "large.wasm")
    program = f"""
import callbox, sys, threading, time
callbox.load({str(path.parent / "small.wasm")!r})
threading.Thread(target=lambda: callbox.load({str(path)!r}), daemon=True).start()
time.sleep(float(sys.argv[1]))
"""
    (tmp_path / "small.wasm").write_bytes(add_n)
    for seconds in (0.002, 0.006, 0.01, 0.02):
        ran = subprocess.run([sys.executable, "-c", program, str(seconds)], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, ""), seconds


@pytest.mark.parametrize(
    "read",
    [
        "module.add_n.__signature__",
        "host.policy",
        "module.policy",
        "dir(module)",
        "callbox._callbox.shown_path(Path())",
        "callbox._callbox.names_of_file(Path())",
    ],
)
def test_the_process_may_end_while_threads_read(guests, read):
    program = f"""
import callbox, threading, time
host = callbox.Host()
module = host.load({str(guests / "add_n.wasm")!r})
class Path:
    def __fspath__(self):
        return "".join(chr(97 + i % 3) for i in range(100))
def body():
    while True:
        {read}
for _ in range(4):
    threading.Thread(target=body, daemon=True).start()
time.sleep(0.05)
"""
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, "")


def test_an_exit_handler_may_wait_for_calls(guests):
    """One that was registered before callbox's own runs after it."""
    program = f"""
import atexit, queue, sys, threading
import numpy as np
work = queue.Queue()
def worker():
    while True:
        call = work.get()
        call()
        work.task_done()
threading.Thread(target=worker, daemon=True).start()
atexit.register(lambda: (work.join(), print("done")))
import callbox
add_n = callbox.Host().load({str(guests / "add_n.wasm")!r}).add_n
for _ in range(20000):
    work.put(lambda: add_n(np.ones(3, np.float32), n=1.0))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


def test_messages_have_no_control_characters_of_a_path(tmp_path):
    path = tmp_path / "a\x1b[31m\u202e\nb.wasm"
    path.write_bytes(b"\0asm")
    (tmp_path / "c.json").write_text("{}")
    (tmp_path / "c.json").rename(tmp_path / "c\x1b.json")
    host = callbox.Host()
    for load in (
        lambda: callbox.load(path),
        lambda: callbox.load(path, digest="0" * 64),
        lambda: callbox.load(path, name="x"),
        lambda: host.load(path),
        lambda: host.load(path, native=tmp_path / "c\x1b.json"),
        lambda: host.load(path, native=tmp_path / "d\x1b.json"),
    ):
        with pytest.raises((callbox.CallError, OSError)) as caught:
            load()
        assert str(caught.value).isprintable(), ascii(caught.value)
