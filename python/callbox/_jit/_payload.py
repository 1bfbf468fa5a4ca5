"""What the compiler's process gets: a function, and the functions and constants that it uses.

Code is sent as CPython marshals it. The digest of a payload leaves out file names and line numbers,
so that moving a function in its file does not compile it again.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import marshal
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from callbox import math as kernel_math
from callbox.types import ElementType

from ._errors import CompileError

#: The most bytes of an array that becomes part of a module. Of a larger one Numba takes the address
#: in the compiler's process (`make_constant_array` in numba/core/base.py).
MAX_ARRAY = 10**6

_MODULES = {"callbox.math": kernel_math, "math": None, "numpy": np}


@dataclass
class Function:
    """One Python function. Values are pairs of a kind and what says which."""

    name: str
    code: bytes
    globals: dict[str, tuple[str, Any]]
    cells: tuple[tuple[str, Any], ...]
    defaults: tuple[tuple[str, Any], ...]


@dataclass
class Payload:
    """A kernel's function, the first, and all functions that it calls."""

    functions: list[Function] = field(default_factory=list)
    #: A digest of what the functions do.
    digest: bytes = b""
    #: Whether a function names `f64`, so that numbers in Python are not taken as f32.
    names_f64: bool = False


def payload_of(function: Callable[..., Any]) -> Payload:
    """Collects a function and what it uses.

    Raises:
        CompileError: It uses a variable that a kernel cannot have.
    """
    return _Collector().collect(function)


class _Collector:
    def __init__(self) -> None:
        self.payload = Payload()
        self.numbers: dict[Any, int] = {}
        #: The functions whose names are being collected.
        self.open: set[Any] = set()
        self.hash = hashlib.sha256()

    def collect(self, function: Any) -> Payload:
        try:
            self.add(function)
        except RecursionError:
            raise CompileError(
                f"{function.__name__}: what it uses nests too deep",
                function.__code__.co_filename,
                function.__code__.co_firstlineno,
            ) from None
        self.payload.digest = self.hash.digest()
        return self.payload

    def add(self, function: Any) -> int:
        """The number of a function, which is added if it is new."""
        if function in self.numbers:
            return self.numbers[function]
        number = self.numbers[function] = len(self.numbers)
        code = function.__code__
        # Functions that this one uses are numbered after it.
        self.payload.functions.append(Function(function.__name__, marshal.dumps(code), {}, (), ()))
        _check_code(code)
        where = _Place(function)
        read = {name for name, _ in uses(code)}.difference(code.co_freevars)
        used = sorted(name for name in read if name in function.__globals__)
        if "print" in read.difference(used):
            raise where.reason("print", "a kernel cannot print")
        self.open.add(function)
        entry = self.payload.functions[number]
        entry.globals = {name: self.value(function.__globals__[name], name, where) for name in used}
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        entry.cells = tuple(self.value(_content(cell, name, where), name, where) for name, cell in cells)
        entry.defaults = tuple(self.value(value, "a default", where) for value in function.__defaults__ or ())
        names = {*used, *code.co_names, *code.co_freevars}
        self.payload.names_f64 |= not names.isdisjoint({"f64", "float64", "double"})
        self.open.remove(function)
        # Not `repr`, which is the same for all NaNs.
        self.hash.update(marshal.dumps((number, entry.globals, entry.cells, entry.defaults), 2))
        self.hash.update(marshal.dumps(_placeless(code), 2))
        return number

    def value(self, value: Any, name: str, where: _Place) -> tuple[str, Any]:
        value = getattr(value, "__callbox_function__", value)
        if isinstance(value, ElementType):
            return ("type", value.name)
        if isinstance(value, np.generic):
            item = value.item()
            if not isinstance(item, (bool, int, float, complex)):
                raise where.error(name, f"a value of dtype {value.dtype}")
            return ("scalar", (value.dtype.str, item))
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise where.error(name, "an integer of more than 64 bits")
        # Subclasses, such as enumerations, may have a `repr` that does not tell the value.
        kind = next((kind for kind in (bool, int, float) if isinstance(value, kind)), None)
        if kind is not None or value is None:
            return ("constant", kind and kind(value))
        if isinstance(value, tuple):
            return ("tuple", tuple(self.value(item, name, where) for item in value))
        if isinstance(value, np.ma.MaskedArray):
            raise where.error(name, "a masked array, whose mask a kernel would not see: pass the data and the mask")
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biuf" or value.nbytes > MAX_ARRAY:
                raise where.error(
                    name, f"an array of dtype {value.dtype} and {value.nbytes} bytes (the most are {MAX_ARRAY})"
                )
            return ("array", (value.dtype.str, value.shape, value.tobytes()))
        if inspect.ismodule(value):
            if value.__name__ in _MODULES:
                return ("module", value.__name__)
            raise where.error(name, f"the module {value.__name__}: import the functions that the kernel calls by name")
        if inspect.isfunction(value):
            if value.__module__ == kernel_math.__name__ and value.__name__ in kernel_math.__all__:
                return ("math", value.__name__)
            if value in self.open:
                raise where.reason(name, f"a kernel has no recursion, and {name!r} calls itself: write a loop")
            return ("function", self.add(value))
        if isinstance(value, type) and issubclass(value, np.generic):
            return ("dtype", np.dtype(value).str)
        if (isinstance(value, type) and issubclass(value, BaseException)) or inspect.isbuiltin(value):
            return ("object", (value.__module__, value.__qualname__))
        raise where.error(name, f"a {type(value).__name__}")


@dataclass(frozen=True)
class _Place:
    function: Any

    def error(self, name: str, what: str) -> CompileError:
        return self.reason(name, f"{name!r} is {what}; a kernel can use numbers, arrays of them, and functions")

    def reason(self, name: str, reason: str) -> CompileError:
        code = self.function.__code__
        line = next((line for used, line in uses(code) if used == name and line), code.co_firstlineno)
        return CompileError(f"{self.function.__name__}: {reason}", code.co_filename, line)


def _content(cell: types.CellType, name: str, where: _Place) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        raise where.error(name, "not defined yet") from None


def uses(code: types.CodeType) -> Iterator[tuple[str, int | None]]:
    """The variables of other scopes that code reads, with the lines."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            # `starts_line` has no number from Python 3.13 on.
            yield instruction.argval, instruction.positions.lineno if instruction.positions else None


def _check_code(code: types.CodeType) -> None:
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise CompileError(
            f"{code.co_name}: a kernel cannot be a generator or a coroutine", code.co_filename, code.co_firstlineno
        )
    for instruction in dis.get_instructions(code):
        # Python 3.14 has the second.
        if instruction.opname in ("BEFORE_WITH", "LOAD_SPECIAL"):
            line = instruction.positions.lineno if instruction.positions else None
            message = f"{code.co_name}: a kernel cannot use `with`"
            raise CompileError(message, code.co_filename, line or code.co_firstlineno)
    if any(isinstance(constant, types.CodeType) for constant in code.co_consts):
        raise CompileError(
            f"{code.co_name}: a kernel cannot define functions, and has no comprehensions",
            code.co_filename,
            code.co_firstlineno,
        )


def _placeless(code: types.CodeType) -> types.CodeType:
    """The code without its place in a file, and without the docstring's."""
    return code.replace(co_filename="", co_firstlineno=1, co_linetable=b"")
