"""More programs of a person who attacks the package."""

from __future__ import annotations

import concurrent.futures
import copy
import gc
import os
import pickle
import random
import threading
import time
import weakref

import numpy as np
import pytest

import callbox

X = np.arange(4, dtype=np.float32)
MIB = 1 << 20

#: The exceptions with which bad input is refused.
REFUSED = (callbox.CallError, TypeError, ValueError, OverflowError, BufferError)


@pytest.fixture
def add_n(guests, host):
    return host.load(guests / "add_n.wasm").add_n


def code_of(function, *args, **kwargs) -> str:
    with pytest.raises(callbox.CallError) as caught:
        function(*args, **kwargs)
    return caught.value.code


def test_a_bomb_of_memory_stays_within_its_limit(guests):
    host = callbox.Host(policy={"limits": {"memory_bytes": 16 * MIB}})
    bomb = host.load(guests / "faults.wasm")
    for _ in range(20):
        assert code_of(bomb.grow_memory, X, result_shape_dtypes=X) in ("ABORTED", "RESOURCE_EXHAUSTED")
        np.testing.assert_array_equal(bomb.healthy(X, result_shape_dtypes=X), X)


def test_loops_on_many_threads_end_while_others_call(guests, add_n):
    """The loops hold neither the GIL nor each other."""
    loop = callbox.Host().load(guests / "faults.wasm").infinite_loop
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        loops = [pool.submit(code_of, loop, X, result_shape_dtypes=X, deadline=0.5) for _ in range(8)]
        for _ in range(100):
            np.testing.assert_array_equal(add_n(X, n=1.0), X + 1)
        assert {each.result() for each in loops} == {"DEADLINE_EXCEEDED"}


