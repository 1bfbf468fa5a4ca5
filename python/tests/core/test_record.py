"""`callbox.record`: capsules of calls from Python."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callbox

DTYPES = {"U8": "u1", "F32": "<f4", "I32": "<i4"}


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON and the arrays of a capsule."""
    contents = path.read_bytes()
    (size,) = struct.unpack("<Q", contents[:8])
    header = json.loads(contents[8 : 8 + size])
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            data = contents[8 + size + start : 8 + size + end]
            arrays[name] = np.frombuffer(data, DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return json.loads(arrays["capsule"].tobytes()), arrays


def test_a_call_that_fails_is_recorded(host, guests, tmp_path, capfd):
    kernels = host.load(guests / "add_n.wasm")
    x = np.arange(4, dtype=np.float32)
    with callbox.record(tmp_path / "new" / "c") as recording:
        kernels.add_n(x, n=1.0)
        assert recording.capsules == []
        with pytest.raises(callbox.CallError) as caught:
            kernels.add_n(x, n=-1.0, deadline=5.0)
        (path,) = recording.capsules
    with pytest.raises(callbox.CallError):
        kernels.add_n(x, n=-2.0)
    assert list((tmp_path / "new" / "c").iterdir()) == [path]
    shown = capfd.readouterr().err
    assert f"{path}, holds the module add_n.wasm, the operands (f32[4]) and the attributes {{n = -1.0" in shown
    assert shown.count("holds the module") == 1

    record, arrays = read(path)
    assert sorted(arrays) == ["capsule", "module", "operand.0"]
    assert np.array_equal(arrays["operand.0"], x)
    assert record["module"] == {"file": "add_n.wasm", "sha256": kernels.digest}
    assert record["target"] == "add_n"
    assert record["deadline_ms"] == 5000
    assert record["policy"] == host.policy
    assert record["status"]["code"] == "INVALID_ARGUMENT"
    # The capsule has what it takes to make the call again.
    copy = tmp_path / "add_n.wasm"
    copy.write_bytes(arrays["module"].tobytes())
    again = callbox.Host(policy=record["policy"]).load(copy)
    with pytest.raises(callbox.CallError) as repeated:
        again[record["target"]](arrays["operand.0"], n=-1.0)
    assert repeated.value.message == caught.value.message
    assert record["status"]["message"] == caught.value.message


def test_links_in_the_folder_are_not_followed(host, guests, tmp_path):
    kernels = host.load(guests / "add_n.wasm")
    x = np.arange(4, dtype=np.float32)

    def record(folder):
        with callbox.record(folder, every=1) as recording:
            kernels.add_n(x, n=1.0)
        (path,) = recording.capsules
        return path

    name = record(tmp_path / "learned").name
    victim = tmp_path / "victim"
    victim.write_text("before")
    folder = tmp_path / "shared"
    folder.mkdir()
    for number in range(2000):
        (folder / f"{name}.{os.getpid()}.{number}.part").symlink_to(victim)
    capsule = record(folder)
    assert victim.read_text() == "before"
    assert not capsule.is_symlink()
    assert read(capsule)[0]["target"] == "add_n"


def test_each_nth_call_is_recorded_with_the_operands_before_it(host, guests, tmp_path):
    kernels = host.load(guests / "add_n.wasm")
    x = np.arange(4, dtype=np.float32)
    with callbox.record(tmp_path, every=2) as recording:
        for _ in range(5):
            kernels.add_n(x, n=1.0, out=x)
    found = [read(path)[1] for path in recording.capsules]
    assert [arrays["operand.0"][0] for arrays in found] == [1.0, 3.0]
    assert [arrays["result.0"][0] for arrays in found] == [2.0, 4.0]


def test_a_failure_that_is_a_result_is_recorded(host, guests, tmp_path):
    jax = pytest.importorskip("jax")
    import callbox.jax

    op = callbox.jax.op(host.load(guests / "add_n.wasm").add_n, on_error="status")
    x = jax.numpy.arange(4, dtype="float32")
    with callbox.record(tmp_path) as recording:
        op(x, n=-1.0)[1].block_until_ready()
    (path,) = recording.capsules
    record, arrays = read(path)
    assert record["status"]["code"] == "INVALID_ARGUMENT"
    assert np.array_equal(arrays["operand.0"], x)


def test_batches_and_grants_are_not_recorded(guests, tmp_path, capfd):
    host = callbox.Host(policy={"grants": {"clock": True}})
    kernels = host.load(guests / "add_n.wasm")
    with callbox.record(tmp_path) as recording, pytest.raises(callbox.CallError):
        kernels.add_n(np.zeros(2, np.float32), n=-1.0)
    assert recording.capsules == []
    message = "a call of add_n is not recorded: UNIMPLEMENTED: a capsule cannot carry directories, clocks"
    assert message in capfd.readouterr().err


def test_a_recording_writes_at_most_100_files(host, guests, tmp_path, capfd):
    kernels = host.load(guests / "add_n.wasm")
    with callbox.record(tmp_path, every=1) as recording:
        for i in range(102):
            kernels.add_n(np.full(1, i, np.float32), n=1.0)
    assert len(recording.capsules) == 100
    assert capfd.readouterr().err.count("only the first 100 calls are recorded") == 1


def test_mistakes_are_told(tmp_path):
    with pytest.raises(ValueError, match="expected every to be at least 1, found 0"):
        callbox.record(tmp_path, every=0)
    with pytest.raises(ValueError, match="expected every to be at least 1, found -1"):
        callbox.record(tmp_path, every=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="cannot make the folder .*/file.*exists"):
        callbox.record(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match='cannot make the folder ""'):
        callbox.record("")
    with callbox.record(tmp_path), pytest.raises(RuntimeError, match="close that recording first"):
        callbox.record(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    recording = callbox.record(tmp_path)
    recording.close()
    with pytest.raises(RuntimeError, match="the recording is closed"), recording:
        pass


LIMITED = """
import resource, sys
import numpy as np
import callbox
add_n = callbox.Host().load(sys.argv[1]).add_n
x = np.zeros(50 << 20, np.float32)
out = np.empty_like(x)
add_n(x, n=1.0, out=out)
callbox.record(sys.argv[2])
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + (100 << 20), resource.RLIM_INFINITY))
add_n(x, n=1.0, out=out)
print(out[-1])
"""


def test_a_call_for_which_there_is_no_memory_is_not_recorded(guests, tmp_path):
    program = [sys.executable, "-c", LIMITED, guests / "add_n.wasm", tmp_path / "capsules"]
    ran = subprocess.run(program, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "1.0\n"), ran.stderr
    assert "a call of add_n is not recorded: RESOURCE_EXHAUSTED: " in ran.stderr


CONCURRENT = """
import resource, sys, threading
import numpy as np
import callbox

def leb128(number):
    return bytes((number >> 7 * at & 127) | (128 if at < 3 else 0) for at in range(4))

# More than glibc keeps for a thread that had it.
padding = b"\\x01x" + bytes(34 << 20)
with open(sys.argv[1], "rb") as file:
    module = file.read() + b"\\0" + leb128(len(padding)) + padding
add_n = callbox.Host().load(module).add_n
del module, padding
x = np.zeros(4, np.float32)
add_n(x, n=1.0)
recording = callbox.record(sys.argv[2])
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
ready = threading.Barrier(8)

def work(number):
    ready.wait()
    try:
        add_n(x, n=-1.0 - number)
    except callbox.CallError as error:
        assert error.code == "INVALID_ARGUMENT", error

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
# For the stacks of the threads, and for two capsules beside what must be left.
resource.setrlimit(resource.RLIMIT_DATA, (used + (340 << 20), resource.RLIM_INFINITY))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(recording.capsules))
"""


def test_concurrent_calls_are_recorded_one_after_the_other(guests, tmp_path):
    program = [sys.executable, "-c", CONCURRENT, guests / "add_n.wasm", tmp_path / "capsules"]
    ran = subprocess.run(program, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "8\n"), ran.stderr


_FORKS = """
import os, signal, sys, threading
import numpy as np
import callbox

host = callbox.Host()
kernels = host.load(sys.argv[1])
x = np.zeros(1 << 16, np.float32)
is_over = False

def record():
    while not is_over:
        kernels.add_n(x, n=1.0)

with callbox.record(sys.argv[2], every=1) as recording:
    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(12):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            kernels.add_n(x + number, n=1.0)
            os._exit(0 if len(recording.capsules) <= 1 else 3)
        ended = os.waitpid(child, 0)[1]
        if ended:
            print(number, ended)
            break
    is_over = True
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
def test_a_forked_child_waits_for_no_thread_that_records(guests, tmp_path):
    """It does not have that thread."""
    arguments = [sys.executable, "-W", "ignore", "-c", _FORKS, guests / "add_n.wasm", tmp_path / "capsules"]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr[-2000:]
