"""Calls outside of any transformation: one compiled program for each call site.

Making a call site takes Python and XLA far longer than calling it. A call on concrete arrays
therefore runs as a compiled program, which is kept by everything in the call but the operands.
JAX itself tells operands of different types apart, and dispatches the program without Python.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: The most programs that `kept` keeps. The least recently used ones are dropped first.
MOST_PROGRAMS = 1024

#: The longest string or array that is part of a key.
_MOST_BYTES = 4096

#: The classes of JAX's arrays with values that were seen so far. Looking up a class costs a quarter
#: of asking whether it is a subclass.
_concrete: set[type] = set()

#: The decorator of functions that make programs.
kept = functools.lru_cache(maxsize=MOST_PROGRAMS)


def are_concrete(arrays: Sequence[Any]) -> bool:
    """Returns whether all of these are arrays of JAX or NumPy with values."""
    return all(type(x) in _concrete or _is_concrete(x) for x in arrays)


def _is_concrete(value: Any) -> bool:
    if type(value) is np.ndarray:
        return value.dtype.kind in "biufc"
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return False
    # An array of an extended dtype, such as a random key, is no operand.
    if jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return False
    _concrete.add(type(value))
    return True


def is_constant(given: Any) -> bool:
    """Returns whether these results can be part of a key: none are given, or types of JAX."""
    return given is None or all(type(x) is jax.ShapeDtypeStruct for x in (given if type(given) is tuple else (given,)))


def program(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a program of a function on arrays. It is a part of a program that calls it."""

    def named(*operands: jax.Array) -> Any:
        return function(*operands)

    named.__name__ = named.__qualname__ = name
    return jax.jit(named, inline=True)


def frozen(attributes: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """A key that is equal for equal attributes only. None if there is none for their values.

    `thawed` makes the attributes of it.
    """
    key = []
    for name, value in attributes.items():
        kind = type(value)
        if kind is float:
            # 0.0 equals -0.0, and NaNs have no one text.
            if math.isnan(value):
                return None
            # Bits: a thread of XLA's flushes small numbers where it computes with them.
            key.append((name, kind, struct.pack("=d", value)))
        elif kind is int or kind is bool:
            key.append((name, kind, value))
        elif kind is str or kind is bytes:
            if len(value) > _MOST_BYTES:
                return None
            key.append((name, kind, value))
        elif kind is np.ndarray or issubclass(kind, np.generic):
            # NumPy's strings lose the NULs at their ends.
            if value.dtype.hasobject or value.dtype.kind in "SU" or value.nbytes > _MOST_BYTES:
                return None
            key.append((name, kind, (value.dtype, value.shape, value.tobytes())))
        else:
            return None
    return tuple(key)


def thawed(key: tuple[Any, ...]) -> dict[str, Any]:
    """The attributes of a key."""
    return {name: _thawed(kind, value) for name, kind, value in key}


def _thawed(kind: type, value: Any) -> Any:
    if kind is float:
        number: float = struct.unpack("=d", value)[0]
        return number
    if not isinstance(value, tuple):
        return value
    dtype, shape, data = value
    array = np.frombuffer(data, dtype).reshape(shape)
    return array if kind is np.ndarray else array[()]
