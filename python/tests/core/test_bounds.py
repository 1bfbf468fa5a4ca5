"""Deadlines hold for all that a call runs, and no one waits for the state of a dropped module."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import numpy as np
import pytest

import callbox

X = np.ones(4, np.float32)

SOON = 1.5
"""The bound in seconds of what takes no time, on a busy machine."""


class Timed:
    """Checks that a block ends soon."""

    def __enter__(self):
        self.began = time.monotonic()

    def __exit__(self, *_):
        assert time.monotonic() - self.began < SOON


@pytest.mark.parametrize("isolation", ["executable", "fresh"])
def test_a_deadline_holds_for_the_stage_instantiate(staged, isolation):
    host = callbox.Host(isolation=isolation)
    f = host.load(staged(instantiate="runs on")).f
    for number in (1, 2):
        with Timed(), pytest.raises(callbox.CallError, match="DEADLINE_EXCEEDED"):
            f(X, result_shape_dtypes=X, deadline=0.2)
        stats = host.stats()
        assert (stats["calls"], stats["failures"]) == (number, {"DEADLINE_EXCEEDED": number})


def test_stats_count_failures_of_the_stage_instantiate(staged):
    host = callbox.Host()
    f = host.load(staged(instantiate="fails")).f
    for number in (1, 2):
        with pytest.raises(callbox.CallError, match="FAILED_PRECONDITION"):
            f(X, result_shape_dtypes=X)
        assert host.stats() == {
            "calls": number,
            "bytes_in": 0,
            "bytes_out": 0,
            "failures": {"FAILED_PRECONDITION": number},
        }


def test_a_deadline_holds_for_deleters_of_a_fresh_instance(staged):
    f = callbox.Host(isolation="fresh").load(staged(drop="runs on")).f
    with Timed():
        f(X, result_shape_dtypes=X, deadline=0.02)


def test_dropping_a_module_does_not_wait_for_its_deleters(staged):
    host = callbox.Host()
    module = host.load(staged(drop="runs on"))
    for length in range(1, 21):
        x = np.ones(length, np.float32)
        module.f(x, result_shape_dtypes=x)
    with Timed():
        del module
    with Timed():
        host.load(staged()).f(X, result_shape_dtypes=X)


def test_call_sites_that_make_way_do_not_take_a_calls_time(staged):
    """A module keeps 256 call sites."""
    f = callbox.Host().load(staged(drop="runs on")).f
    for length in range(1, 300):
        x = np.ones(length, np.float32)
        with Timed():
            f(x, result_shape_dtypes=x, deadline=1.0)


def test_the_end_of_the_process_does_not_wait_for_deleters(python, staged):
    program = f"""
        import time
        import numpy as np
        import callbox
        module = callbox.Host().load({staged(drop="runs on")!r})
        for length in range(1, 41):
            x = np.ones(length, np.float32)
            module.f(x, result_shape_dtypes=x)
        print(time.time())
    """
    ended = float(python(program))
    assert time.time() - ended < 10


class Buffers(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("kinds", ctypes.POINTER(ctypes.c_int32)),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
    ]


class Attributes(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("kinds", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    ]


class CallFrame(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("api", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int32),
        ("operands", Buffers),
        ("results", Buffers),
        ("attributes", Attributes),
    ]


ERRORS = []


class ErrorCreate(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int32),
    ]


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ErrorCreate))
def error_create(arguments):
    ERRORS.append((arguments.contents.code, arguments.contents.message.decode()))
    return 1


class Api(ctypes.Structure):
    """`XLA_FFI_Api` up to the function that makes an error."""

    _fields_ = [("before", ctypes.c_uint8 * 48), ("error_create", ctypes.c_void_p), ("after", ctypes.c_void_p * 8)]


API = Api(error_create=ctypes.cast(error_create, ctypes.c_void_p).value)


def test_a_frame_that_lacks_something_is_an_error(python, staged):
    """In a process of its own, for the handler remembers XLA's functions."""
    program = """
        import ctypes
        import sys
        sys.path.insert(0, FOLDER)
        from test_bounds import *
        from callbox import _callbox

        capsule = _callbox.ffi_capsules()["cpu"]
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        address = pointer(capsule, b"xla._CUSTOM_CALL_TARGET")
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(CallFrame))(address)

        host = callbox.Host()
        module = host.load(GUEST)
        site = module.f.xla_attributes([X], [X], {})
        module.register()

        class Span(ctypes.Structure):
            _fields_ = [("data", ctypes.c_char_p), ("length", ctypes.c_size_t)]

        class Buffer(ctypes.Structure):
            _fields_ = [
                ("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("element_type", ctypes.c_int32),
                ("data", ctypes.c_void_p), ("rank", ctypes.c_int64), ("dimensions", ctypes.POINTER(ctypes.c_int64)),
            ]

        def span(text):
            return Span(text.encode(), len(text.encode()))

        items = sorted(site.items())
        names = [span(name) for name, _ in items]
        values = [span(value) for _, value in items]
        def pointers(things):
            return (ctypes.c_void_p * len(things))(*[thing and ctypes.addressof(thing) for thing in things])
        kinds = (ctypes.c_int32 * len(items))(*[4] * len(items))
        name_list, value_list = pointers(names), pointers(values)
        attributes = Attributes(count=len(items), kinds=ctypes.addressof(kinds), names=ctypes.addressof(name_list),
                                values=ctypes.addressof(value_list))
        dimension = (ctypes.c_int64 * 1)(4)
        data = X.copy()
        def buffer(address):
            return Buffer(element_type=11, data=address, rank=1, dimensions=dimension)
        whole, empty = buffer(data.ctypes.data), buffer(None)
        def arrays(*things):
            kinds = (ctypes.c_int32 * len(things))(*[1] * len(things))
            return Buffers(count=len(things), kinds=kinds, values=pointers(things))

        def call(operands, api=ctypes.addressof(API)):
            frame = CallFrame(api=api, stage=3, operands=operands, results=arrays(whole), attributes=attributes)
            ERRORS.clear()
            return handler(ctypes.byref(frame)), list(ERRORS)

        # Without XLA's functions, the error is made by no function.
        error, errors = call(arrays(whole), api=None)
        assert error is not None and errors == []
        assert call(arrays(whole)) == (None, [])
        for operands, message in [
            (arrays(None), "operand 0: the array is a null pointer"),
            (arrays(whole, None), "operand 1: the array is a null pointer"),
            (arrays(empty), "the data of an array of 16 bytes is a null pointer"),
            (Buffers(count=1), "the call frame has no lists of 1 operands"),
            (Buffers(count=-1), "the call frame has no lists of -1 operands"),
        ]:
            error, [(code, found)] = call(operands)
            assert (error, code) == (1, 3) and found.startswith(message), (code, found)
        # The functions that came with an earlier frame make the error.
        error, [(code, found)] = call(arrays(whole), api=None)
        assert (error, code) == (1, 13), found
        assert call(arrays(whole)) == (None, [])
        print("done")
    """
    program = program.replace("FOLDER", repr(str(Path(__file__).parent)))
    program = program.replace("GUEST", repr(staged()))
    assert python(program).strip() == "done"


