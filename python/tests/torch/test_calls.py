"""Calls: values, dtypes, memory, attributes and errors."""

import enum
import itertools
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import callbox
import callbox.torch
from callbox import _literals


def squareplus_of_torch(x: torch.Tensor, beta: float) -> torch.Tensor:
    return (x + torch.sqrt(x * x + beta)) / 2


def rms_norm_of_torch(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 0, 3), (2, 3, 4)])
def test_results_are_those_of_torch(squareplus, dtype, shape):
    x = torch.randn(shape, dtype=dtype)
    result = squareplus(x, beta=2.0)
    assert result.dtype is dtype
    torch.testing.assert_close(result, squareplus_of_torch(x, 2.0))


@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    order=st.randoms(use_true_random=False),
    steps=st.lists(st.integers(1, 3), min_size=4, max_size=4),
)
def test_any_strides_will_do(squareplus, shape, order, steps):
    axes = list(range(len(shape)))
    order.shuffle(axes)
    full = torch.randn([size * step for size, step in zip(shape, steps, strict=False)])
    x = full[tuple(slice(None, None, step) for step in steps[: len(shape)])].permute(axes)
    torch.testing.assert_close(squareplus(x, beta=1.0), squareplus_of_torch(x, 1.0))


def test_an_expanded_operand_is_taken_as_it_looks(rms_norm):
    x = torch.randn(3).expand(4, 3)
    weight = torch.ones(1).expand(3)
    torch.testing.assert_close(rms_norm(x, weight, eps=1e-6), rms_norm_of_torch(x, weight, 1e-6))


def test_a_huge_operand_is_refused_before_it_is_copied(faults):
    healthy = callbox.torch.op(faults.healthy, result_shape_dtypes=((1,), torch.float32))
    with pytest.raises(callbox.CallError, match="operands, results and attributes of at most") as raised:
        healthy(torch.zeros(1).expand(1 << 43))
    assert raised.value.code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2])
def test_windows_and_repeated_rows_are_taken_as_they_look(typed, dtype):
    copy = callbox.torch.op(typed.copy_remaining, result_shape_dtypes=lambda x: x)
    x = torch.arange(8).to(torch.float32).to(dtype)
    for view in (x.unfold(0, 4, 1), x.expand(3, 8), x.as_strided((5, 2), (0, 1)), x.view(2, 4).T):
        bits = copy(view).contiguous().view(torch.uint8)
        assert torch.equal(bits, view.contiguous().view(torch.uint8))


def test_operands_are_not_written(squareplus):
    x = torch.randn(16)
    before = x.clone()
    result = squareplus(x, beta=1.0)
    assert torch.equal(x, before)
    assert result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_floats(typed, dtype):
    scale = callbox.torch.op(typed.scale, result_shape_dtypes=lambda x, factor: x)
    x = torch.tensor([1.5, -2.0, 0.0], dtype=dtype)
    result = scale(x, factor=2.0)
    assert result.dtype is dtype
    assert torch.equal(result, torch.tensor([3.0, -4.0, 0.0], dtype=dtype))


def test_a_dtype_may_be_a_name(typed):
    scale = callbox.torch.op(typed.scale, result_shape_dtypes=lambda x, factor: (tuple(x.shape), "bfloat16"))
    x = torch.ones(3, dtype=torch.bfloat16)
    assert torch.equal(scale(x, factor=2.0), x + x)


def test_a_conjugate_that_is_not_computed_yet_is_computed(typed):
    conjugate = callbox.torch.op(typed.conjugate, result_shape_dtypes=lambda x: x)
    x = torch.tensor([1 + 2j, 3 - 1j])
    assert torch.equal(conjugate(x.conj()), x)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.uint16, torch.int64, torch.complex128, torch.float8_e5m2]
)
def test_every_dtype_arrives_as_it_is(typed, dtype):
    copy = callbox.torch.op(typed.copy_any, result_shape_dtypes=lambda x: [x])
    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    result = copy(x)
    assert result.dtype is dtype
    assert torch.equal(result.view(torch.uint8), x.view(torch.uint8))


