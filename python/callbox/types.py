"""The types that annotate the parameters of jitted kernels.

``f32`` is a scalar, ``f32["n"]`` an array of one dimension, and ``f32["..", "n"]`` an array of
rows. See `callbox.jit`.
"""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "ArrayType",
    "ElementType",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "pred",
    "u8",
    "u16",
    "u32",
    "u64",
]

#: The most dimensions of a declared array.
MAX_RANK = 8

#: The most characters of a dimension's name or expression, as in a module's metadata.
MAX_TEXT = 64

_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class ElementType:
    """The type of a scalar, or of the elements of an array.

    A call converts a number: ``f32(x)``, in kernels and in plain Python.
    """

    #: The name in annotations and in messages.
    name: str
    #: The name in a module's metadata.
    xla_name: str
    dtype: np.dtype[Any]

    def __getitem__(self, dimensions: Any) -> ArrayType:
        """Declares an array with these dimensions."""
        items = dimensions if isinstance(dimensions, tuple) else (dimensions,)
        return ArrayType(self, tuple(_dimension(item, position) for position, item in enumerate(_bounded(items))))

    def __call__(self, value: Any) -> Any:
        """Converts a number."""
        return self.dtype.type(value)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ArrayType:
    """An array. Its dimensions are sizes, names, expressions such as ``"n/2"``, and ``".."``."""

    element: ElementType
    dimensions: tuple[int | str, ...]

    @property
    def has_rows(self) -> bool:
        """Whether the array has any number of leading dimensions."""
        return self.dimensions[:1] == ("..",)

    def __repr__(self) -> str:
        return f"{self.element}[{', '.join(map(str, self.dimensions)) or '()'}]"


def _bounded(items: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(items) > MAX_RANK:
        raise ValueError(f"expected at most {MAX_RANK} dimensions, found {len(items)}")
    return items


def _dimension(item: Any, position: int) -> int | str:
    if item is Ellipsis or item == "..":
        if position:
            raise ValueError('".." must be the first dimension')
        return ".."
    found: int | str | None = item
    if isinstance(item, str):
        found = _computed(item)
    if isinstance(found, str):
        return found
    if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 31:
        return found
    raise ValueError(
        'expected a dimension that is a size, a name, an expression of them such as "n/2" or "2*(n+1)", or "..",'
        f" found {item!r}"
    )


def _computed(text: str) -> int | str | None:
    """A dimension as metadata has it: without spaces, and a size if it has no names."""
    if len(text) > MAX_TEXT or not text.isascii():
        return None
    # Also a keyword of Python, such as `in`.
    if text.isidentifier():
        return text
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        size = _size(tree)
    except (SyntaxError, ValueError, ArithmeticError):
        return None
    computed = ast.unparse(tree).replace(" ", "").replace("//", "/")
    return (computed if size is None else size) if len(computed) <= MAX_TEXT else None


def _size(tree: ast.expr) -> int | None:
    """The value of an expression, or None if it has names.

    Raises:
        ValueError: It is no expression of a dimension.
        ZeroDivisionError: It divides by zero.
    """
    if isinstance(tree, ast.Name):
        return None
    if isinstance(tree, ast.Constant) and type(tree.value) is int and tree.value < 1 << 63:
        return tree.value
    if not isinstance(tree, ast.BinOp) or type(tree.op) not in _OPERATIONS:
        raise ValueError("no expression of a dimension")
    left, right = _size(tree.left), _size(tree.right)
    return None if left is None or right is None else _OPERATIONS[type(tree.op)](left, right)


f32 = ElementType("f32", "F32", np.dtype(np.float32))
f64 = ElementType("f64", "F64", np.dtype(np.float64))
i8 = ElementType("i8", "S8", np.dtype(np.int8))
i16 = ElementType("i16", "S16", np.dtype(np.int16))
i32 = ElementType("i32", "S32", np.dtype(np.int32))
i64 = ElementType("i64", "S64", np.dtype(np.int64))
u8 = ElementType("u8", "U8", np.dtype(np.uint8))
u16 = ElementType("u16", "U16", np.dtype(np.uint16))
u32 = ElementType("u32", "U32", np.dtype(np.uint32))
u64 = ElementType("u64", "U64", np.dtype(np.uint64))
pred = ElementType("pred", "PRED", np.dtype(np.bool_))

#: All element types by name.
BY_NAME = {t.name: t for t in (f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, pred)}
