"""Scenarios of test_cuda.py, each run in a process of its own: `python cuda_scenarios.py <name>`.

A process loads a driver once, and a lost device stays lost. CALLBOX_CUDA_STAND_IN is the path of
the stand-in for the driver, which must be loaded before anything uses CUDA. These tests play XLA's
part, with its call frames, stream and memory, by the C structs of xla/ffi/api/c_api.h.
"""

import ctypes as c
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

STAND_IN = os.environ.get("CALLBOX_CUDA_STAND_IN")
# Load the stand-in before the package, which looks for libcuda.so by name.
driver = c.CDLL(STAND_IN) if STAND_IN else None

import callbox  # noqa: E402

BUILT = Path(os.environ["CALLBOX_GUESTS"])
SOURCES = Path(__file__).parents[3] / "guests"

#: The message of the check of `add_n` in its manifest.
SAYS = 'the guest says "Info must be >= 0"'

OK, INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, OUT_OF_RANGE = 0, 3, 5, 8, 11
FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 9, 12, 13, 14

# CUresult, CUstreamCaptureMode
OUT_OF_MEMORY, LAUNCH_OUT_OF_RESOURCES, LAUNCH_FAILED = 2, 701, 719
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


# --- driver


def cu(name, *arguments):
    code = getattr(driver, name)(*arguments)
    assert code == 0, f"{name} failed with {code}"


def enter(device):
    context = c.c_void_p()
    cu("cuDevicePrimaryCtxRetain", c.byref(context), device)
    cu("cuCtxSetCurrent", context)
    return context


def new_stream():
    stream = c.c_void_p()
    cu("cuStreamCreate", c.byref(stream), 1)
    return stream


class Array:
    """An array in device memory."""

    def __init__(self, values, dtype=np.float32):
        self.like = np.array(values, dtype=dtype, order="C")
        self.address = c.c_uint64()
        cu("cuMemAlloc_v2", c.byref(self.address), c.c_size_t(max(self.like.nbytes, 1)))
        self.set(self.like)

    def set(self, values):
        values = np.array(values, dtype=self.like.dtype, order="C")
        if values.nbytes:
            cu("cuMemcpyHtoD_v2", self.address, c.c_void_p(values.ctypes.data), c.c_size_t(values.nbytes))

    def get(self):
        found = np.empty_like(self.like)
        if found.nbytes:
            cu("cuMemcpyDtoH_v2", c.c_void_p(found.ctypes.data), self.address, c.c_size_t(found.nbytes))
        return found


def nothing(shape, dtype=np.float32):
    """Allocates an array filled with bytes that no result has."""
    return Array(
        np.full(np.prod(shape, dtype=int) * np.dtype(dtype).itemsize, 0xA5, np.uint8).view(dtype).reshape(shape), dtype
    )


def calls():
    size = driver.callbox_stand_in_calls(None, c.c_size_t(0))
    text = c.create_string_buffer(size)
    driver.callbox_stand_in_calls(text, c.c_size_t(size))
    return text.raw.decode().split("\n") if size else []


def fail(name, code, nth=1):
    """Makes the nth call of this name fail, counted from now."""
    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    driver.callbox_stand_in_fail_nth(c.c_uint64(nth), c.c_uint32(code), c.c_uint64(number))


def set_lazy(lazy):
    driver.callbox_stand_in_set_lazy(c.c_bool(lazy))


def graph(stream, work, mode=THREAD_LOCAL):
    """Captures `work`, and returns a function that launches the graph."""
    made, executable = c.c_void_p(), c.c_void_p()
    cu("cuStreamBeginCapture_v2", stream, mode)
    work()
    cu("cuStreamEndCapture", stream, c.byref(made))
    cu("cuGraphInstantiateWithFlags", c.byref(executable), made, c.c_uint64(0))
    return lambda: cu("cuGraphLaunch", executable, stream)


# --- XLA


class Span(c.Structure):
    _fields_ = [("data", c.c_char_p), ("length", c.c_size_t)]


class Buffer(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("extension", c.c_void_p),
        ("dtype", c.c_int32),
        ("data", c.c_void_p),
        ("rank", c.c_int64),
        ("dims", c.POINTER(c.c_int64)),
    ]


class Buffers(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("extension", c.c_void_p),
        ("count", c.c_int64),
        ("kinds", c.POINTER(c.c_int32)),
        ("values", c.POINTER(c.POINTER(Buffer))),
    ]


class Attributes(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("extension", c.c_void_p),
        ("count", c.c_int64),
        ("kinds", c.POINTER(c.c_int32)),
        ("names", c.POINTER(c.POINTER(Span))),
        ("values", c.POINTER(c.c_void_p)),
    ]


class Version(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("extension", c.c_void_p), ("major", c.c_int32), ("minor", c.c_int32)]


class Metadata(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("version", Version), ("traits", c.c_uint32)]


class MetadataExtension(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("kind", c.c_int32),
        ("next", c.c_void_p),
        ("metadata", c.POINTER(Metadata)),
    ]


class ErrorCreateArgs(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("extension", c.c_void_p),
        ("message", c.c_char_p),
        ("code", c.c_int32),
    ]


class ErrorDestroyArgs(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("extension", c.c_void_p), ("error", c.c_void_p)]


class StreamGetArgs(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("extension", c.c_void_p),
        ("context", c.c_void_p),
        ("stream", c.c_void_p),
    ]


ErrorCreate = c.CFUNCTYPE(c.c_void_p, c.POINTER(ErrorCreateArgs))
ErrorDestroy = c.CFUNCTYPE(None, c.POINTER(ErrorDestroyArgs))
StreamGet = c.CFUNCTYPE(c.c_void_p, c.POINTER(StreamGetArgs))