def test_several_operands_and_results(typed):
    copy = callbox.torch.op(typed.copy_remaining, result_shape_dtypes=lambda *operands: operands)
    x, y = torch.arange(3), torch.ones(2, 2)
    results = copy(x, y)
    assert isinstance(results, tuple)
    assert [torch.equal(a, b) for a, b in zip(results, (x, y), strict=True)] == [True, True]


@pytest.mark.parametrize(
    "shapes",
    [
        ((3,), torch.uint8),
        [((3,), torch.uint8)],
        torch.empty(3, dtype=torch.uint8),
        np.empty(3, np.uint8),
        ((3,), "uint8"),
    ],
    ids=["pair", "list", "tensor", "array", "name"],
)
def test_shapes_may_be_said(typed, shapes):
    text = callbox.torch.op(typed.text, result_shape_dtypes=shapes)
    assert text(text="abc").tolist() == [97, 98, 99]


def test_a_dictionary_is_an_attribute(typed):
    depth = callbox.torch.op(typed.depth, result_shape_dtypes=((2,), torch.int32))
    assert depth(nested={"a": {"b": {}}}).shape == (2,)


ATTRIBUTES = [
    {},
    {"a": True, "b": -3, "c": 'it\'s "ü"\n', "d": None, "e": b"\0\xff"},
    {"a": float("inf"), "b": -float("inf"), "c": -0.0, "d": 5e-324, "e": 1e300, "f": 1 - 2j, "g": complex("inf")},
    {"a": [1, [2.5, "x"], {"b": [False]}], "c": {"d": {}}},
    {"a": np.float32(0.1), "b": np.int8(-1), "c": np.bool_(True), "d": np.complex64(1j)},
    {"a": np.arange(6, dtype=np.int16).reshape(2, 3).T, "b": np.zeros((0, 2), np.float32)},
    {"a": np.arange(3, dtype=">i4"), "b": np.array(2.5, ">f8"), "c": np.array(1, np.int8)},
]


@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_attributes_are_read_as_they_were_written(attributes):
    read = _literals.attributes(_literals.literal(attributes))
    assert list(read) == list(attributes)
    for name, value in attributes.items():
        assert type(read[name]) is type(value)
        assert getattr(read[name], "dtype", None) == getattr(value, "dtype", None)
        # Texts distinguish -0.0 from 0.0, and ignore the memory order of arrays.
        assert repr(read[name]) == repr(value)


class Name(enum.StrEnum):
    FIRST = "first\0"


class Shouted(bytes):
    def __repr__(self):
        return "shouted"


def test_strings_of_other_classes_are_strings():
    given = {
        np.str_("a"): Name.FIRST,
        "b": np.str_("x\0"),
        "c": np.bytes_(b"x\0"),
        "d": np.bytes_(b""),
        "e": Shouted(b"x"),
    }
    read = _literals.attributes(_literals.literal(given))
    assert read == {"a": "first\0", "b": "x\0", "c": b"x\0", "d": b"", "e": b"x"}
    assert {type(value) for value in read.values()} == {str, bytes}


def test_names_are_strings():
    with pytest.raises(TypeError, match="as the keys of a dictionary, found 1"):
        _literals.literal({"a": {1: 2}})


def test_an_array_has_the_byte_order_of_this_machine(typed):
    shape = callbox.torch.op(typed.array_shape, result_shape_dtypes=((4,), torch.int64))
    assert shape(array=np.arange(3, dtype="=i4")).tolist() == [1, 3, 0, 2]
    with pytest.raises(TypeError, match="byte order"):
        shape(array=np.arange(3, dtype="=i4").astype(np.dtype("i4").newbyteorder("S")))


def test_attributes_of_other_types_are_refused(squareplus):
    with pytest.raises(TypeError, match="found Tensor"):
        squareplus(torch.ones(2), beta=torch.ones(()))


