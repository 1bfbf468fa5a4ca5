"""Attributes as Python literals, for frameworks whose operators take text."""

from __future__ import annotations

import ast
import functools
from typing import Any

import numpy as np


def literal(value: Any) -> str:
    """Formats an attribute as a Python literal, which `attributes` reads.

    Operators take no other types. In the literal a tuple stands for a value that has no literal in
    Python: its kind, and its parts. `torch.compile` traces this function, so it is kept simple.
    `float` and `int` make a number a constant of the program: PyTorch 2.13 formats no symbolic one.
    """
    if isinstance(value, dict):
        return "{" + ", ".join([f"{name!r}: {literal(inner)}" for name, inner in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([literal(inner) for inner in value]) + "]"
    if isinstance(value, (np.ndarray, np.generic)):
        return f"('array', {value.dtype.name!r}, {value.shape!r}, {value.tobytes()!r})"
    if isinstance(value, float):
        return f"('float', '{float(value)!r}')"
    if isinstance(value, complex):
        return f"('complex', '{value!r}')"
    if value is None or isinstance(value, (bool, str, bytes)):
        return f"{value!r}"
    if isinstance(value, int):
        return f"{int(value)!r}"
    raise TypeError(
        f"expected a number, a string, a list, a dictionary or an array of NumPy's as an attribute, found {type(value).__name__}"
    )


@functools.lru_cache(maxsize=256)
def attributes(literal: str) -> dict[str, Any]:
    """Reads the attributes that `literal` wrote. The caller must not change them."""
    read: dict[str, Any] = _value(ast.literal_eval(literal))
    return read


def _value(read: Any) -> Any:
    match read:
        case ("array", dtype, shape, data):
            array = np.frombuffer(data, _numpy_dtype(dtype)).reshape(shape)
            return array if shape else array[()]
        case ("float", text):
            return float(text)
        case ("complex", text):
            return complex(text)
        case dict():
            return {name: _value(inner) for name, inner in read.items()}
        case list():
            return [_value(inner) for inner in read]
    return read


def _numpy_dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
