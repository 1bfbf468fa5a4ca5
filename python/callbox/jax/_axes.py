"""Mesh axes: manual axes over which arrays vary, and explicit axes over which they are sharded.

Inside `jax.shard_map` the results of a target vary over all manual axes over which any operand
varies, and JAX requires that all operands of a call agree. An explicit axis is part of an array's
type. The result of an FFI call is not sharded over explicit axes, whatever its operands are, so
this module shards it again where needed, for example as the operand for a cotangent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax


def varying_axes(array: jax.Array) -> frozenset[str]:
    """The manual axes over which an array varies.

    Empty outside of `jax.shard_map`, and in versions of JAX that do not track them.
    """
    if not hasattr(jax, "typeof"):
        return frozenset()
    kind = jax.typeof(array)
    manual = getattr(kind, "manual_axis_type", None)
    if manual is not None:
        return frozenset(manual.varying)
    return frozenset(getattr(kind, "vma", None) or ())


def agreed(arrays: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Makes each array vary over all axes over which any of them varies."""
    return varying(arrays, all_axes(arrays))


def all_axes(arrays: Sequence[jax.Array]) -> frozenset[str]:
    """The axes over which any of the arrays varies."""
    return frozenset().union(*map(varying_axes, arrays))


def varying(arrays: Sequence[jax.Array], axes: frozenset[str]) -> tuple[jax.Array, ...]:
    """Makes each array vary over at least these axes."""
    if not axes:
        return tuple(arrays)
    return tuple(_vary(x, tuple(sorted(axes - varying_axes(x)))) for x in arrays)


def _vary(x: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    if not axes:
        return x
    # `pvary` is older than `pcast`, and is removed from versions that have `pcast`.
    pvary: Callable[..., jax.Array] | None = getattr(jax.lax, "pvary", None)
    return jax.lax.pcast(x, axes, to="varying") if pvary is None else pvary(x, axes)


def explicit_sharding(array: Any) -> Any:
    """The sharding in the type of an array or a `jax.ShapeDtypeStruct`.

    None if no axis of its mesh is explicit.
    """
    if isinstance(array, jax.ShapeDtypeStruct):
        sharding = getattr(array, "sharding", None)
    elif hasattr(jax, "typeof") and isinstance(array, jax.Array):
        sharding = getattr(jax.typeof(array), "sharding", None)
    else:
        return None
    # JAX 0.5 has no mesh in the type of an array, no explicit axes and no `jax.sharding.reshard`.
    kinds = getattr(getattr(sharding, "mesh", None), "axis_types", None) or ()
    explicit = getattr(getattr(jax.sharding, "AxisType", None), "Explicit", None)
    return sharding if explicit in kinds and hasattr(jax.sharding, "reshard") else None


def explicit_mesh(arrays: Sequence[Any]) -> Any:
    """The mesh of the arrays that have explicit axes in their types. None if none has any."""
    return next((sharding.mesh for x in arrays if (sharding := explicit_sharding(x)) is not None), None)


def common_sharding(arrays: Sequence[jax.Array]) -> Any:
    """The sharding in the types of all arrays but scalars. None if they have none, or several."""
    shardings = [explicit_sharding(x) for x in arrays if x.ndim]
    return shardings[0] if shardings and all(s == shardings[0] for s in shardings) else None


#: `jax.sharding.auto_axes`. None: this version of JAX has none that `in_auto_mode` can call.
_auto_axes: Any = getattr(jax.sharding, "auto_axes", None)
if _auto_axes is not None and "out_sharding" not in inspect.signature(_auto_axes).parameters:
    _auto_axes = None


def are_cut(arrays: Sequence[Any], results: Sequence[Any] | None) -> bool:
    """Returns whether a call on arrays over explicit axes can be cut.

    `results` are the requested shardings of the results, with None for those that are not sharded.
    """
    manual = getattr(jax.sharding.AxisType, "Manual", None)
    shardings = [sharding for x in arrays if (sharding := explicit_sharding(x)) is not None]
    return (
        _auto_axes is not None
        and None not in (results or ())
        and not any(manual in s.mesh.axis_types or _is_reduced(s) for s in shardings)
    )


def _is_reduced(sharding: Any) -> bool:
    return bool(getattr(sharding.spec, "unreduced", None) or getattr(sharding.spec, "reduced", None))


def in_auto_mode(
    function: Callable[..., tuple[jax.Array, ...]], arrays: Sequence[jax.Array], shardings: tuple[Any, ...]
) -> list[jax.Array]:
    """Calls a function in which XLA chooses shardings. Its results have these in their types."""
    return list(_auto_axes(function, out_sharding=shardings)(*arrays))


def sharded_as(array: Any, like: Any) -> Any:
    """Shards an array over explicit axes as another one. The values stay the same."""
    return array if like is None or array is None else sharded(array, explicit_sharding(like))


def sharded(array: Any, sharding: Any = None) -> Any:
    """Shards an array over explicit axes. None: with its own sharding.

    Its own sharding matters under `jax.vmap`: the batch axis is not visible here, and the result of
    an FFI call is not sharded over it. `jax.sharding.reshard` gives it the mesh axes of the batch.
    """
    own = explicit_sharding(array)
    wanted = own if sharding is None else sharding
    if own is None or _is_reduced(wanted):
        return array
    if _is_same(own, wanted) and jax.sharding.get_abstract_mesh().empty:
        # Without a mesh no batch is mapped over one.
        return array
    return jax.sharding.reshard(array, wanted)  # type: ignore[no-untyped-call]  # JAX has not annotated it


def _is_same(one: Any, other: Any) -> bool:
    return bool(one.mesh.shape_tuple == other.mesh.shape_tuple and one.spec == other.spec)