class Api(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("extension", c.c_void_p),
        ("version", Version),
        ("internal", c.c_void_p),
        ("error_create", ErrorCreate),
        ("error_get_message", c.c_void_p),
        ("error_destroy", ErrorDestroy),
        ("handler_register", c.c_void_p),
        ("stream_get", StreamGet),
    ]


class Frame(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("extension", c.c_void_p),
        ("api", c.POINTER(Api)),
        ("context", c.c_void_p),
        ("stage", c.c_int32),
        ("operands", Buffers),
        ("results", Buffers),
        ("attributes", Attributes),
        ("future", c.c_void_p),
    ]


STAGE_EXECUTE = 3
DTYPES = {"float32": 11, "float64": 12, "int32": 4, "int64": 5, "uint8": 6}

c.pythonapi.PyCapsule_GetName.restype = c.c_char_p
c.pythonapi.PyCapsule_GetName.argtypes = [c.py_object]
c.pythonapi.PyCapsule_GetPointer.restype = c.c_void_p
c.pythonapi.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]

_capsules = callbox.ffi_capsules()


def handler(name):
    capsule = _capsules[name]
    pointer = c.pythonapi.PyCapsule_GetPointer(capsule, c.pythonapi.PyCapsule_GetName(capsule))
    return c.CFUNCTYPE(c.c_void_p, c.c_void_p)(pointer)


class XLA:
    """Calls handlers with one stream, and returns their answers."""

    def __init__(self, stream):
        self.stream = stream
        self.errors = {}
        self.is_streamless = False

        def create(arguments):
            number = 0x1000 + len(self.errors)
            self.errors[number] = (arguments[0].code, arguments[0].message.decode())
            return number

        def destroy(arguments):
            self.errors[arguments[0].error] = None

        def get_stream(arguments):
            assert arguments[0].context == 0xC0DE, "the frame's own context"
            if self.is_streamless:
                self.errors[0x999] = (UNIMPLEMENTED, "no stream here")
                return 0x999
            arguments[0].stream = self.stream
            return None

        self.api = Api(struct_size=c.sizeof(Api))
        self.api.error_create, self.api.error_destroy = ErrorCreate(create), ErrorDestroy(destroy)
        self.api.stream_get = StreamGet(get_stream)

    def call(self, handler_name, attributes, operands, results, *, stage=STAGE_EXECUTE, kind=4):
        """Returns the code and message of the error, or (0, "")."""
        kept = []

        def pointers(values, pointer):
            array = (pointer * max(len(values), 1))(*values)
            kept.append(array)
            return array

        def kinds(count, kind):
            array = (c.c_int32 * max(count, 1))(*[kind] * count)
            kept.append(array)
            return array

        def buffers(arrays):
            made = []
            for array in arrays:
                dims = (c.c_int64 * max(array.like.ndim, 1))(*array.like.shape)
                buffer = Buffer(
                    c.sizeof(Buffer), None, DTYPES[str(array.like.dtype)], array.address.value, array.like.ndim, dims
                )
                kept.extend([dims, buffer])
                made.append(c.pointer(buffer))
            return Buffers(c.sizeof(Buffers), None, len(made), kinds(len(made), 1), pointers(made, c.POINTER(Buffer)))

        # XLA sorts attributes by name.
        names = sorted(attributes)
        spans = [Span(name.encode(), len(name.encode())) for name in names]
        values = [Span(attributes[name].encode(), len(attributes[name].encode())) for name in names]
        kept.extend([spans, values])
        frame = Frame(struct_size=168, api=c.pointer(self.api), context=0xC0DE, stage=stage)
        frame.operands, frame.results = buffers(operands), buffers(results)
        frame.attributes = Attributes(
            c.sizeof(Attributes),
            None,
            len(names),
            kinds(len(names), kind),
            pointers([c.pointer(span) for span in spans], c.POINTER(Span)),
            pointers([c.addressof(value) for value in values], c.c_void_p),
        )
        error = handler(handler_name)(c.addressof(frame))
        return self.errors[error] if error else (OK, "")

    def good(self, handler_name, attributes, operands, results):
        assert self.call(handler_name, attributes, operands, results) == (OK, "")

    def bad(self, handler_name, attributes, operands, results, code, says, **options):
        found, message = self.call(handler_name, attributes, operands, results, **options)
        assert found == code, (found, message)
        assert says in message, message

    def wait(self):
        cu("cuStreamSynchronize", self.stream)


# --- callbox


# A policy without fenced kernels.
GRANTED_ALONE = {"gpu": {"fenced": False}}


def digest_of(manifest, name="add_n"):
    """Reads a manifest's digest from the error of loading it without a grant."""
    try:
        callbox.Host(policy=GRANTED_ALONE).load(BUILT / f"{name}.wasm", native=manifest)
    except callbox.CallError as error:
        assert error.code == "PERMISSION_DENIED", error
        return re.search(r"[0-9a-f]{64}", error.message)[0]
    raise AssertionError("expected native code without a grant to be refused")


def load(name="add_n", manifest=None):
    manifest = manifest or SOURCES / name / "callbox.json"
    return callbox.Host().load(BUILT / f"{name}.wasm", native=manifest, allow_native=digest_of(manifest))


def f32(*shape):
    return ("float32", shape)


def add_n(module, n=4.0, shape=(3,), **options):
    return module.add_n.xla_attributes([f32(*shape)], [f32(*shape)], {"n": n}, **options)


def xla(device=0):
    cu("cuInit", 0)
    enter(device)
    return XLA(new_stream())


# --- scenarios


