"""The operands of a call: conversion, promotion, names, pytrees and traced attributes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from callbox._callbox import Buffer, Target


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


def has_batch(buffer: Buffer) -> bool:
    """Returns whether a target of the trait `batched` has a batch along this operand or result."""
    return (buffer.dimensions or ())[:1] == ("batch",)


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


def flattened(arrays: Sequence[Any]) -> tuple[tuple[Any, ...], Any]:
    """The operands with the leaves of each pytree of arrays in its place.

    The second value is the structure of all operands, or None if no operand is a pytree.
    """
    if all(isinstance(x, _LEAVES) for x in arrays):
        return tuple(arrays), None
    operands: list[Any] = []
    shown: list[Any] = []
    has_trees = False
    for x in arrays:
        leaves = [x] if _is_leaf(x) else jax.tree.leaves(x, is_leaf=_is_leaf)
        # Lists of numbers are not arrays, and the error says so.
        is_tree = not any(leaf is x for leaf in leaves) and all(map(_is_array, leaves))
        has_trees = has_trees or is_tree
        operands.extend(leaves if is_tree else [x])
        shown.append(x if is_tree else 0)
    return tuple(operands), jax.tree.structure(tuple(shown)) if has_trees else None


#: Types that are no containers.
_LEAVES = (jax.Array, np.ndarray, np.generic, bool, int, float, complex, str, bytes)


def _is_leaf(value: Any) -> bool:
    # A sparse array is a pytree, but no container.
    is_array = hasattr(value, "shape") and hasattr(value, "dtype")
    return value is None or isinstance(value, _LEAVES) or is_array


def _is_array(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray, np.generic))


def with_traced(target: Target, arrays: Sequence[Any], attributes: dict[str, Any]) -> tuple[Any, ...]:
    """The operands with those attributes that are arrays of JAX and that the target takes as both.

    This takes them out of `attributes`.

    Raises:
        TypeError: An operand before one of them is missing.
    """
    both = _operands_or_attributes(target)
    last = max((i for i, name in both if isinstance(attributes.get(name), jax.Array)), default=-1)
    operands = list(arrays)
    for i, name in both:
        if len(operands) > i or i > last:
            continue
        if len(operands) < i or name not in attributes:
            missing = target.operands[len(operands)].name  # type: ignore[index]  # `both` is empty without operands
            raise TypeError(f"{target.name}(): expected the operand {missing!r} before traced attributes, found none")
        operands.append(attributes.pop(name))
    return tuple(operands)


@functools.lru_cache(maxsize=256)
def _operands_or_attributes(target: Target) -> tuple[tuple[int, str], ...]:
    """The positions and names of scalars that a target takes as operands or as attributes.

    It declares an optional operand of rank 0 and an optional attribute of the same name.
    """
    optional = {attribute.name for attribute in target.attributes or () if attribute.optional}
    operands = enumerate(target.operands or ())
    return tuple((i, x.name) for i, x in operands if x.optional and x.rank == 0 and x.name in optional)


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
