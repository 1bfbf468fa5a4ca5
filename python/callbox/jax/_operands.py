"""The operands of a call: conversion, promotion and names."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from callbox._callbox import Target


def as_operands(target: Target, arrays: Sequence[ArrayLike], *, promote: bool = False) -> tuple[jax.Array, ...]:
    """Converts operands to JAX's arrays.

    Raises:
        TypeError: An operand is not an array. Arrays in a tuple or list must be passed one by one.
        ValueError: Operands of an elementwise target cannot be broadcast together.
    """
    operands = tuple(_operand(target, i, x) for i, x in enumerate(arrays))
    return _promoted(target, operands) if promote else operands


def _promoted(target: Target, operands: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Promotes dtypes, and broadcasts the operands of an elementwise target, as `jax.numpy` does.

    Operands that declare the same dtypes get the same dtype.
    """
    declared = (target.operands or ())[: len(operands)]
    promoted = list(operands)
    for names in {buffer.dtypes for buffer in declared if buffer.dtypes}:
        group = [i for i, buffer in enumerate(declared) if buffer.dtypes == names]
        dtype = _declared_dtype(jnp.result_type(*(operands[i] for i in group)), names)
        for i in group:
            promoted[i] = promoted[i] if dtype is None else promoted[i].astype(dtype)
    if "elementwise" in target.traits:
        arrays = [i for i, buffer in enumerate(declared) if buffer.rank != 0]
        for i, x in zip(arrays, jnp.broadcast_arrays(*(promoted[i] for i in arrays)), strict=True):
            promoted[i] = x
    return tuple(promoted)


def _declared_dtype(found: Any, names: Sequence[str]) -> Any:
    """The declared dtype to which an array is promoted. None: there is none."""
    wider = (jnp.dtype(name) for name in names)
    fitting = [dtype for dtype in wider if jnp.promote_types(found, dtype) == dtype]
    return min(fitting, key=lambda dtype: (dtype != found, dtype.itemsize), default=None)


@functools.lru_cache(maxsize=256)
def operand_names(target: Target) -> tuple[str | None, ...]:
    """The names by which operands can be passed, by position. None: an attribute has the name."""
    attributes = {attribute.name for attribute in target.attributes or ()}
    return tuple(None if buffer.name in attributes else buffer.name for buffer in target.operands or ())


def with_named(target: Target, arrays: Sequence[Any], attributes: dict[str, Any]) -> tuple[Any, ...]:
    """The operands with those that are passed by name, which this takes out of `attributes`.

    Raises:
        TypeError: An operand is missing before one that is passed by name, or is given twice.
    """
    names = operand_names(target)
    named = [name for name in names[len(arrays) :] if name in attributes]
    twice = [name for name in names[: len(arrays)] if name in attributes]
    if twice:
        raise TypeError(f"{target.name}(): expected the operand {twice[0]!r} once, found it by position and by name")
    if (missing := names[len(arrays) : len(arrays) + len(named)]) != tuple(named):
        absent = next(name for name in missing if name not in named)
        raise TypeError(f"{target.name}(): expected the operand {absent!r} before {named[-1]!r}, found none")
    return (*arrays, *(attributes.pop(str(name)) for name in named))


def _operand(target: Target, position: int, value: Any) -> jax.Array:
    declared = target.operands or ()
    known = declared[position] if position < len(declared) else None
    name = f"operand {position}" if known is None else f"operand {position} ({known.name})"
    wrong = f"target {target.name!r}: expected an array of numbers as {name}, found "
    if isinstance(value, (tuple, list)):
        raise TypeError(
            f"{wrong}a {type(value).__name__}: pass each array as an operand of its own, or make one of them by jax.numpy.array"
        )
    if value is None or isinstance(value, (str, bytes, Mapping)):
        raise TypeError(f"{wrong}{'None' if value is None else f'a {type(value).__name__}'}")
    names = () if known is None else known.dtypes
    if _is_number(value) or getattr(value, "weak_type", False) is True:
        return _of_weak_type(value, names)
    try:
        array: jax.Array = value if isinstance(value, jax.Array) else jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{wrong}{type(value).__name__}") from error
    if jnp.issubdtype(array.dtype, jax.dtypes.extended) or array.dtype == jax.dtypes.float0:
        raise TypeError(f"{wrong}dtype {array.dtype.name}")
    return array


def _is_number(value: Any) -> bool:
    """Returns whether a value is a Python number. NumPy's numbers have a dtype."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


#: A dtype for each kind of Python's numbers.
_KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)


def _of_weak_type(value: Any, names: Sequence[str]) -> jax.Array:
    """Converts a Python number, or a value computed from such numbers.

    Its dtype is weak, as everywhere in JAX: it becomes the declared one.
    """
    found = jnp.result_type(type(value) if _is_number(value) else value)
    if found.name not in names:
        kind = next(kind for kind in _KINDS if jnp.issubdtype(found, kind))
        fitting = [name for name in names if jnp.issubdtype(jnp.dtype(name), kind)]
        if len(fitting) == 1:
            return jnp.asarray(value, jnp.dtype(fitting[0]))
    return jnp.asarray(value)
