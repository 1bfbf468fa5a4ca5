"""Compiling in child processes of the interpreter."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import callbox

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="children that compile need Linux")


def _number(value: int) -> bytes:
    """LEB128."""
    encoded = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        encoded.append(low | (0x80 if value else 0))
        if not value:
            return bytes(encoded)


def _section(number: int, contents: bytes) -> bytes:
    return bytes([number]) + _number(len(contents)) + contents


def _slow(depth: int = 1600, count: int = 400) -> bytes:
    """Nested loops that set each other's locals: kilobytes that take half a minute to compile."""

    def local(number: int) -> bytes:
        return _number(1 + number % count)

    loops = b"".join(
        b"\x03\x40\x20" + local(i) + b"\x20" + local(7 * i + 3) + b"\x6a\x21" + local(i) for i in range(depth)
    )
    ends = b"".join(b"\x20" + local(i) + b"\x0d\x00\x0b" for i in range(depth))
    body = b"\x01" + _number(count) + b"\x7f" + loops + ends + b"\x41\x00\x0b"
    exports = b"\x02\x06memory\x02\x00\x01f\x00\x00"
    return b"".join(
        [
            b"\0asm\x01\0\0\0",
            _section(1, b"\x01\x60\x01\x7f\x01\x7f"),
            _section(3, b"\x01\x00"),
            _section(5, b"\x01\x00\x01"),
            _section(7, exports),
            _section(10, b"\x01" + _number(len(body)) + body),
        ]
    )


@pytest.mark.parametrize(("policy", "place"), [({}, "process"), ({"compile": "this_process"}, "this_process")])
def test_the_policy_says_where(guests, policy, place):
    module = callbox.Host(policy=policy).load(guests / "add_n.wasm")
    assert module.compiled_in == place


def test_the_cache_compiles_nothing(guests, tmp_path):
    for place in ["process", "cache"]:
        host = callbox.Host(cache_dir=tmp_path / "cache")
        assert host.load(guests / "add_n.wasm").compiled_in == place


def test_other_threads_run_while_a_module_is_loaded():
    """In this process, where compiling would hold the GIL the longest."""
    limits = {"function_work": 1 << 40, "module_work": 1 << 40}
    host = callbox.Host(policy={"compile": "this_process", "limits": limits})
    module = _slow(depth=250, count=100)
    began, ended = threading.Event(), threading.Event()

    def load():
        began.set()
        try:
            host.load(module)
        finally:
            ended.set()

    thread = threading.Thread(target=load)
    thread.start()
    began.wait()
    turns = 0
    while not ended.is_set():
        turns += 1
        time.sleep(0.001)
    thread.join()
    # A thread that waits for the GIL has a turn or two before the load and after it.
    assert turns > 10


def test_a_module_that_compiles_too_long_is_stopped_and_refused(guests):
    # A child that is warm: the time in which one starts is not the module's.
    callbox.Host(policy={"compile": "process"}).load(guests / "add_n.wasm")
    # The limits on work would refuse the module before it is compiled.
    limits = {"compile_time_ms": 2000, "function_work": 1 << 40, "module_work": 1 << 40}
    host = callbox.Host(policy={"compile": "process", "limits": limits})

    def blame() -> str:
        with pytest.raises(callbox.CallError, match="compile_time_ms") as error:
            host.load(_slow())
        assert error.value.code == "DEADLINE_EXCEEDED"
        assert error.value.blame in ("caller", "guest")
        return error.value.blame

    # On a busy machine the module does not get the time that would show its cost.
    while blame() != "guest":
        pass
    begun = time.monotonic()
    assert blame() == "guest"
    assert time.monotonic() - begun < 1.5
    other = callbox.Host(policy={"compile": "process"})
    assert other.load(guests / "broadcast_add.wasm").compiled_in == "process"


#: Finds the children of a process, with their states.
CHILDREN = """
import os

def children():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat:
                state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid():
            yield int(name), state
"""

KILLED = """
import signal, sys, threading, time
import callbox

# The kernel then waits for the children.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
limits = {"function_work": 1 << 40, "module_work": 1 << 40}
host = callbox.Host(policy={"compile": "process", "limits": limits})
host.load(os.environ["CALLBOX_GUESTS"] + "/add_n.wasm")

def kill():
    time.sleep(1)
    for child, _ in children():
        os.kill(child, signal.SIGKILL)

threading.Thread(target=kill).start()
try:
    host.load(sys.argv[1])
except callbox.CallError as error:
    print(error.code, "was killed" in error.message)
"""

TURNS = """
import sys, threading, time

# Two threads may be busy then.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import callbox

limits = {"function_work": 1 << 40, "module_work": 1 << 40, "compile_time_ms": 4000}
host = callbox.Host(policy={"compile": "process", "limits": limits})
codes = []

def load(number):
    with open(sys.argv[1], "rb") as file:
        module = file.read()
    try:
        # Another custom section makes another module.
        host.load(module + bytes([0, 2, 1, 97 + number]))
    except callbox.CallError as error:
        codes.append(error.code)

def stopped():
    return {child for child, state in children() if state == "T"}

loads = [threading.Thread(target=load, args=[number]) for number in range(6)]
for thread in loads:
    thread.start()
ever, most = set(), 0
while any(thread.is_alive() for thread in loads):
    ever |= stopped()
    most = max(most, len(stopped()))
    time.sleep(0.01)
assert host.load(os.environ["CALLBOX_GUESTS"] + "/add_n.wasm").compiled_in == "process"
while stopped():
    time.sleep(0.01)
print(sorted(set(codes)), most >= 4, len(ever))
"""