def metadata():
    for name, traits in [("cpu", 0), ("cuda", 0), ("cuda_command_buffer", 1)]:
        found = Metadata(struct_size=36, traits=0xFF)
        extension = MetadataExtension(c.sizeof(MetadataExtension), 1, None, c.pointer(found))
        other = MetadataExtension(c.sizeof(MetadataExtension), 7, c.addressof(extension), None)
        frame = Frame(struct_size=168, extension=c.addressof(other))
        assert handler(name)(c.addressof(frame)) is None
        assert (found.version.major, found.version.minor, found.traits) == (0, 1, traits), name


def launches():
    for lazy in (False, True):
        set_lazy(lazy)
        host = xla()
        attributes = add_n(load())
        x, y = Array([1, 2, 3]), nothing((3,))
        driver.callbox_stand_in_clear_calls()
        host.good("cuda", attributes, [x], [y])
        made = calls()
        assert made.count("cuLaunchKernel") == 1, made
        waits = [call for call in made if "Synchronize" in call or "Event" in call or "Memcpy" in call]
        assert not waits, made
        # Other arrays of the same call site, with other shapes and attributes in between.
        a, b = Array([10, 20, 30]), nothing((3,))
        host.good("cuda", attributes, [a], [b])
        p, q = Array([[1, 2], [3, 4]]), nothing((2, 2))
        host.good("cuda", add_n(load(), n=0.5, shape=(2, 2)), [p], [q])
        host.good("cuda_command_buffer", attributes, [b], [a])
        empty = Array(np.zeros((0,)))
        host.good("cuda", add_n(load(), shape=(0,)), [empty], [empty])
        host.wait()
        assert y.get().tolist() == [5, 6, 7]
        assert b.get().tolist() == [14, 24, 34]
        assert a.get().tolist() == [18, 28, 38]
        assert q.get().tolist() == [[1.5, 2.5], [3.5, 4.5]]
        # No module is loaded again.
        assert calls().count("cuModuleLoadDataEx") == (0 if lazy else 1), calls()


def stats():
    host = xla()
    manifest = SOURCES / "add_n/callbox.json"
    of = callbox.Host()
    module = of.load(BUILT / "add_n.wasm", native=manifest, allow_native=[digest_of(manifest)])
    assert module.native == digest_of(manifest)
    assert module.add_n.has_native
    x, y = Array([1, 2, 3]), nothing((3,))
    host.good("cuda", add_n(module), [x], [y])
    host.bad("cuda", add_n(module, n=-1.0), [x], [y], INVALID_ARGUMENT, SAYS)
    assert of.stats() == {"calls": 2, "bytes_in": 24, "bytes_out": 12, "failures": {"INVALID_ARGUMENT": 1}}


def streams_on_both_devices():
    cu("cuInit", 0)
    attributes = add_n(load())
    for device in (1, 0, 1):
        enter(device)
        host = XLA(new_stream())
        x, y = Array([device, 2, 3]), nothing((3,))
        host.good("cuda", attributes, [x], [y])
        host.wait()
        assert y.get().tolist() == [device + 4, 6, 7]


def twins():
    host = xla()
    x, y = Array([1, 2, 3]), nothing((3,))
    plain = callbox.Host().load(BUILT / "add_n.wasm")
    assert not plain.add_n.has_native
    says = 'target "add_n": expected a CUDA kernel of that name, found none'
    host.bad("cuda", add_n(plain), [x], [y], NOT_FOUND, says)
    other = SOURCES / "broadcast_add/callbox.json"
    wrong = callbox.Host().load(BUILT / "add_n.wasm", native=other, allow_native=digest_of(other))
    assert not wrong.add_n.has_native
    host.bad("cuda", add_n(wrong), [x], [y], NOT_FOUND, says)
    for module in (plain, wrong):
        try:
            module.add_n(np.zeros(3, np.float32), n=1.0, platform="CUDA")
        except callbox.CallError as error:
            assert error.code == "NOT_FOUND" and says in error.message, error
        else:
            raise AssertionError("expected a direct call without a kernel to fail")
    # The grant is for these exact bytes.
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCES / "add_n", folder, dirs_exist_ok=True)
        manifest = Path(folder) / "callbox.json"
        granted = digest_of(manifest)
        assert granted == digest_of(SOURCES / "add_n/callbox.json")
        with (Path(folder) / "add_n.ptx").open("a") as ptx:
            ptx.write("\n")
        try:
            callbox.Host(policy=GRANTED_ALONE).load(BUILT / "add_n.wasm", native=manifest, allow_native=granted)
        except callbox.CallError as error:
            assert error.code == "PERMISSION_DENIED", error
        else:
            raise AssertionError("expected another image to be refused")


def fenced():
    """A twin without a grant, called by XLA and directly."""
    for lazy in (False, True):
        set_lazy(lazy)
        host = xla()
        module = callbox.Host().load(BUILT / "add_n.wasm", native=SOURCES / "add_n/callbox.json")
        assert module.add_n.has_native
        assert module.native == digest_of(SOURCES / "add_n/callbox.json")
        x, y = Array([1, 2, 3]), nothing((3,))
        # All of it is proved: it cannot fail, and nothing waits for it.
        driver.callbox_stand_in_clear_calls()
        host.good("cuda", add_n(module), [x], [y])
        assert not [call for call in calls() if "Synchronize" in call]
        host.wait()
        assert y.get().tolist() == [5, 6, 7]
        # The handler waits for a kernel with a check, so that its failure is the handler's.
        with tempfile.TemporaryDirectory() as folder:
            manifest = altered(folder, old="[%rd16]", new="[%rd16+65536]")
            checked = callbox.Host().load(BUILT / "add_n.wasm", native=manifest)
            host.bad("cuda", add_n(checked), [x], [y], OUT_OF_RANGE, "is out of range")
        array = np.array([1, 2, 3], np.float32)
        assert module.add_n(array, n=4.0, platform="CUDA").tolist() == [5, 6, 7]


