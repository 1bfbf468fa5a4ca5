"""`Module.close`, and the memory that idle call sites give back."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import callbox

X = np.arange(3, dtype=np.float32)
CLOSED = "FAILED_PRECONDITION: add_n.wasm: the module is closed"


def test_a_closed_module_refuses_calls(host, guests):
    kernels = host.load(guests / "add_n.wasm")
    add_n = kernels.add_n
    add_n(X, n=1.0)
    assert not kernels.closed
    kernels.close()
    assert kernels.closed
    for call in (lambda: add_n(X, n=1.0), lambda: add_n(X, n=2.0), lambda: kernels.add_n(X[:2], n=1.0)):
        with pytest.raises(callbox.CallError, match=CLOSED) as caught:
            call()
        assert caught.value.blame == "caller"
    with pytest.raises(callbox.CallError, match=CLOSED):
        kernels.compiled_in  # noqa: B018  the getter fails
    kernels.close()
    assert add_n.name == "add_n"
    assert kernels.to_bytes() == (guests / "add_n.wasm").read_bytes()


def test_a_closed_module_is_not_registered(host, guests):
    kernels = host.load(guests / "add_n.wasm")
    kernels.close()
    with pytest.raises(callbox.CallError, match=CLOSED):
        kernels.register()


def test_other_modules_of_the_file_stay_open(host, guests):
    one, other = (host.load(guests / "add_n.wasm") for _ in range(2))
    one.close()
    np.testing.assert_array_equal(other.add_n(X, n=1.0), X + 1)
    again = host.load(guests / "add_n.wasm")
    other.close()
    np.testing.assert_array_equal(again.add_n(X, n=1.0), X + 1)


def test_a_module_is_closed_at_the_end_of_its_block(host, guests):
    with host.load(guests / "add_n.wasm") as kernels:
        kernels.add_n(X, n=1.0)
    assert kernels.closed
    with pytest.raises(ZeroDivisionError), host.load(guests / "add_n.wasm") as kernels:
        1 / 0  # noqa: B018
    assert kernels.closed


def test_a_pickle_of_a_closed_module_names_none(guests):
    host = callbox.Host(policy={"limits": {"deadline_ms": 5432}})
    kernels = host.load(guests / "add_n.wasm")
    pickled = pickle.dumps(kernels.add_n)
    kernels.close()
    with pytest.raises(callbox.CallError, match=r"NOT_FOUND: unpickling add_n\.wasm"):
        pickle.loads(pickled)


def test_calls_that_run_when_a_module_is_closed_end_as_usual(guests):
    faults = callbox.Host().load(guests / "faults.wasm")
    ended = []

    def call():
        try:
            faults.infinite_loop(X, result_shape_dtypes=X, deadline=1.0)
        except callbox.CallError as error:
            ended.append(error.code)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    faults.close()
    for thread in threads:
        thread.join()
    # A thread that the machine started late finds the module closed.
    assert len(ended) == 4
    assert set(ended) <= {"DEADLINE_EXCEEDED", "FAILED_PRECONDITION"}


def test_closing_from_many_threads(host, guests):
    kernels = host.load(guests / "add_n.wasm")
    wrong = []

    def work(number):
        for i in range(200):
            try:
                if number == 0 and i == 50:
                    kernels.close()
                kernels.add_n(X, n=float(i))
            except callbox.CallError as error:
                if error.code != "FAILED_PRECONDITION":
                    wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert kernels.closed


def test_the_policy_of_a_module_is_its_hosts(guests):
    host = callbox.Host(policy={"limits": {"deadline_ms": 1234}})
    kernels = host.load(guests / "add_n.wasm")
    assert kernels.policy == host.policy
    assert kernels.policy["limits"]["deadline_ms"] == 1234


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def eventually(condition) -> bool:
    until = time.monotonic() + 60
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


MIB = 1 << 20


def whole(guests, **options) -> callbox.Module:
    """A module whose calls take all arrays into an instance."""
    return callbox.Host(**options).load(guests / "softmax.wasm")


def make_large_calls(module) -> None:
    """Leaves at least 100 MiB in an idle instance."""
    x = np.zeros((1, 12 * MIB), np.float32)
    module.softmax(x)


@pytest.mark.parametrize("how", ["idle", "closed"])
def test_memory_is_given_back(guests, how):
    gc.collect()
    module = whole(guests, idle_seconds=0.05 if how == "idle" else None, idle_bytes=0)
    before = resident_bytes()
    make_large_calls(module)
    if how == "closed":
        # Without a limit the memory stays.
        assert resident_bytes() - before > 60 * MIB
        module.close()
    assert eventually(lambda: resident_bytes() - before < 30 * MIB), (resident_bytes() - before) // MIB
    if how == "idle":
        make_large_calls(module)


def test_memory_of_calls_from_many_threads_is_given_back(guests):
    """Each thread has an instance of its own, and all are idle together."""
    gc.collect()
    module = whole(guests, idle_seconds=0.05, idle_bytes=0)
    before = resident_bytes()
    threads = [threading.Thread(target=make_large_calls, args=(module,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert eventually(lambda: resident_bytes() - before < 60 * MIB), (resident_bytes() - before) // MIB


@pytest.fixture
def hoarder(assemble) -> bytes:
    """A guest whose target `f` grows its memory by 100 MiB, and writes to it, in each call."""
    grows = (
        b"\x41\xc0\x0c\x40\x00\x21\x00"  # local.set 0 (memory.grow (i32.const 1600))
        b"\x20\x00\x41\x7f\x46\x04\x40\x41\x08\x0f\x0b"  # if (i32.eq (local.get 0) (i32.const -1)) return 8
        b"\x20\x00\x41\x10\x74\x41\x01\x41\x80\x80\x80\x32\xfc\x0b\x00"  # memory.fill (shl 0 16) 1 (100 << 20)
        b"\x41\x00"
    )
    return assemble({"f": grows}, [{"name": "f"}])


def hoard(module, shapes: int) -> None:
    """Calls with different shapes, each of which has a call site of its own."""
    for size in range(1, shapes + 1):
        module.f(np.zeros(size, np.float32), result_shape_dtypes=("float32", (size,)))


def test_memory_to_which_a_guest_has_grown_is_given_back(hoarder):
    gc.collect()
    before = resident_bytes()
    module = callbox.Host(idle_seconds=0.05, idle_bytes=0).load(hoarder)
    hoard(module, 3)
    assert eventually(lambda: resident_bytes() - before < 60 * MIB), (resident_bytes() - before) // MIB


@pytest.mark.parametrize(("limits", "most"), [({}, 512 + 100), ({"executable_memory_bytes": 256 * MIB}, 256)])
def test_the_memory_of_all_shapes_is_limited(hoarder, limits, most):
    """Idle call sites give way to others, also where none is dropped for being idle."""
    gc.collect()
    before = resident_bytes()
    module = callbox.Host(policy={"limits": limits}, idle_seconds=None).load(hoarder)
    hoard(module, 12)
    # Memory is freed in the background.
    assert eventually(lambda: resident_bytes() - before < (most + 60) * MIB), (resident_bytes() - before) // MIB


def test_idle_call_sites_within_the_limit_stay(counter):
    """The counter of an instance begins again where the instance is a new one."""
    count = callbox.Host(idle_seconds=0.01, idle_bytes=16 * MIB).load(counter).count
    for number in range(1, 6):
        assert int(count(result_shape_dtypes=("int32", ()))) == number
        time.sleep(0.1)


def counted(count) -> int:
    return int(count(result_shape_dtypes=("int32", ())))


def test_an_idle_call_site_is_dropped(counter):
    count = callbox.Host(idle_seconds=0.01, idle_bytes=0).load(counter).count
    assert counted(count) == 1
    # Each pause is one in which the call site is idle, however busy the machine is.
    assert eventually(lambda: (time.sleep(0.2), counted(count) == 1)[1])


def test_loads_do_not_put_off_the_drop_of_a_call_site(counter, guests):
    host = callbox.Host(idle_seconds=0.2, idle_bytes=0)
    count = host.load(counter).count
    assert counted(count) == 1

    def begins_again() -> bool:
        for _ in range(20):
            host.load(guests / "add_n.wasm")
            time.sleep(0.02)
        return counted(count) == 1

    assert eventually(begins_again)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_times_that_are_none(seconds):
    with pytest.raises(ValueError, match="expected idle_seconds to be a number of seconds or None, found"):
        callbox.Host(idle_seconds=seconds)


def test_the_thread_does_not_keep_modules(guests):
    host = callbox.Host(idle_seconds=0.01)
    module = host.load(guests / "add_n.wasm")
    module.add_n(X, n=1.0)
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None


def test_modules_in_a_forked_child(python):
    """The thread is not in a child, and the child's hosts work."""
    program = """
        import os, numpy as np, callbox
        path = os.environ["CALLBOX_GUESTS"] + "/add_n.wasm"
        x = np.zeros(3, np.float32)
        parent = callbox.Host(idle_seconds=0.01).load(path)
        parent.add_n(x, n=1.0)
        child = os.fork()
        if child == 0:
            own = callbox.Host(idle_seconds=0.01).load(path)
            total = own.add_n(x, n=1.0).sum() + parent.add_n(x, n=1.0).sum()
            parent.close()
            os._exit(0 if total == 6.0 and parent.closed else 1)
        print(os.waitpid(child, 0)[1], parent.closed)
    """
    assert python(program) == "0 False\n"


def test_a_forked_child_may_close_a_module_that_it_loads(python):
    """A thread's first call loads it."""
    program = """
        import contextlib, os, threading, time, numpy as np, callbox
        x = np.zeros(3, np.float32)
        module = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/add_n.wasm")

        def call():
            with contextlib.suppress(callbox.CallError):
                module.add_n(x, n=1.0)
                return False
            return True

        for millis in (0, 1, 3, 10, 30, 100):
            child = os.fork()
            if child == 0:
                thread = threading.Thread(target=call)
                thread.start()
                time.sleep(millis / 1e3)
                module.close()
                thread.join()
                os._exit(0 if call() else 1)
            print(os.waitpid(child, 0)[1], end=" ")
        print(call())
    """
    assert python(program) == "0 0 0 0 0 0 False\n"
