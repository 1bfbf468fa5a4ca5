"""Tensors by DLPack in direct calls."""

import ctypes
import gc
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import callbox

CPU = (1, 0)


class _Description(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Unversioned(ctypes.Structure):
    _fields_ = [("tensor", _Description), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", _Description),
    ]


_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Tensor:
    """A producer with every field of the struct at will. It owns no buffer."""

    def __init__(self, array, *, versioned=True, flags=0, device=CPU, **fields):
        self.array, self.versioned, self.flags, self.device = array, versioned, flags, device
        self.fields = fields
        self.deleted = 0
        self.requests = []
        self.kept = []

    def __setitem__(self, key, value):
        self.array[key] = value

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        self.requests.append(options)
        if not self.versioned and options:
            raise TypeError("an old producer")
        array = self.array
        bits = array.view(f"u{array.itemsize}") if array.dtype == ml_dtypes.bfloat16 else array
        code = 4 if bits is not array else {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}[array.dtype.kind]
        rank = self.fields.get("ndim", array.ndim)
        shape = (ctypes.c_int64 * 8)(*self.fields.get("shape", array.shape))
        strides = (ctypes.c_int64 * 8)(*(stride // array.itemsize for stride in array.strides))
        offset = self.fields.get("byte_offset", 0)
        description = _Description(
            self.fields.get("data", bits.ctypes.data - offset),
            *self.fields.get("struct_device", self.device),
            rank,
            self.fields.get("code", code),
            8 * array.itemsize,
            self.fields.get("lanes", 1),
            shape,
            strides if self.fields.get("strides", True) else None,
            offset,
        )

        def delete(_pointer):
            self.deleted += 1

        deleter = _DELETER(delete)
        if self.versioned:
            managed = _Versioned(self.fields.get("major", 1), 0, None, deleter, self.flags, description)
        else:
            managed = _Unversioned(description, None, deleter)
        name = ctypes.create_string_buffer(b"dltensor_versioned" if self.versioned else b"dltensor")
        self.kept.append((bits, shape, strides, deleter, managed, name))
        return _new(ctypes.addressof(managed), name, None)


@pytest.fixture
def add_n(load):
    return load("add_n").add_n


@pytest.fixture
def squareplus(load):
    return load("activation").squareplus


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("strides", [True, False])
def test_an_operand(add_n, versioned, strides):
    tensor = Tensor(X.copy(), versioned=versioned, strides=strides, flags=1 if versioned else 0)
    for count in (1, 2):
        found = add_n(tensor, n=1)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, X + 1)
        assert tensor.deleted == count
    assert tensor.requests[0] == {"max_version": (1, 0)}


def test_an_operand_with_an_offset_and_one_of_rank_0(add_n):
    np.testing.assert_array_equal(add_n(Tensor(X[1:], byte_offset=12), n=1), X[1:] + 1)
    scalar = add_n(Tensor(np.array(3, np.float32)), n=1)
    assert (scalar.shape, float(scalar)) == ((), 4.0)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 4)])
def test_empty_tensors(add_n, shape):
    assert add_n(Tensor(np.zeros(shape, np.float32)), n=1).shape == shape


@pytest.mark.parametrize(
    "view",
    [X.T, X[:, ::2], X[::-1], X[:, ::-1], np.broadcast_to(X[0], (4, 3)), X[:, :1], X[:1].T],
    ids=["transposed", "steps", "reversed rows", "reversed", "broadcast", "column", "one row"],
)
def test_an_operand_in_another_order(add_n, view):
    tensor = Tensor(view)
    np.testing.assert_array_equal(add_n(tensor, n=1), view + 1)
    assert tensor.deleted == 1


def test_out_is_written_in_place(add_n):
    for versioned in (True, False):
        out = Tensor(np.zeros_like(X), versioned=versioned)
        assert add_n(X, n=1, out=out) is out
        np.testing.assert_array_equal(out.array, X + 1)
        assert add_n(out, n=1, out=out) is out
        np.testing.assert_array_equal(out.array, X + 2)
        assert out.deleted == 3


def test_out_is_unchanged_if_the_call_fails(add_n):
    out = Tensor(np.full_like(X, 7))
    with pytest.raises(callbox.CallError, match="INVALID_ARGUMENT"):
        add_n(X, n=-1, out=out)
    assert (out.array == 7).all()
    assert out.deleted == 1


def test_out_has_to_be_writable_contiguous_and_of_the_right_type(add_n):
    with pytest.raises(BufferError, match="out 0: expected an array that can be written, found a read-only one"):
        add_n(X, n=1, out=Tensor(np.zeros_like(X), flags=1))
    with pytest.raises(BufferError, match="out 0: expected a contiguous array in row-major order"):
        add_n(X, n=1, out=Tensor(np.zeros((3, 2), np.float32).T))
    with pytest.raises(TypeError, match="expected dtype float32, found float64"):
        add_n(X, n=1, out=Tensor(np.zeros(X.shape)))
    with pytest.raises(ValueError, match=r"expected shape \(2, 3\), found \(3, 2\)"):
        add_n(X, n=1, out=Tensor(np.zeros((3, 2), np.float32)))