def batches():
    host = xla()
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    module = load()
    # One operand is broadcast along both dimensions, one of them, or none.
    for shape in [(2, 3, 4), (2, 1, 4), (1, 3, 4), (1, 1, 4)]:
        x, y = Array(values[: shape[0], : shape[1]]), nothing((2, 3, 4))
        driver.callbox_stand_in_clear_calls()
        host.good("cuda", add_n(module, shape=(4,)), [x], [y])
        assert calls().count("cuLaunchKernel") == 6
        host.wait()
        assert np.array_equal(y.get(), np.broadcast_to(x.like + 4, (2, 3, 4))), shape
    # A batch of scalars, and an empty batch.
    x, y = Array([1, 2, 3]), nothing((3,))
    host.good("cuda", add_n(module, shape=()), [x], [y])
    host.wait()
    assert y.get().tolist() == [5, 6, 7]
    x, y = Array(np.zeros((0, 4))), Array(np.zeros((0, 4)))
    host.good("cuda", add_n(module, shape=(4,)), [x], [y])
    # One of two operands is broadcast.
    both = load("broadcast_add").broadcast_add
    attributes = both.xla_attributes([f32(2), f32(4)], [f32(4)], {})
    b, c_, a = Array([[10, 20]]), Array(values[0]), nothing((3, 4))
    host.good("cuda", attributes, [b, c_], [a])
    host.wait()
    assert np.array_equal(a.get(), values[0] + [10, 20, 10, 20])
    # Wrong operands.
    for operands, says in [
        ([Array(np.zeros((2, 2))), c_], "operand 0: expected a batch dimension 0 of size 3 or 1, found f32[2,2]"),
        ([b, Array(np.zeros(4))], "expected an array of rank 1 behind 1 dimensions of the batch, found f32[4]"),
        ([b], "expected 2 operands and 1 results, found 1 and 1"),
    ]:
        host.bad("cuda", attributes, operands, [a], INVALID_ARGUMENT, says)
    host.bad("cuda", add_n(module, n=-1.0, shape=(4,)), [c_], [a], INVALID_ARGUMENT, f"batch element 0: {SAYS}")


def statuses():
    for lazy in (False, True):
        set_lazy(lazy)
        host = xla()
        module = load()
        x = Array([[1, 2], [3, 4], [5, 6]])
        # Without a batch.
        y, status = nothing((3, 2)), nothing((), np.int32)
        host.good("cuda", add_n(module, shape=(3, 2), on_error="status"), [x], [y, status])
        host.wait()
        assert status.get() == 0
        assert y.get().tolist() == [[5, 6], [7, 8], [9, 10]]
        host.good("cuda", add_n(module, n=-1.0, shape=(3, 2), on_error="status"), [x], [y, status])
        host.wait()
        assert status.get() == INVALID_ARGUMENT
        assert callbox.last_failure(INVALID_ARGUMENT).message == SAYS
        assert (y.get().view(np.uint8) == 0xFF).all()
        # Each element has a status, and the failure does not affect the others.
        y, status = nothing((3, 2)), nothing((3,), np.int32)
        attributes = add_n(module, shape=(2,), on_error="status")
        fail("cuLaunchKernel", LAUNCH_OUT_OF_RESOURCES, nth=2)
        host.good("cuda", attributes, [x], [y, status])
        host.wait()
        assert status.get().tolist() == [0, RESOURCE_EXHAUSTED, 0]
        assert np.isnan(y.get()[1]).all()
        assert y.get()[[0, 2]].tolist() == [[5, 6], [9, 10]]
        message = callbox.last_failure(RESOURCE_EXHAUSTED).message
        assert "batch element 1: " in message and "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)" in message, message
        host.good("cuda", attributes, [x], [y, status])
        host.wait()
        assert status.get().tolist() == [0, 0, 0]
        # If a fill fails, the program fails.
        fail("cuMemsetD8Async", OUT_OF_MEMORY)
        host.bad("cuda", attributes, [x], [y, status], RESOURCE_EXHAUSTED, "filling an array")
    says = "expected the status to be s32[3], found s32[]"
    host.bad("cuda", attributes, [x], [y, nothing((), np.int32)], INVALID_ARGUMENT, says)


def kernels_that_cannot_be_loaded():
    host = xla()
    x, y, status = Array([1, 2, 3]), nothing((3,)), nothing((), np.int32)
    module = load()
    for nth in (1, 2):
        fail("cuModuleLoadDataEx", OUT_OF_MEMORY)
        host.good("cuda", add_n(module, on_error="status"), [x], [y, status])
        host.wait()
        assert status.get() == RESOURCE_EXHAUSTED, nth
        assert np.isnan(y.get()).all()
    # The next attempt may find enough memory.
    host.good("cuda", add_n(module, on_error="status"), [x], [y, status])
    host.wait()
    assert status.get() == 0
    assert y.get().tolist() == [5, 6, 7]


def a_lost_device():
    host = xla()
    x, y, status = Array([1, 2, 3]), nothing((3,)), nothing((), np.int32)
    module = load()
    fail("cuLaunchKernel", LAUNCH_FAILED)
    # A lost device cannot write a status.
    attributes = add_n(module, on_error="status")
    host.bad("cuda", attributes, [x], [y, status], INTERNAL, "CUDA_ERROR_LAUNCH_FAILED (719)")
    for again, results in [(attributes, [y, status]), (add_n(module), [y])]:
        code, message = host.call("cuda", again, [x], results)
        assert code in (INTERNAL, UNAVAILABLE), (code, message)
        assert "719" in message, message