def test_declared_results_have_a_bound(assemble):
    """The arrays are new, and a target with rows gets pieces of them."""
    operands = [{"name": "x", "element_types": ["f32"], "dimensions": ["..", "n"]}]
    results = [{"name": "y", "element_types": ["f32"], "dimensions": ["..", "100000*n"]}]
    declared = {"name": "f", "traits": ["rows"], "operands": operands, "results": results}
    guest = assemble({"f": b"\x41\x00"}, [declared])
    f = callbox.Host(policy={"limits": {"memory_bytes": 1 << 20}}).load(guest).f
    x = np.ones((3, 1), np.float32)
    expected = (
        r"f\(\): expected declared results of at most 1048768 bytes \(`memory_bytes`, and 16 times the operands\), "
        r"found 1200000: pass out= or result_shape_dtypes="
    )
    with pytest.raises(callbox.CallError, match=expected) as refused:
        f(x)
    assert (refused.value.code, refused.value.blame) == ("RESOURCE_EXHAUSTED", "guest")
    # Those that frameworks ask for, too.
    with pytest.raises(callbox.CallError, match=expected):
        f.infer([("float32", (3, 1))], bounded=True)
    assert f.infer([("float32", (3, 1))]) == [("float32", (3, 100000))]
    assert f(x[:2]).shape == (2, 100000)
    assert f(x, result_shape_dtypes=("float32", (3, 100000))).shape == (3, 100000)
    out = np.empty((3, 100000), np.float32)
    assert f(x, out=out) is out


