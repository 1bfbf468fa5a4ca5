"""Regression tests for the findings of a review."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import callbox


@pytest.fixture
def typed(guests: Path) -> callbox.Module:
    return callbox.Host().load(guests / "typed_ffi.wasm")


def resident() -> int:
    """The resident memory of the process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ever_other_shapes_do_not_fill_the_memory(guests: Path) -> None:
    softmax = callbox.Host().load(guests / "softmax.wasm").softmax
    before = resident()
    for more in range(40):
        softmax(np.zeros((5000 + more, 1000), np.float32))
    # 40 arenas of 40 MB each would be 1.6 GB.
    assert resident() - before < 900 << 20


@pytest.mark.parametrize("values", [[1.7], ["12"], [True], [None]])
def test_a_list_of_something_else_is_no_array_of_integers(typed: callbox.Module, values: list[object]) -> None:
    with pytest.raises(TypeError, match="int32"):
        typed.array_shape(array=values, result_shape_dtypes=("int64", (4,)))


def test_a_list_of_too_large_integers_is_not_wrapped(typed: callbox.Module) -> None:
    with pytest.raises(OverflowError, match="int32"):
        typed.array_shape(array=[1 << 40], result_shape_dtypes=("int64", (4,)))


def test_a_number_does_not_become_infinite(guests: Path) -> None:
    add_n = callbox.Host().load(guests / "add_n.wasm").add_n
    x = np.ones(2, np.float32)
    with pytest.raises(OverflowError, match="float32"):
        add_n(x, n=1e300)
    with pytest.raises(OverflowError):
        add_n(x, n=10**400)
    assert np.isinf(add_n(x, n=float("inf"))).all()


def test_numbers_of_numpy_that_are_floats_of_pythons_take_the_declared_type(guests: Path) -> None:
    add_n = callbox.Host().load(guests / "add_n.wasm").add_n
    np.testing.assert_array_equal(add_n(np.ones(2, np.float32), n=np.sqrt(np.float64(4))), [3, 3])


def test_an_exception_of_somebody_elses_stays_as_it_is(typed: callbox.Module) -> None:
    class OddError(Exception):
        def __init__(self, one: int, other: int) -> None:
            super().__init__(one, other)

    class Raises:
        dtype, shape = np.dtype(np.int32), (1,)

        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise OddError(1, 2)

    with pytest.raises(OddError):
        typed.array_shape(array=Raises(), result_shape_dtypes=("int64", (4,)))
    with pytest.raises(UnicodeEncodeError):
        typed.text(text="\udc80", result_shape_dtypes=("uint8", (1,)))


def test_a_dict_that_changes_while_it_is_read_is_no_panic(typed: callbox.Module) -> None:
    class Changes:
        shape = (1,)

        def __init__(self, inside: dict[object, object]) -> None:
            self.inside = inside

        @property
        def dtype(self) -> np.dtype:
            self.inside[len(self.inside)] = 1
            return np.dtype(np.float32)

        def __array__(self, *_: object, **__: object) -> np.ndarray:
            return np.ones(1, np.float32)

    attributes: dict[object, object] = {}
    attributes["leaf"] = Changes(attributes)
    with pytest.raises((TypeError, ValueError, callbox.CallError)):
        typed.depth(nested=attributes, result_shape_dtypes=("int32", (2,)))


def test_fields_of_dictionaries_take_the_declared_types(typed: callbox.Module) -> None:
    def window(**fields: object) -> list[int]:
        window = {"range": {"lo": -8, "hi": 5}, "rounding": 1} | fields
        return typed.window(window=window, result_shape_dtypes=("int64", (5,))).tolist()

    assert window() == [-8, 5, 1, -1, -1]
    # `rounding` is an int32, and `weights` are float32.
    assert window(weights=[1, 2.5], type="odd", range={"lo": 0, "hi": np.int64(1)}) == [0, 1, 1, 3, 2]
    assert window(weights=None) == [-8, 5, 1, -1, -1]
    (declared,) = typed.window.attributes
    assert [(field.name, field.kind, field.dtype, field.optional) for field in declared.fields] == [
        ("range", "dictionary", None, False),
        ("rounding", "scalar", "int32", False),
        ("type", "string", None, True),
        ("weights", "array", "float32", True),
    ]
    assert "range: dictionary {lo: int64, hi: int64}" in repr(declared)
    fields = 'expected the fields "range", "rounding", "type", "weights", found'
    for wrong, kind, message in [
        ({"rounding": 1.5}, TypeError, '"window.rounding": expected a scalar of int32, found a scalar of float64'),
        ({"rounding": 2**31}, OverflowError, '"window.rounding": expected a number that int32 holds, found 2147483648'),
        ({"type": 4}, TypeError, '"window.type": expected a string, found a scalar of int64'),
        ({"range": {"lo": "a", "hi": 5}}, TypeError, '"window.range.lo": expected a scalar of int64, found a string'),
        ({"range": {"lo": 1}}, TypeError, '"window.range": expected the fields "lo", "hi", found no "hi"'),
        ({"range": 1}, TypeError, '"window.range": expected a dictionary, found a scalar of int64'),
        ({"rounding": None}, TypeError, '"window.rounding": expected a number, a string,'),
        ({"lo": 1}, TypeError, f'"window": {fields} another "lo"'),
        ({1: 1}, TypeError, '"window": expected names as the keys of a dictionary, found 1'),
    ]:
        with pytest.raises(kind) as raised:
            typed.window(
                window={"range": {"lo": 0, "hi": 1}, "rounding": 1} | wrong,
                result_shape_dtypes=("int64", (5,)),
            )
        assert str(raised.value).startswith(f"window(): attribute {message}")
    # A dictionary that declares no fields takes any, and errors name them, too.
    with pytest.raises(TypeError, match='attribute "nested.deeper": expected a number, .* found object'):
        typed.depth(nested={"deeper": object()}, result_shape_dtypes=("int32", (2,)))