def graphs():
    for lazy, mode in [(False, GLOBAL), (True, GLOBAL), (False, THREAD_LOCAL), (True, THREAD_LOCAL), (False, RELAXED)]:
        set_lazy(lazy)
        host = xla()
        # In the first round no device is open and no module is loaded.
        attributes = add_n(load())
        x, y = Array([1, 2, 3]), Array([0, 0, 0])

        def work(host=host, attributes=attributes, x=x, y=y):
            host.good("cuda_command_buffer", attributes, [x], [y])
            host.good("cuda_command_buffer", attributes, [y], [x])

        launch = graph(host.stream, work, mode)
        assert (x.get().tolist(), y.get().tolist()) == ([1, 2, 3], [0, 0, 0])
        launch()
        launch()
        host.wait()
        assert (x.get().tolist(), y.get().tolist()) == ([17, 18, 19], [13, 14, 15])


def graphs_of_batches_and_statuses():
    host = xla()
    module = load()
    x, y, status = Array([[1, 2], [3, 4]]), nothing((2, 2)), nothing((2,), np.int32)
    good = add_n(module, shape=(2,), on_error="status")
    launch = graph(host.stream, lambda: host.good("cuda_command_buffer", good, [x], [y, status]))
    for more in (0, 10):
        x.set(x.like + more)
        launch()
        host.wait()
        assert np.array_equal(y.get(), x.like + more + 4)
        assert status.get().tolist() == [0, 0]
    bad = add_n(module, n=-1.0, shape=(2,), on_error="status")
    launch = graph(host.stream, lambda: host.good("cuda_command_buffer", bad, [x], [y, status]))
    for _ in range(2):
        y.set(x.like)
        status.set([7, 7])
        launch()
        host.wait()
        assert np.isnan(y.get()).all()
        assert status.get().tolist() == [INVALID_ARGUMENT] * 2


def what_a_graph_cannot_hold():
    host = xla()
    x, y = Array([1, 2, 3]), nothing((3,))
    good = add_n(load())
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCES / "add_n", folder, dirs_exist_ok=True)
        manifest = Path(folder) / "callbox.json"
        text = json.loads(manifest.read_text())
        text["targets"][0]["traits"].remove("command_buffer_compatible")
        manifest.write_text(json.dumps(text))
        without = add_n(load(manifest=manifest))
    scratch = load("typed_ffi")["scratch"]
    scratch = scratch.xla_attributes([f32(3)], [f32(3)], {"kib": 1, "fails": False})

    def work():
        says = 'target "add_n" cannot be captured in a CUDA graph'
        host.bad("cuda_command_buffer", without, [x], [y], FAILED_PRECONDITION, says)
        says = 'target "scratch" takes 1036 bytes of scratch memory'
        host.bad("cuda_command_buffer", scratch, [x], [y], FAILED_PRECONDITION, says)
        says = "the stream is being captured by another framework"
        host.bad("cuda", good, [x], [y], FAILED_PRECONDITION, says)
        # The capture continues.
        host.good("cuda_command_buffer", good, [x], [y])

    launch = graph(host.stream, work)
    launch()
    host.wait()
    assert y.get().tolist() == [5, 6, 7]
    # Outside of a capture these kernels are allowed.
    for attributes, expected in [(without, [5, 6, 7]), (scratch, [3, 2, 1])]:
        host.good("cuda_command_buffer", attributes, [x], [y])
        host.wait()
        assert y.get().tolist() == expected


def aliases():
    host = xla()
    module = load()
    attributes = module.add_n.xla_attributes([f32(3)], [f32(3)], {"n": 4.0}, aliases={0: 0})
    # XLA passes the same array as both.
    x = Array([1, 2, 3])
    driver.callbox_stand_in_clear_calls()
    host.good("cuda", attributes, [x], [x])
    assert not any("Memcpy" in call for call in calls()), calls()
    host.wait()
    assert x.get().tolist() == [5, 6, 7]
    x, y = Array([1, 2, 3]), nothing((3,))
    host.good("cuda", attributes, [x], [y])
    host.wait()
    assert (x.get().tolist(), y.get().tolist()) == ([1, 2, 3], [5, 6, 7])


def errors():
    host = xla()
    module = load()
    x, y = Array([1, 2, 3]), nothing((3,))
    good = add_n(module)
    unknown = {**good, "module": "0" * 64}
    host.bad("cuda", unknown, [x], [y], NOT_FOUND, f'expected a module of the key "{"0" * 64}"')
    host.bad("cuda", {**good, "target": "sub_n"}, [x], [y], NOT_FOUND, 'target "sub_n": expected a CUDA kernel')
    host.bad("cuda", {**good, "more": "1"}, [x], [y], INVALID_ARGUMENT, 'found "more"')
    host.bad("cuda", {**good, "call": "{"}, [x], [y], INVALID_ARGUMENT, 'attribute "call": ')
    host.bad("cuda", {**good, "attributes": "{n = "}, [x], [y], INVALID_ARGUMENT, "expected")
    host.bad("cuda", good, [x], [y], INVALID_ARGUMENT, "expected a string, found an attribute of kind 3", kind=3)
    host.bad("cuda", good, [x], [y], UNIMPLEMENTED, "callbox's handler only has the execute stage", stage=1)
    host.bad("cuda", good, [Array([1, 2, 3], np.int32)], [y], INVALID_ARGUMENT, "expected F32 but got S32")
    host.bad("cuda", good, [x], [nothing((4,))], INVALID_ARGUMENT, "(from x) but got [4]")
    on_host, there = np.zeros(3, np.float32), Array([1, 2, 3])
    there.address = c.c_uint64(on_host.ctypes.data)
    host.bad("cuda", good, [there], [y], INVALID_ARGUMENT, "the host's own memory")
    enter(1)
    other = Array([1, 2, 3])
    enter(0)
    host.bad("cuda", good, [x], [other], INVALID_ARGUMENT, "found an address of device 1")
    host.is_streamless = True
    host.bad("cuda", good, [x], [y], INTERNAL, "XLA gave no stream for the call")
    assert host.errors[0x999] is None, "whoever gets an error destroys it"
    host.is_streamless = False
    stream, host.stream = host.stream, c.c_void_p(0xDEAD0000)
    host.bad("cuda", good, [x], [y], INVALID_ARGUMENT, "asking for a stream's device: cuStreamIsCapturing failed")
    host.stream = stream
    host.good("cuda", good, [x], [y])
    host.wait()
    assert y.get().tolist() == [5, 6, 7]