def test_recursions_on_threads_with_small_stacks(guests):
    recursion = callbox.Host().load(guests / "faults.wasm").infinite_recursion
    codes = []
    before = threading.stack_size(1 << 20)
    try:
        threads = [
            threading.Thread(target=lambda: codes.append(code_of(recursion, X, result_shape_dtypes=X)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
    finally:
        threading.stack_size(before)
    for thread in threads:
        thread.join()
    assert codes == ["RESOURCE_EXHAUSTED"] * 8


def test_a_flood_of_logs_is_cut(guests):
    host = callbox.Host(policy={"grants": {"log": "trace"}, "limits": {"log_bytes": 10_000}})
    flood = host.load(guests / "faults.wasm").log_flood
    for _ in range(5):
        flood(X, result_shape_dtypes=X)
        # The last line says what was left out.
        assert sum(len(record["message"]) for record in host.take_logs()) <= 10_000 + 64
    assert host.take_logs() == []


def test_a_policy_that_is_changed_after_the_host_was_made(guests):
    policy = {"limits": {"deadline_ms": 200}, "grants": {}}
    host = callbox.Host(policy=policy)
    policy["limits"]["deadline_ms"] = 1 << 40
    policy["grants"]["log"] = "trace"
    shown = host.policy
    shown["limits"]["deadline_ms"] = 1 << 40
    faults = host.load(guests / "faults.wasm")
    assert code_of(faults.infinite_loop, X, result_shape_dtypes=X) == "DEADLINE_EXCEEDED"
    faults.log_flood(X, result_shape_dtypes=X)
    assert host.take_logs() == []
    assert host.policy["limits"]["deadline_ms"] == 200


def test_a_file_that_is_replaced_after_it_was_loaded(guests, host, tmp_path):
    """A loaded module stays what it was, and the new file is another module."""
    path = tmp_path / "kernel.wasm"
    path.write_bytes((guests / "add_n.wasm").read_bytes())
    module = host.load(path)
    pickled = pickle.dumps(module.add_n)
    path.write_bytes((guests / "rms_norm.wasm").read_bytes())
    np.testing.assert_array_equal(module.add_n(X, n=1.0), X + 1)
    np.testing.assert_array_equal(pickle.loads(pickled)(X, n=1.0), X + 1)
    other = host.load(path)
    assert other.key != module.key
    assert [*other] == ["rms_norm", "rms_norm_grad"]
    path.unlink()
    np.testing.assert_array_equal(copy.deepcopy(module).add_n(X, n=2.0), X + 2)


def test_a_cache_that_somebody_has_written_to(guests, tmp_path):
    """Files that were changed, cut, swapped or replaced are not run."""
    folder = tmp_path / "cache"
    for name in ("add_n.wasm", "softmax.wasm"):
        callbox.Host(cache_dir=folder).load(guests / name)
    entries = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 1000)
    assert len(entries) >= 2
    whole = {path: path.read_bytes() for path in entries}
    flips = random.Random(17)
    attempts = [
        lambda path: bytes([whole[path][0] ^ 1]) + whole[path][1:],
        lambda path: whole[path][: len(whole[path]) // 2],
        lambda path: b"",
        lambda path: whole[entries[(entries.index(path) + 1) % len(entries)]],
        lambda path: flips.randbytes(len(whole[path])),
        lambda path: whole[path][:-100] + bytes(100),
    ]
    for attempt in attempts:
        for path in entries:
            path.chmod(0o600)
            path.write_bytes(attempt(path))
        module = callbox.Host(cache_dir=folder).load(guests / "add_n.wasm")
        assert module.compiled_in != "cache"
        np.testing.assert_array_equal(module.add_n(X, n=1.0), X + 1)


def test_results_that_no_memory_holds(guests, host):
    """They are refused before memory is taken."""
    healthy = host.load(guests / "faults.wasm").healthy
    for shape in [(1 << 40,), (1 << 20, 1 << 20), (3 << 30,)]:
        with pytest.raises((*REFUSED, MemoryError)):
            healthy(X, result_shape_dtypes=("float32", shape))
    np.testing.assert_array_equal(healthy(X, result_shape_dtypes=X), X)


def test_memory_that_changes_during_a_call(add_n):
    """The kernel computes with what it copied. Each element is one of the two that were written."""
    x = np.zeros(MIB, np.float32)
    stop = threading.Event()

    def write():
        while not stop.is_set():
            x[:] = 1.0
            x[:] = 0.0

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(20):
            found = add_n(x, n=1.0)
            assert np.isin(found, (1.0, 2.0)).all()
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    "n",
    [True, np.True_, np.float32(2), np.array(2.0), 2, np.int8(2), 10**400, float("nan"), "2", None, 2j, [2.0]],
    ids=repr,
)
def test_numbers_that_are_and_are_not(add_n, n):
    """A number that is taken is taken as what it is, and nothing else is."""
    try:
        found = add_n(np.zeros(2, np.float32), n=n)
    except REFUSED:
        assert not isinstance(n, (float, np.float32)) or n != n
    else:
        np.testing.assert_array_equal(found, np.full(2, float(n)))


class Slippery:
    """A buffer whose `out=` is another one each time."""

    def __init__(self):
        self.given = []

    @property
    def __array_interface__(self):
        self.given.append(np.zeros(4 + len(self.given), np.float32))
        return self.given[-1].__array_interface__


def test_memory_for_results_that_is_not_what_it_seems(add_n):
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    wrong = [
        frozen,
        np.broadcast_to(np.zeros(1, np.float32), 4),
        np.zeros(4, ">f4"),
        np.zeros(4, np.int32),
        np.zeros(5, np.float32),
        np.zeros((4, 1), np.float32),
        np.zeros(8, np.float32)[::2],
        np.zeros(4, np.float32)[::-1],
        b"\0" * 16,
        memoryview(bytes(16)),
        Slippery(),
    ]
    for out in wrong:
        with pytest.raises((*REFUSED, AttributeError)):
            add_n(X, n=1.0, out=out)
    assert not frozen.any()


def test_subclasses_of_arrays_do_not_hide_what_they_are(add_n):
    class Loud(np.ndarray):
        def __array_finalize__(self, parent):
            pass

        def __array_function__(self, *_):
            raise AssertionError

        def __array_ufunc__(self, *_, **__):
            raise AssertionError

        shape = property(lambda _: (1 << 40,))
        nbytes = property(lambda _: 1 << 42)

    try:
        found = add_n(X.view(Loud), n=1.0)
    except REFUSED:
        return
    np.testing.assert_array_equal(found, X + 1)


def test_names_of_targets_reach_nothing_else(guests, host):
    module = host.load(guests / "add_n.wasm")
    for name in ("memory", "__reduce__x", "add_n.instantiate", "", "../add_n", "add_n\0", "é" * 10_000, "_initialize"):
        with pytest.raises((KeyError, AttributeError)):
            module[name]
    for name in ("memory", "missing", "__wrapped__"):
        with pytest.raises(AttributeError):
            getattr(module, name)
    assert "memory" not in module


def test_instances_do_not_tell_each_other_anything(counter):
    """With fresh instances no call sees what an earlier one wrote."""
    count = callbox.Host(isolation="fresh").load(counter).count
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: int(count(result_shape_dtypes=("int32", ()))), range(40))
        assert set(found) == {1}


def test_callbacks_of_the_collector_during_calls(guests, host):
    """Each dead array closes a module and calls another, in the middle of whatever runs."""
    others = [host.load(guests / "add_n.wasm") for _ in range(20)]
    main = others.pop()
    calls = []

    def died(_, other):
        other.close()
        calls.append(main.add_n(X, n=1.0).tolist())

    class Node:
        pass

    kept = []
    for other in others:
        node = Node()
        node.itself = node
        kept.append(weakref.ref(node, lambda ref, other=other: died(ref, other)))
        del node
        main.add_n(np.zeros(10_000, np.float32), n=1.0)
        gc.collect()
    assert calls == [(X + 1).tolist()] * len(others)
    assert all(other.closed for other in others)


def test_descriptors_and_threads_do_not_accumulate(guests):
    """Hundreds of hosts, modules and failing loads leave nothing behind."""

    def use():
        host = callbox.Host(idle_seconds=0.01)
        with host.load(guests / "add_n.wasm") as module:
            module.add_n(X, n=1.0)
        with pytest.raises(callbox.CallError):
            host.load(b"\0asm\1\0\0\0\xff")

    def held() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    for _ in range(5):
        use()
    before = held()
    for _ in range(40):
        use()
    until = time.monotonic() + 60
    while any(now > then + 4 for now, then in zip(held(), before, strict=True)):
        assert time.monotonic() < until, (before, held())
        time.sleep(0.05)
