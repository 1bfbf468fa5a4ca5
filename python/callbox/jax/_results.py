"""The results of a call: the requested ones, or those that the target declares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from callbox._callbox import Target

from . import _axes
from ._options import Options
from ._symbolic import Sizes


@dataclasses.dataclass(frozen=True)
class Results:
    """The types of a call's results without the status, and the container of the arrays."""

    types: tuple[jax.ShapeDtypeStruct, ...]
    container: Callable[[Sequence[Any]], Any]
    #: The requested shardings over explicit mesh axes, each None for a result that is not sharded.
    #: None: they follow from the declaration of the target.
    shardings: tuple[Any, ...] | None = None
    #: Whether they were inferred, and their sizes are to be checked when the call runs.
    are_unchecked: bool = False

    @classmethod
    def of(cls, target: Target, operands: Sequence[jax.Array], given: Any) -> Results:
        """The given results, or the inferred ones.

        Raises:
            TypeError: A given result has no shape and dtype.
            ValueError: The metadata does not determine the results.
        """
        if given is None:
            sizes = Sizes(target, operands)
            with sizes.in_messages():
                # Open dimensions have no sizes yet, and no memory of a guest bounds native results.
                shapes_of = [sizes.of(x) for x in operands]
                are_unchecked = sizes.are_open or target.has_native
                inferred = target.infer(shapes_of, bounded=not are_unchecked)
            shapes = sizes.results([shape for _, shape in inferred])
            types = tuple(array_type(shape, jnp.dtype(name)) for shape, (name, _) in zip(shapes, inferred, strict=True))
            return cls(types, only if len(types) == 1 else tuple, are_unchecked=are_unchecked)
        if isinstance(given, Sequence) and not isinstance(given, (str, tuple, list)):
            given = list(given)
        structure: Any
        wanted, structure = jax.tree.flatten(given, is_leaf=None if _is_empty(given) else _is_result)
        types = tuple(_type_of(target, result, i) for i, result in enumerate(wanted))
        return cls(types, structure.unflatten, tuple(map(_axes.explicit_sharding, wanted)))

    def packed(self, arrays: Sequence[jax.Array], options: Options) -> Any:
        """The arrays as the caller gets them, with the status if there is one."""
        return tuple(arrays) if options.has_status else self.container(arrays)


def _type_of(target: Target, result: Any, position: int) -> jax.ShapeDtypeStruct:
    if is_pair(result):
        dtype, shape = result
        return array_type(tuple(shape), jnp.dtype(dtype))
    # A dtype such as numpy.float32 has attributes with these names.
    if isinstance(result, type) or not hasattr(result, "shape") or not hasattr(result, "dtype"):
        raise TypeError(
            f"target {target.name!r}: expected result {position} to be something with a shape and a dtype, such as "
            f"jax.ShapeDtypeStruct, or a pair (dtype, shape), found {result!r}"
        )
    return array_type(result.shape, result.dtype)


def _is_empty(given: Any) -> bool:
    return isinstance(given, (tuple, list)) and not given


def _is_result(given: Any) -> bool:
    # An empty tuple in a tuple is a mistake, and has no leaves.
    is_type = hasattr(given, "shape") and hasattr(given, "dtype")
    return given is None or _is_empty(given) or is_type or is_pair(given)


def is_pair(given: Any) -> bool:
    """Returns whether this is one result's ``(dtype, shape)``, not a sequence of two results."""
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    dtype, shape = given
    if not isinstance(dtype, (str, type, np.dtype)) or not isinstance(shape, (tuple, list)):
        return False
    return all(isinstance(size, (int, np.integer)) for size in shape)


def array_type(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    """The type of an array."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]  # JAX has not annotated it


def only(arrays: Sequence[Any]) -> Any:
    return arrays[0]