def direct():
    module = load()
    x = np.array([1, 2, 3], np.float32)
    for n in (1.0, 4.0):
        found = module.add_n(x, n=n, platform="CUDA")
        assert found.dtype == np.float32 and found.tolist() == (x + n).tolist()
        assert np.array_equal(found, module.add_n(x, n=n))
    out = np.zeros(3, np.float32)
    assert module.add_n(x, n=1.0, platform="CUDA", out=out) is out
    assert out.tolist() == [2, 3, 4]
    try:
        module.add_n(x, n=-1.0, platform="CUDA", out=out)
    except callbox.CallError as error:
        assert (error.code, error.message) == ("INVALID_ARGUMENT", SAYS), error
        assert error.recoverable
    else:
        raise AssertionError("expected a negative n to be refused")
    assert out.tolist() == [2, 3, 4]
    # The device stays open.
    made = calls()
    assert made.count("cuModuleLoadDataEx") == 1, made
    assert "cuDevicePrimaryCtxRelease_v2" not in made
    # The operand's copy does not fit into what is left.
    x = np.zeros(50 << 20, np.float32)
    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + (100 << 20), resource.RLIM_INFINITY))
    try:
        module.add_n(x, n=1.0, platform="CUDA")
    except callbox.CallError as error:
        assert error.code == "RESOURCE_EXHAUSTED", error
    else:
        raise AssertionError("expected a call without memory to fail")


