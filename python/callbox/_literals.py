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
    What a subclass of a string or a number overrides is not asked for: an enumeration's text is its
    own.
    """
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"expected names as the keys of a dictionary, found {name!r}")
        return "{" + ", ".join([f"{literal(name)}: {literal(inner)}" for name, inner in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([literal(inner) for inner in value]) + "]"
    if isinstance(value, str):
        return f"{value!r}" if type(value) is str else f"{str.__str__(value)!r}"
    if isinstance(value, bytes):
        return f"{value!r}" if type(value) is bytes else f"{bytes.__getitem__(value, slice(None))!r}"
    if isinstance(value, (np.ndarray, np.generic)):
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return f"({kind!r}, {value.dtype.name!r}, {value.dtype.byteorder!r}, {value.shape!r}, {value.tobytes()!r})"
    if isinstance(value, float):
        number = float(value) if type(value) is float else float.__float__(value)
        return f"('float', '{number!r}')"
    if isinstance(value, complex):
        number = value if type(value) is complex else complex.__complex__(value)
        return f"('complex', '{number!r}')"
    if value is None or isinstance(value, bool):
        return f"{value!r}"
    if isinstance(value, int):
        return f"{int(value)!r}" if type(value) is int else f"{int.__int__(value)!r}"
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
        case ("array", dtype, order, shape, data):
            return np.frombuffer(data, _numpy_dtype(dtype).newbyteorder(order)).reshape(shape)
        case ("scalar", dtype, order, shape, data):
            return np.frombuffer(data, _numpy_dtype(dtype).newbyteorder(order)).reshape(shape)[()]
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