def test_a_failure_is_the_targets(squareplus, faults):
    with pytest.raises(callbox.CallError) as caught:
        squareplus(torch.ones(2), beta=-1.0)
    assert caught.value.code == "INVALID_ARGUMENT"
    panic = callbox.torch.op(faults.panic, result_shape_dtypes=lambda x: x)
    with pytest.raises(callbox.CallError) as caught:
        panic(torch.ones(2))
    assert caught.value.code == "ABORTED"
    torch.testing.assert_close(squareplus(torch.ones(2), beta=0.0), torch.ones(2))


def test_a_deadline_is_kept(faults):
    endless = callbox.torch.op(faults.infinite_loop, result_shape_dtypes=lambda x: x, deadline=0.05)
    with pytest.raises(callbox.CallError) as caught:
        endless(torch.ones(2))
    assert caught.value.code == "DEADLINE_EXCEEDED"


#: Counts down from a million in the register of the frame, which takes a millisecond.
_COUNTS = b"\x41\xc0\x84\x3d\x21\x00\x03\x40\x20\x00\x41\x01\x6b\x22\x00\x0d\x00\x0b\x41\x00"


def _array(name):
    return {"name": name, "element_types": ["f32"], "dimensions": ["n"]}


@pytest.fixture(scope="module")
def slow(assemble):
    """A target whose derivative takes about a millisecond."""
    derivative = {"name": "g", "operands": [_array("x"), _array("d")], "results": [_array("z")]}
    declarations = [
        {"name": "f", "operands": [_array("x")], "results": [_array("y")]},
        derivative | {"derivative_of": "f", "derivative_mode": "vjp"},
    ]
    return callbox.Host().load(assemble({"f": b"\x41\x00", "g": _COUNTS}, declarations))


def test_a_deadline_is_that_of_a_whole_batch(slow):
    op = callbox.torch.op(slow.g, deadline=0.2)
    mapped = torch.func.vmap(lambda x: op(x, x))
    assert mapped(torch.ones(2, 2)).shape == (2, 2)
    with pytest.raises(callbox.CallError, match="deadline of 200ms") as caught:
        mapped(torch.ones(1000, 2))
    assert (caught.value.code, caught.value.blame) == ("DEADLINE_EXCEEDED", "guest")


def test_a_deadline_is_that_of_a_whole_backward_pass(slow):
    mapped = torch.func.vmap(callbox.torch.op(slow.f, deadline=0.2))
    x = torch.ones(8, 2, requires_grad=True)
    y = mapped(x).sum()
    # Each pass has the time anew.
    for _ in range(40):
        y.backward(retain_graph=True)
    x = torch.ones(1000, 2, requires_grad=True)
    for differentiate in (
        lambda: mapped(x).sum().backward(),
        lambda: torch.func.grad(lambda x: mapped(x).sum())(x.detach()),
        lambda: torch.func.vjp(mapped, x.detach())[1](x.detach()),
    ):
        with pytest.raises(callbox.CallError, match="deadline of 200ms") as caught:
            differentiate()
        assert (caught.value.code, caught.value.blame) == ("DEADLINE_EXCEEDED", "guest")


def test_the_time_of_python_is_not_the_batchs(activation):
    def shapes(x, **_):
        time.sleep(0.1)
        return x

    op = callbox.torch.op(activation.squareplus, result_shape_dtypes=shapes, deadline=0.1)
    assert torch.func.vmap(lambda x: op(x, beta=0.0))(torch.ones(2, 2)).shape == (2, 2)
    # Each call waits for the interpreter lock, which the other thread gives up after 5 ms.
    op = callbox.torch.op(activation.squareplus, deadline=0.25)
    ended = threading.Event()

    def compute():
        while not ended.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        assert torch.func.vmap(lambda x: op(x, beta=0.0))(torch.ones(200, 2)).shape == (200, 2)
    finally:
        ended.set()
        thread.join()


