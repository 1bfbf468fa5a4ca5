"""The types that annotate the parameters of jitted kernels.

``f32`` is a scalar, ``f32["n"]`` an array of one dimension, and ``f32["..", "n"]`` an array of
rows. See `callbox.jit`.
"""

from __future__ import annotations

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
    """An array. Its dimensions are sizes, symbols, and ``".."`` for any number of dimensions."""

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
    if isinstance(item, str) and item.isidentifier():
        return item
    if isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 31:
        return item
    raise ValueError(f'expected a dimension that is a size, a name or "..", found {item!r}')


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