def test_an_unversioned_tensor_without_assignment_is_not_written(add_n):
    class Immutable:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self):
            return self.tensor.__dlpack__()

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    out = Immutable(Tensor(np.zeros_like(X), versioned=False))
    with pytest.raises(BufferError, match="found a read-only one"):
        add_n(X, n=1, out=out)


def test_bfloat16(squareplus, load):
    x = X.astype(ml_dtypes.bfloat16)
    with pytest.raises(TypeError, match="found bfloat16"):
        squareplus(Tensor(x), beta=4.0)
    copy = load("typed_ffi").copy_remaining
    out = Tensor(np.zeros_like(x))
    for given in (Tensor(x), Tensor(x.T.copy().T)):
        found = copy(given, result_shape_dtypes=x)
        assert found.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(found, x)
    copy(Tensor(x), out=out, result_shape_dtypes=x)
    np.testing.assert_array_equal(out.array, x)


def test_memory_of_a_device_is_refused(add_n):
    with pytest.raises(BufferError, match="expected an array in the CPU's memory, found one on CUDA device 1"):
        add_n(Tensor(X, device=(2, 1)), n=1)
    # CUDA's pinned memory is the CPU's.
    np.testing.assert_array_equal(add_n(Tensor(X, device=(3, 0)), n=1), X + 1)


def test_an_object_that_numpy_can_copy_needs_no_memory_of_the_cpu(add_n):
    class Copied(Tensor):
        def __array__(self, dtype=None, copy=None):
            return self.array

    np.testing.assert_array_equal(add_n(Copied(X, device=(2, 0)), n=1), X + 1)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"major": 2}, BufferError, r"expected DLPack 1, found 2\.0"),
        ({"ndim": -1}, BufferError, "invalid number of dimensions"),
        ({"ndim": 65}, BufferError, "invalid number of dimensions"),
        ({"shape": (-1, 3)}, BufferError, "invalid shape"),
        ({"shape": (1 << 62, 1 << 62)}, BufferError, "invalid shape"),
        ({"data": None}, BufferError, "invalid pointer"),
        ({"struct_device": (2, 0)}, BufferError, "invalid device"),
        ({"lanes": 4}, TypeError, "code 2, 32 bits and 4 lanes"),
        ({"code": 3}, TypeError, "code 3, 32 bits and 1 lanes"),
    ],
)
def test_an_invalid_tensor_is_refused_and_released(add_n, fields, error, message):
    tensor = Tensor(X, **fields)
    with pytest.raises(error, match=message):
        add_n(tensor, n=1)
    assert tensor.deleted == 1


def test_a_copy_larger_than_any_memory_is_refused(add_n):
    tensor = Tensor(np.broadcast_to(np.float32(1), (4,)), shape=(1 << 45,))
    with pytest.raises(MemoryError, match="out of memory while trying to allocate 140737488355328 bytes"):
        add_n(tensor, n=1)
    assert tensor.deleted == 1


def test_a_huge_tensor_is_refused_before_it_is_copied(load):
    tensor = Tensor(np.broadcast_to(np.float32(1), (4,)), shape=(1 << 45,))
    with pytest.raises(callbox.CallError, match="operands, results and attributes of at most") as raised:
        load("faults").healthy(tensor, result_shape_dtypes=("float32", (1,)))
    assert raised.value.code == "RESOURCE_EXHAUSTED"
    assert tensor.deleted == 1


def test_numbers_to_be_negated_are_refused(add_n):
    class Negative(Tensor):
        def is_neg(self):
            return True

    with pytest.raises(BufferError, match=r"call resolve_neg\(\)"):
        add_n(Negative(X), n=1)


def test_an_interrupt_of_the_producer_is_not_lost(add_n):
    class Interrupted(Tensor):
        def __dlpack__(self, **options):
            raise KeyboardInterrupt

        def __array__(self, dtype=None, copy=None):
            return self.array

    with pytest.raises(KeyboardInterrupt):
        add_n(Interrupted(X), n=1)


def test_what_is_no_capsule_is_refused(add_n):
    class Wrong(Tensor):
        def __dlpack__(self, **options):
            return self.fields["given"]

    tensor = Tensor(X)
    used = tensor.__dlpack__()
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(used), b"used_dltensor_versioned")
    for given in (used, None, 3):
        with pytest.raises(BufferError, match="expected a DLPack capsule that was not used yet"):
            add_n(Wrong(X, given=given), n=1)
    assert tensor.deleted == 0


def test_an_error_of_the_producer_is_the_callers(add_n):
    class Refuses(Tensor):
        def __dlpack__(self, **options):
            raise BufferError("needs a gradient")

    with pytest.raises(BufferError, match="needs a gradient"):
        add_n(Refuses(X), n=1)


def test_results_offer_dlpack(add_n):
    found = add_n(Tensor(X), n=1)
    assert found.__dlpack_device__() == CPU
    np.testing.assert_array_equal(np.from_dlpack(found), X + 1)


def test_nothing_is_kept(add_n):
    tensor = Tensor(X.copy())
    gone = weakref.ref(tensor)
    before = sys.getrefcount(tensor)
    add_n(tensor, n=1, out=tensor)
    assert tensor.deleted == 2
    # The deleters refer to the tensor.
    tensor.kept.clear()
    assert sys.getrefcount(tensor) == before
    del tensor
    gc.collect()
    assert gone() is None