def test_a_target_without_attributes_takes_none(guests: Path) -> None:
    softmax = callbox.Host().load(guests / "softmax.wasm").softmax
    with pytest.raises(TypeError, match='expected no attributes, found "axis"'):
        softmax(np.ones(3, np.float32), axis=0)


def test_a_typed_target_takes_no_opaque_bytes(guests: Path) -> None:
    add_n = callbox.Host().load(guests / "add_n.wasm").add_n
    with pytest.raises(TypeError, match="opaque"):
        add_n(np.ones(2, np.float32), n=1.0, opaque=b"x")


def test_truth_values_are_0_and_1_whatever_a_guest_wrote(typed: callbox.Module) -> None:
    any_bytes = np.arange(5000, dtype=np.int64).astype(np.uint8).view(np.bool_)
    result = typed.copy_any(any_bytes, result_shape_dtypes=any_bytes)
    np.testing.assert_array_equal(result.view(np.uint8), any_bytes.view(np.uint8) != 0)


def test_another_interpreter_of_the_process_is_refused() -> None:
    program = """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
import callbox
other = interpreters.create()
said = "'callbox can be imported by one interpreter'"
outcome = interpreters.run_string(other, f'''
try:
    import callbox
except ImportError as error:
    assert {said} in str(error) or "subinterpreter" in str(error), error
else:
    raise SystemExit("expected an ImportError")
''')
assert outcome is None, outcome
interpreters.destroy(other)
print(callbox.Host())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "callbox.Host" in done.stdout


def test_what_another_stage_takes_is_given_to_the_target(typed: callbox.Module) -> None:
    # The stage `instantiate` declares `value`, the stage `execute` declares nothing.
    assert typed.states.attributes is None


def test_messages_list_the_first_of_many_names(assemble) -> None:
    names = [f"n{number:03}".ljust(1000, "x") for number in range(300)]
    scalars = [{"name": name, "kind": "scalar", "element_type": "f32"} for name in names]
    arrays = [{"name": name, "element_types": ["f32"], "dimensions": [".."]} for name in names]
    declarations = [
        {"name": "f", "operands": [], "attributes": scalars, "results": []},
        {"name": "g", "operands": arrays, "attributes": [], "results": []},
    ]
    takes_many = callbox.Host().load(assemble(dict.fromkeys("fg", b"\x41\x00"), declarations))
    declarations = [{"name": name, "operands": [], "results": []} for name in names]
    has_many = callbox.Host().load(assemble(dict.fromkeys(names, b"\x41\x00"), declarations))
    plain = ", ".join(f"{name[:100]}..." for name in names[:16]) + " and 284 more"
    quoted = ", ".join(f'"{name[:100]}..."' for name in names[:16]) + " and 284 more"
    for kind, call, expected in [
        (
            TypeError,
            lambda: takes_many.f(x=1.0),
            f'expected the attributes {quoted}, found another "x" and no {quoted}',
        ),
        (
            TypeError,
            lambda: takes_many.f(attributes=dict.fromkeys([*names, "x"], 1.0)),
            f'expected the attributes {quoted}, found another "x"',
        ),
        (TypeError, takes_many.g, f"expected 300 operands ({plain}), found 0"),
        (KeyError, lambda: has_many["x"], f'expected a target of the module ({plain}), found "x"'),
        (AttributeError, lambda: has_many.x, f'expected a target of the module ({plain}), found "x"'),
    ]:
        with pytest.raises(kind) as caught:
            call()
        assert caught.value.args[0].rpartition("(): ")[2] == expected
    assert repr(has_many) == f"<callbox.Module {has_many.digest[:12]} with {plain}>"