def shadowed():
    """Direct calls that also run as wasm, of a kernel that is right and of one that lies."""
    x = np.array([1, 2, 3], np.float32)
    honest = callbox.shadow(load().add_n, 1.0, fails=True)
    out = x.copy()
    # The result takes the place of the operand.
    assert honest(out, n=4.0, out=out) is out and out.tolist() == [5, 6, 7]
    assert honest(x, n=4.0).tolist() == [5, 6, 7]
    assert (honest.calls, honest.compared, honest.differing) == (2, 2, 0)
    try:
        honest(x, n=-1.0)
    except callbox.CallError as error:
        assert error.code == "INVALID_ARGUMENT", error
    else:
        raise AssertionError("expected the kernel's own failure")
    assert (honest.calls, honest.compared) == (3, 2)
    never = callbox.shadow(load().add_n, 0.0)
    never(x, n=4.0)
    assert (never.calls, never.compared) == (1, 0)

    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCES / "add_n", folder, dirs_exist_ok=True)
        ptx = Path(folder, "add_n.ptx")
        text = ptx.read_text()
        ptx.write_text(text.replace("add.rn.f32 \t%f3, %f2, %f1", "sub.rn.f32 \t%f3, %f2, %f1"))
        assert ptx.read_text() != text
        evil = callbox.Host().load(BUILT / "add_n.wasm", native=Path(folder, "callbox.json"))
        assert evil.add_n(x, n=4.0, platform="CUDA").tolist() == [-3, -2, -1]
        told = callbox.shadow(evil.add_n, 1.0)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            assert told(x, n=4.0).tolist() == [-3, -2, -1]
        says = "target 'add_n': the native kernel and the wasm differ: result 0: 3 of 3 elements"
        assert [str(warning.message) for warning in found] == [says]
        assert (told.calls, told.compared, told.differing) == (1, 1, 1)
        for options in ({}, {"rtol": 1.0}, {"atol": 7.9}):
            strict = callbox.shadow(evil.add_n, 1.0, fails=True, **options)
            try:
                strict(x, n=4.0)
            except callbox.CallError as error:
                assert (error.code, error.blame) == ("INTERNAL", "guest"), error
            else:
                raise AssertionError("expected a kernel that lies to fail")
        # Within the tolerance, a difference is none.
        assert callbox.shadow(evil.add_n, 1.0, atol=8.0, fails=True)(x, n=4.0).tolist() == [-3, -2, -1]
        some = callbox.shadow(evil.add_n, 0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(200):
                some(x, n=4.0)
        assert 40 < some.compared == some.differing < 160, some
    for options, kind in (
        ({"share": 1.5}, ValueError),
        ({"share": float("nan")}, ValueError),
        ({"share": 1.0, "rtol": -1.0}, ValueError),
    ):
        try:
            callbox.shadow(load().add_n, **options)
        except kind:
            pass
        else:
            raise AssertionError(f"expected {options} to be refused")
    for module, code in (
        (callbox.Host().load(BUILT / "add_n.wasm"), "NOT_FOUND"),
        # A kernel for a target that does not declare that it is pure.
        (load("faults"), "INVALID_ARGUMENT"),
    ):
        pure = {"pure", "elementwise", "rows", "batched"}
        targets = [
            t for t in module.targets.values() if code == "NOT_FOUND" or (t.has_native and not pure & set(t.traits))
        ]
        target = targets[0]
        try:
            callbox.shadow(target, 1.0)
        except callbox.CallError as error:
            assert error.code == code, error
        else:
            raise AssertionError(f"expected {target} to be refused")


def altered(folder, name="add_n", old="add.rn.f32 \t%f3, %f2, %f1", new="sub.rn.f32 \t%f3, %f2, %f1"):
    """A manifest whose kernel computes something else."""
    shutil.copytree(SOURCES / name, folder, dirs_exist_ok=True)
    ptx = Path(folder, f"{name}.ptx")
    text = ptx.read_text()
    ptx.write_text(text.replace(old, new))
    assert ptx.read_text() != text
    return Path(folder, "callbox.json")


def policed(manifest, shadow, name="add_n"):
    """A module of a host whose policy has this shadow."""
    return callbox.Host(policy={"shadow": shadow}).load(BUILT / f"{name}.wasm", native=manifest)


def counted(module):
    """The counters of shadowed calls."""
    found = [one for one in callbox.stats() if (one["sha256"], one["platform"]) == (module.digest, "CUDA")]
    assert len(found) == 1, found
    return found[0].get("shadowed", 0), found[0].get("differing", 0)


def shadowed_by_the_policy():
    """Calls of programs and direct calls, of a kernel that is right and of one that lies."""
    host = xla()
    x, y = Array([1, 2, 3]), nothing((3,))
    good = policed(SOURCES / "add_n/callbox.json", {"share": 1.0, "fails": True})
    assert good.policy["shadow"] == {"share": 1.0, "fails": True}
    for _ in range(3):
        host.good("cuda", add_n(good), [x], [y])
    assert y.get().tolist() == [5, 6, 7] and counted(good) == (3, 0)
    # The result takes the place of the operand.
    host.good("cuda", add_n(good, aliases={0: 0}), [y], [y])
    assert y.get().tolist() == [9, 10, 11] and counted(good) == (4, 0)
    assert good.add_n(x.like, n=4.0, platform="CUDA").tolist() == [5, 6, 7]
    assert counted(good) == (5, 0)
    # A failure of the kernel's own is not compared.
    host.bad("cuda", add_n(good, n=-1.0), [x], [y], INVALID_ARGUMENT, SAYS)
    # Nor is work that runs later, in a graph.
    manifest = SOURCES / "add_n/callbox.json"
    granted = callbox.Host(policy={"shadow": {"share": 1.0}})
    granted = granted.load(BUILT / "add_n.wasm", native=manifest, allow_native=digest_of(manifest))
    graph(host.stream, lambda: host.good("cuda_command_buffer", add_n(granted), [x], [y]))
    assert counted(good) == (5, 0)
    host.good("cuda_command_buffer", add_n(granted), [x], [y])
    assert counted(good) == (6, 0)
    assert not [one for one in callbox.stats() if one["platform"] == "Host" and one["calls"]]

    with tempfile.TemporaryDirectory() as folder:
        manifest = altered(folder)
        told = policed(manifest, {"share": 1.0})
        host.good("cuda", add_n(told), [x], [y])
        assert y.get().tolist() == [-3, -2, -1] and counted(told) == (7, 1)
        strict = policed(manifest, {"share": 1, "fails": True, "atol": 7.9})
        says = "the native kernel and the wasm differ: result 0: 3 of 3 elements differ"
        host.bad("cuda", add_n(strict), [x], [y], INTERNAL, says)
        try:
            strict.add_n(x.like, n=4.0, platform="CUDA")
        except callbox.CallError as error:
            assert (error.code, error.blame) == ("INTERNAL", "guest") and says in error.message, error
        else:
            raise AssertionError("expected a kernel that lies to fail")
        assert counted(told) == (9, 3)
        # Within the tolerance, a difference is none.
        host.good("cuda", add_n(policed(manifest, {"share": 1, "fails": True, "atol": 8})), [x], [y])
        assert counted(told) == (10, 3)
        some = policed(manifest, {"share": 0.5})
        for _ in range(200):
            host.good("cuda", add_n(some), [x], [y])
        shadowed, differing = counted(told)
        assert 40 < shadowed - 10 == differing - 3 < 160, (shadowed, differing)
        never = policed(manifest, {"share": 0, "fails": True})
        host.good("cuda", add_n(never), [x], [y])
        assert counted(told) == (shadowed, differing)
    text = callbox.stats(format="prometheus")
    for name, count in (("shadowed_calls", shadowed), ("shadow_differences", differing)):
        name = f"callbox_{name}_total"
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        assert line.endswith(f'platform="CUDA"}} {count}') and f"# TYPE {name} counter" in text, line


def packaged(module, **tolerance):
    """A package of the module, whose only case has this tolerance."""

    def leb(number):
        encoded = b""
        while number >= 0x80:
            encoded += bytes([number & 0x7F | 0x80])
            number >>= 7
        return encoded + bytes([number])

    def section(name, content):
        body = leb(len(name)) + name + content
        return b"\0" + leb(len(body)) + body

    case = {
        "call": {"target": "add_n", "attributes": {"n": {"type": "f32", "value": 4.0}}},
        "operands": [{"shape": "f32[1]", "values": [1]}],
        "expect": {"results": [{"shape": "f32[1]", "values": [5]}], **tolerance},
    }
    header = b'{"format":1,"name":"add-n","version":"1.0.0","license":"MIT"}'
    sections = section(b"callbox.package", header)
    return module + sections + section(b"callbox.file/cases/a.json", json.dumps(case).encode())


def shadowed_within_the_tolerance_of_cases():
    """Without a tolerance in the policy, that of the package's cases holds."""
    host = xla()
    x, y = Array([1, 2, 3]), nothing((3,))
    module = (BUILT / "add_n.wasm").read_bytes()
    strict = callbox.Host(policy={"shadow": {"share": 1, "fails": True}})
    narrow = callbox.Host(policy={"shadow": {"share": 1, "fails": True, "rtol": 0.5}})
    with tempfile.TemporaryDirectory() as folder:
        manifest = altered(folder)
        wide = packaged(module, atol=8.0)
        host.good("cuda", add_n(strict.load(wide, native=manifest)), [x], [y])
        differ = "the native kernel and the wasm differ"
        for of, package in ((strict, packaged(module, atol=7.0)), (strict, packaged(module)), (narrow, wide)):
            host.bad("cuda", add_n(of.load(package, native=manifest)), [x], [y], INTERNAL, differ)


def shadowed_in_batches_and_with_statuses():
    host = xla()
    good = policed(SOURCES / "add_n/callbox.json", {"share": 1.0, "fails": True})
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for shape in [(2, 3, 4), (2, 1, 4), (1, 1, 4)]:
        x, y = Array(values[: shape[0], : shape[1]]), nothing((2, 3, 4))
        host.good("cuda", add_n(good, shape=(4,)), [x], [y])
        assert np.array_equal(y.get(), np.broadcast_to(x.like + 4, (2, 3, 4))), shape
    assert counted(good) == (3, 0)
    x, y, status = Array([[1, 2], [3, 4]]), nothing((2, 2)), nothing((2,), np.int32)
    host.good("cuda", add_n(good, shape=(2,), on_error="status"), [x], [y, status])
    assert status.get().tolist() == [0, 0] and counted(good) == (4, 0)
    # Elements that failed have no results to compare.
    host.good("cuda", add_n(good, n=-1.0, shape=(2,), on_error="status"), [x], [y, status])
    assert status.get().tolist() == [INVALID_ARGUMENT] * 2 and counted(good) == (4, 0)
    with tempfile.TemporaryDirectory() as folder:
        strict = policed(altered(folder), {"share": 1, "fails": True})
        host.good("cuda", add_n(strict, shape=(2,), on_error="status"), [x], [y, status])
        assert status.get().tolist() == [INTERNAL] * 2 and np.isnan(y.get()).all()
        assert "the native kernel and the wasm differ" in callbox.last_failure(INTERNAL).message
        assert counted(good) == (5, 1)


def what_cannot_be_shadowed():
    """Targets that are not pure, and shares that are none."""
    manifest = SOURCES / "faults/callbox.json"
    host = callbox.Host(policy={"shadow": {"share": 1.0, "fails": True}})
    mixed = host.load(BUILT / "faults.wasm", native=manifest, allow_native=digest_of(manifest, "faults"))
    played = xla()
    x, y = Array([1, 2, 3]), nothing((3,))
    for name in ("healthy", "read_out_of_bounds"):
        played.call("cuda", mixed[name].xla_attributes([f32(3)], [f32(3)], {}), [x], [y])
    calls = {one["target"]: one.get("shadowed") for one in callbox.stats() if one["platform"] == "CUDA"}
    assert (calls["healthy"], calls["read_out_of_bounds"]) == (1, None), calls
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCES / "faults", folder, dirs_exist_ok=True)
        impure = Path(folder, "callbox.json")
        text = json.loads(impure.read_text())
        text["targets"] = text["targets"][1:]
        impure.write_text(json.dumps(text))
        try:
            host.load(BUILT / "faults.wasm", native=impure, allow_native=digest_of(impure, "faults"))
        except ValueError as error:
            assert "`shadow` of the policy is for targets of the trait `pure`" in str(error), error
        else:
            raise AssertionError("expected a module without pure targets to be refused")
    # Without native code there is nothing to compare.
    assert list(host.load(BUILT / "add_n.wasm")) == ["add_n"]
    for shadow, says in [
        ({"share": 1.5}, "expected `share` from 0 to 1, found 1.5"),
        ({}, "missing field `share`"),
        ({"share": 1, "rtol": -1}, "expected `rtol` of at least 0, found -1"),
    ]:
        try:
            callbox.Host(policy={"shadow": shadow})
        except ValueError as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"expected {shadow} to be refused")


def no_driver():
    """Runs without libcuda."""
    says = "CUDA is unavailable: expected NVIDIA's driver (libcuda.so.1"
    module = load()
    assert module.add_n.has_native
    x = np.array([1, 2, 3], np.float32)
    assert module.add_n(x, n=1.0).tolist() == [2, 3, 4]
    try:
        module.add_n(x, n=1.0, platform="CUDA")
    except callbox.CallError as error:
        assert (error.code, error.blame) == ("UNAVAILABLE", "host"), error
        assert error.message.startswith(says), error
    else:
        raise AssertionError("expected a call on CUDA to fail where there is none")
    # The stream and the arrays are never used.
    array = type("Array", (), {"like": x, "address": c.c_uint64(0x1000)})
    for name in ("cuda", "cuda_command_buffer"):
        XLA(c.c_void_p(0x2000)).bad(name, add_n(module), [array], [array], UNAVAILABLE, says)


if __name__ == "__main__":
    if driver:
        assert driver.callbox_stand_in_set_devices(c.c_size_t(2))
    globals()[sys.argv[1]]()
    print("passed")
