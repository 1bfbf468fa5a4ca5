"""Mesh axes: over which of the manual ones arrays vary inside `jax.shard_map`, and over which of the explicit ones they are sharded.

A target knows nothing of meshes. Its results vary over the manual axes over which any operand varies, and JAX wants all operands of one
call to agree. Over explicit axes, whose use is part of an array's type, the result of an FFI call is whole on every device, whatever its
operands are. Where something else is wanted, be it the operand's type for its cotangent, the result is sharded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax


def varying_axes(array: jax.Array) -> frozenset[str]:
    """The manual axes over which an array varies. None outside of `jax.shard_map`, and in a JAX that does not keep them."""
    if not hasattr(jax, "typeof"):
        return frozenset()
    kind = jax.typeof(array)
    manual = getattr(kind, "manual_axis_type", None)
    if manual is not None:
        return frozenset(manual.varying)
    return frozenset(getattr(kind, "vma", None) or ())


def agreed(arrays: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """The arrays, each varying over all axes over which any of them does."""
    return varying(arrays, all_axes(arrays))


def all_axes(arrays: Sequence[jax.Array]) -> frozenset[str]:
    """The axes over which any of the arrays varies."""
    return frozenset().union(*map(varying_axes, arrays))


def varying(arrays: Sequence[jax.Array], axes: frozenset[str]) -> tuple[jax.Array, ...]:
    """The arrays, varying over these axes at least."""
    if not axes:
        return tuple(arrays)
    return tuple(_vary(x, tuple(sorted(axes - varying_axes(x)))) for x in arrays)


def _vary(x: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    if not axes:
        return x
    # Older than pcast, and gone from a JAX that has it.
    pvary: Callable[..., jax.Array] | None = getattr(jax.lax, "pvary", None)
    return jax.lax.pcast(x, axes, to="varying") if pvary is None else pvary(x, axes)


def explicit_sharding(array: Any) -> Any:
    """The sharding that is part of the type of an array, or of a `jax.ShapeDtypeStruct`. None: no axis of its mesh is explicit."""
    if isinstance(array, jax.ShapeDtypeStruct):
        sharding = getattr(array, "sharding", None)
    elif hasattr(jax, "typeof") and isinstance(array, jax.Array):
        sharding = getattr(jax.typeof(array), "sharding", None)
    else:
        return None
    # A mesh in the type of an array, and an explicit axis, came after JAX 0.5; so did jax.sharding.reshard.
    kinds = getattr(getattr(sharding, "mesh", None), "axis_types", None) or ()
    explicit = getattr(getattr(jax.sharding, "AxisType", None), "Explicit", None)
    return sharding if explicit in kinds and hasattr(jax.sharding, "reshard") else None


def sharded_as(array: Any, like: Any) -> Any:
    """The array, sharded over explicit axes as another is. It is the same array: only where its parts are changes."""
    return array if like is None or array is None else sharded(array, explicit_sharding(like))


def sharded(array: Any, sharding: Any = None) -> Any:
    """The array, with this sharding over explicit axes. None: with its own.

    Its own is of use under `jax.vmap`: of an FFI call's result the axis of the batch, which is none of the array's here, is whole on
    every device. `jax.sharding.reshard` gives it the axes of the mesh that the batch has.
    """
    own = explicit_sharding(array)
    wanted = own if sharding is None else sharding
    if own is None or getattr(wanted.spec, "unreduced", None) or getattr(wanted.spec, "reduced", None):
        return array
    if _is_same(own, wanted) and jax.sharding.get_abstract_mesh().empty:
        # There is no mesh, nor then a batch that is mapped over one.
        return array
    return jax.sharding.reshard(array, wanted)  # type: ignore[no-untyped-call]  # JAX has not annotated it


def _is_same(one: Any, other: Any) -> bool:
    return bool(one.mesh.shape_tuple == other.mesh.shape_tuple and one.spec == other.spec)