RESIDENT = """
import ctypes, sys, time
import numpy as np
import callbox

def resident():
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))
"""

KEPT = """
host = callbox.Host()
module = host.load(bytes.fromhex(sys.argv[1]))
call = lambda size: module.f(np.ones(size, np.float32), result_shape_dtypes=("float32", (1,)))
call(1)
before = resident()
for size in range(2, 202):
    call(size)
module.close()
print(resident() - before)
"""


def test_instances_that_are_gone_keep_little(assemble, python):
    """Each of 200 call sites grew its memory by 2 MiB, and filled it."""
    grow = b"\x41\x20\x40\x00\x1a"
    fill = b"\x41\x80\x80\x04\x41\x01\x41\x80\x80\x80\x01\xfc\x0b\x00"
    guest = assemble({"f": grow + fill + b"\x41\x00"}, [{"name": "f"}])
    assert int(python(RESIDENT + KEPT, guest.hex())) < 100


# The maximum number of dimensions in NumPy 1.
RANK = 32

DESCRIBED = """
is_idle = sys.argv[2] == "idle"
host = callbox.Host(idle_seconds=0.2 if is_idle else None, idle_bytes=0)
f = host.load(sys.argv[1]).f
f(np.ones(1, np.float32))
before = resident()
for size in range(2, 402):
    f(np.ones(size, np.float32))
for _ in range(100 if is_idle else 0):
    time.sleep(0.1)
    if resident() - before < 100:
        break
print(resident() - before)
"""


def test_shapes_of_call_sites_count(assemble, python, tmp_path):
    """Each call site of a thousand results has megabytes of shapes."""
    results = [{"element_types": ["f32"], "dimensions": ["1"] * RANK}] * 1024
    declared = {"name": "f", "operands": [{"element_types": ["f32"], "dimensions": ["n"]}], "results": results}
    path = tmp_path / "f.wasm"
    path.write_bytes(assemble({"f": b"\x41\x00"}, [declared]))
    assert int(python(RESIDENT + DESCRIBED, str(path), "busy")) < 700
    assert int(python(RESIDENT + DESCRIBED, str(path), "idle")) < 100


OPAQUE = """
import os
host = callbox.Host(idle_seconds=None)
f = host.load(os.environ["CALLBOX_GUESTS"] + "/conventions.wasm").echo_opaque
before = resident()
for number in range(150):
    opaque = b"%8d" % number + bytes(1 << 20)
    f(opaque=opaque, result_shape_dtypes=("uint8", (4,)), api_version="API_VERSION_STATUS_RETURNING_UNIFIED")
print(resident() - before)
"""


def test_the_opaque_bytes_of_call_sites_count(python):
    assert int(python(RESIDENT + OPAQUE)) < 800


FORKED = """
host = callbox.Host(idle_seconds=0.02, idle_bytes=0)
f = host.load(sys.argv[1]).f
ones = [np.ones(size, np.float32) for size in range(1, 40)]
for number in range(30):
    for x in ones:
        f(x)
    time.sleep(0.01)
    child = os.fork()
    if not child:
        f(ones[0])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
for number in range(3000):
    f(ones[0], attributes={"n": number})
print("done")
"""


def test_calls_beside_the_thread_that_frees(assemble, python, tmp_path):
    """It must have no lock when the process forks, nor wait for a call that waits for it."""
    results = [{"element_types": ["f32"], "dimensions": ["1"] * RANK}] * 100
    operands = [{"element_types": ["f32"], "dimensions": ["n"]}]
    attributes = [{"name": "n", "kind": "scalar", "element_type": "s32", "optional": True}]
    declared = {"name": "f", "operands": operands, "results": results, "attributes": attributes}
    path = tmp_path / "f.wasm"
    path.write_bytes(assemble({"f": b"\x41\x00"}, [declared]))
    assert python("import os\n" + RESIDENT + FORKED, str(path)) == "done\n"