def test_a_compiler_that_was_killed_is_not_its_modules_doing(python, tmp_path):
    path = tmp_path / "slow.wasm"
    path.write_bytes(_slow())
    assert python(CHILDREN + KILLED, str(path)) == "RESOURCE_EXHAUSTED True\n"


def test_modules_that_take_long_take_turns(python, tmp_path):
    path = tmp_path / "slow.wasm"
    path.write_bytes(_slow())
    # Each of the six is stopped at times, and two run. A count can see a turn begin.
    assert python(CHILDREN + TURNS, str(path)) == "['DEADLINE_EXCEEDED'] True 6\n"


def test_a_forked_child_compiles_in_children_of_its_own(python):
    python("""
        import os, warnings
        import callbox

        path = os.environ["CALLBOX_GUESTS"] + "/add_n.wasm"
        host = callbox.Host()
        assert host.load(path).compiled_in == "process"
        warnings.simplefilter("ignore")
        child = os.fork()
        if child == 0:
            assert host.load(path).compiled_in == "process"
            assert callbox.Host().load(path).compiled_in == "process"
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert host.load(path).compiled_in == "process"
    """)


def test_a_forked_child_loads_beside_threads_that_load(python):
    """It does not have the threads that may hold a lock, and waits for none."""
    python("""
        import os, signal, threading, warnings
        import numpy as np
        import callbox

        path = os.environ["CALLBOX_GUESTS"] + "/add_n.wasm"
        host = callbox.Host()
        kernels = host.load(path)
        is_over = False

        def load():
            while not is_over:
                callbox.Host().load(path)
                host.load(path).close()

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        warnings.simplefilter("ignore")
        ended = []
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                host.load(path)
                kernels.add_n(np.ones(1, np.float32), n=1.0)
                os._exit(0)
            ended.append(os.waitpid(child, 0)[1])
        is_over = True
        assert ended == [0] * 20, ended
    """)


def test_a_process_forks_while_its_first_host_is_made(python):
    """The child makes its own, with a compiler of its own."""
    for number in range(8):
        python(f"""
            import os, signal, threading, time, warnings
            import callbox

            path = os.environ["CALLBOX_GUESTS"] + "/add_n.wasm"
            thread = threading.Thread(target=callbox.Host)
            warnings.simplefilter("ignore")
            thread.start()
            time.sleep({number / 4000})
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                assert callbox.Host().load(path).compiled_in == "process"
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            thread.join()
        """)


@pytest.mark.parametrize("executable", [None, "", "/bin/sh", "/no/such/python3"])
def test_without_an_interpreter_modules_are_compiled_here(python, executable):
    python(f"""
        import os, sys
        sys.executable = {executable!r}
        import callbox

        path = os.environ["CALLBOX_GUESTS"] + "/add_n.wasm"
        assert callbox.Host().load(path).compiled_in == "this_process"
        try:
            callbox.Host(policy={{"compile": "process"}}).load(path)
        except callbox.CallError as error:
            assert error.code == "UNAVAILABLE", error
        else:
            raise AssertionError
    """)


def test_children_run_no_code_of_the_user(python, tmp_path, monkeypatch):
    started = tmp_path / "started"
    program = f"""
        import sys
        with open({str(started)!r}, "a") as file:
            print(sys.argv, file=file)
    """
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(program))
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    python("""
        import os
        import callbox

        path = os.environ["CALLBOX_GUESTS"] + "/add_n.wasm"
        assert callbox.Host().load(path).compiled_in == "process"
    """)
    # The parent alone.
    assert len(started.read_text().splitlines()) == 1


_GIVES_UP_ROOT = """
import os, sys, time
import callbox

def users():
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/status") as status:
                fields = dict(line.split(":", 1) for line in status)
        except OSError:
            continue
        if fields["PPid"].strip() == str(os.getpid()) and fields["State"].split()[0] != "Z":
            found.append(fields["Uid"].split()[0])
    return found

modules = [open(path, "rb").read() for path in sys.argv[1:]]
host = callbox.Host()
assert host.load(modules[0]).compiled_in == "process"
assert "0" in users()
os.setgid(65534)
os.setuid(65534)
try:
    host.load(modules[1])
except callbox.CallError as error:
    # Python may lie where that user may not look.
    assert "Permission denied" in str(error), error
end = time.monotonic() + 30
while "0" in users():
    assert time.monotonic() < end, users()
    time.sleep(0.01)
"""


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give up root")
def test_a_process_that_gave_up_root_uses_no_compiler_of_root(guests):
    """It could not end it."""
    paths = [str(guests / name) for name in ("add_n.wasm", "activation.wasm")]
    ran = subprocess.run([sys.executable, "-c", _GIVES_UP_ROOT, *paths], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