def test_derivatives_of_derivatives_end(assemble):
    """Declarations can go on and on."""
    names = [f"f{number}" for number in range(200)]
    declarations = [{"name": "f0", "operands": [_array("x")], "results": [_array("y")]}]
    for before, name in itertools.pairwise(names):
        declarations.append({"name": name, "derivative_of": before, "derivative_mode": "vjp"})
    module = callbox.Host().load(assemble(dict.fromkeys(names, b"\x41\x00"), declarations))
    assert callbox.torch.op(module.f0)(torch.ones(2)).shape == (2,)
    operators = [name for name in dir(torch.ops.callbox) if name.startswith("f1")]
    assert len(operators) < 20


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_bad_calls_are_refused_before_the_guest_runs(squareplus):
    for call, error in [
        (lambda: squareplus(torch.ones(2, dtype=torch.int32), beta=1.0), TypeError),
        (lambda: squareplus(torch.ones(2)), TypeError),
        (lambda: squareplus(torch.ones(2), beta=1.0, gamma=2.0), TypeError),
        (lambda: squareplus(torch.ones(2), torch.ones(2), beta=1.0), TypeError),
        (lambda: squareplus(torch.ones(2, dtype=torch.complex32), beta=1.0), TypeError),
    ]:
        with pytest.raises(error):
            call()


def test_results_that_are_not_said_are_asked_for(typed):
    scale = callbox.torch.op(typed.scale)
    with pytest.raises(ValueError, match="scale"):
        scale(torch.ones(2, dtype=torch.float16), factor=1.0)
    scale = callbox.torch.op(typed.scale, result_shape_dtypes=["f16"])
    with pytest.raises(ValueError, match="'f16' at position 0"):
        scale(torch.ones(2, dtype=torch.float16), factor=1.0)


def test_a_gpu_is_refused_by_name(squareplus):
    with FakeTensorMode():
        x = torch.empty(3, device="cuda")
        with pytest.raises(NotImplementedError, match=r"'squareplus'.*CPU.*operand 0 on cuda"):
            squareplus(x, beta=1.0)


def test_what_is_no_target_is_refused(activation):
    with pytest.raises(TypeError, match="found function"):
        callbox.torch.op(squareplus_of_torch)
    with pytest.raises(TypeError, match=r"expected vjp .* found str"):
        callbox.torch.op(activation.squareplus, vjp="squareplus_grad")


def test_names_are_unique(activation):
    ours = callbox.torch.op(activation.squareplus, name="ours")
    torch.testing.assert_close(torch.ops.callbox.ours([torch.zeros(2)], "{'beta': 4.0}", -1)[0], torch.ones(2))
    assert ours.operator is torch.ops.callbox.ours.default
    with pytest.raises(ValueError, match="'ours'"):
        callbox.torch.op(activation.squareplus, name="ours")
    with pytest.raises(ValueError, match="identifier"):
        callbox.torch.op(activation.squareplus, name="not a name")
    one, other = (callbox.torch.op(activation.squareplus, deadline=5.0) for _ in range(2))
    assert one.operator is not other.operator
    torch.testing.assert_close(one(torch.ones(2), beta=0.0), other(torch.ones(2), beta=0.0))


def test_a_function_is_described(squareplus, activation):
    assert squareplus.__name__ == "squareplus"
    assert squareplus.__doc__ == activation.squareplus.__doc__
    assert "beta" in str(squareplus.__signature__)
    assert "out" not in squareplus.__signature__.parameters


@pytest.mark.parametrize(("value", "kind"), [(np.ones(3, np.float32), "ndarray"), (1.0, "float"), ([1.0], "list")])
def test_operands_must_be_tensors(squareplus, value, kind):
    with pytest.raises(TypeError, match=rf"expected a tensor as operand 0 \(x\), found {kind}: torch.as_tensor"):
        squareplus(value, beta=1.0)


def test_operands_by_name(rms_norm):
    x, weight = torch.ones(2, 3), torch.full((3,), 2.0)
    expected = rms_norm(x, weight, eps=0.0)
    torch.testing.assert_close(rms_norm(x, weight=weight, eps=0.0), expected, rtol=0, atol=0)
    torch.testing.assert_close(rms_norm(weight=weight, eps=0.0, x=x), expected, rtol=0, atol=0)
