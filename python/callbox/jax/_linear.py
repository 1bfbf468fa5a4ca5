"""A linear map of tangents whose transpose is given.

JAX has `jax.custom_jvp` for forward mode and `jax.custom_vjp` for reverse mode, and no function has
both. With a `jax.custom_jvp` whose tangents are computed by `linear`, both modes work: JAX
evaluates the map for forward mode, and its transpose for reverse mode. JAX's own
`jax.custom_derivatives.linear_call` has no rule for `jax.vmap`, which `jax.jacfwd` uses, and its
result cannot be differentiated by what the map depends on, which second derivatives do.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

#: A map of arrays that are kept and of those in which it is linear.
Map = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class _Pair:
    """A linear map with its transpose, and the types of its inputs and outputs."""

    forward: Map
    transpose: Map
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def flipped(self) -> _Pair:
        return _Pair(self.transpose, self.forward, self.outputs, self.inputs)

    def mapped(self, axis: Any, kept_axes: Sequence[int | None]) -> _Pair:
        """The map of a batch: of all linear inputs, and of the kept arrays with an axis.

        The maps may use the name of `axis` in collectives.
        """
        mapped = functools.partial(
            jax.vmap,
            in_axes=(tuple(kept_axes), 0),
            axis_name=axis.name,
            axis_size=axis.size,
            spmd_axis_name=axis.spmd_name,
        )
        types = [tuple(map(_batch(axis.size), each)) for each in (self.inputs, self.outputs)]
        return _Pair(_tuples(mapped(self.forward)), _tuples(mapped(self.transpose)), *types)


def linear(forward: Map, transpose: Map, kept: Sequence[Any], tangents: Sequence[Any], like: Sequence[Any]) -> Any:
    """Applies the map ``forward(kept, tangents)``, which is linear in the tangents.

    ``transpose(kept, cotangents)`` is its transpose. The outputs have the types of the arrays in
    `like`.
    """
    pair = _Pair(forward, transpose, tuple(map(_type, tangents)), tuple(map(_type, like)))
    return _linear.bind(*kept, *tangents, pair=pair, count=len(kept))


def _type(array: Any) -> Any:
    # JAX 0.5 has no `typeof`.
    return jax.typeof(array) if hasattr(jax, "typeof") else jax.core.get_aval(array)  # type: ignore[attr-defined]


def _batch(size: int) -> Callable[[Any], Any]:
    def batched(aval: Any) -> Any:
        # In JAX 0.5 the type of an array has no sharding.
        sharding: Any = getattr(aval, "sharding", None)
        if not hasattr(sharding, "spec"):
            return aval.update(shape=(size, *aval.shape))
        spec = jax.sharding.PartitionSpec(None, *sharding.spec)
        return aval.update(shape=(size, *aval.shape), sharding=sharding.update(spec=spec))

    return batched


def _tuples(function: Callable[..., Any]) -> Map:
    # `jax.vmap` distinguishes tuples from lists.
    return lambda kept, linear: function(tuple(kept), tuple(linear))


def _apply(*arrays: Any, pair: _Pair, count: int) -> Sequence[Any]:
    outputs = pair.forward(arrays[:count], arrays[count:])
    for x, like in zip(outputs, pair.outputs, strict=True):
        if x.shape != like.shape or x.dtype != like.dtype:
            raise TypeError(
                f"expected a derivative rule to return {like.dtype}{list(like.shape)}, found {x.dtype}{list(x.shape)}"
            )
    return outputs


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, pair: _Pair, count: int) -> Any:
    """Differentiates by the linear inputs, with the same map, and by the kept arrays."""
    kept, inputs = primals[:count], primals[count:]
    outputs = _linear.bind(*primals, pair=pair, count=count)
    parts = []
    if not all(type(t) is ad.Zero for t in tangents[count:]):
        parts.append(_linear.bind(*kept, *map(ad.instantiate_zeros, tangents[count:]), pair=pair, count=count))
    moving = [i for i, t in enumerate(tangents[:count]) if type(t) is not ad.Zero]
    if moving:

        def of_kept(*arrays: Any) -> tuple[Any, ...]:
            everything = list(kept)
            for i, x in zip(moving, arrays, strict=True):
                everything[i] = x
            return tuple(pair.forward(tuple(everything), inputs))

        parts.append(jax.jvp(of_kept, [kept[i] for i in moving], [tangents[i] for i in moving])[1])
    # JAX calls this only if some tangent is not zero.
    return outputs, [sum(each[1:], start=each[0]) for each in zip(*parts, strict=True)]


def _transpose(cotangents: Sequence[Any], *arrays: Any, pair: _Pair, count: int) -> Sequence[Any]:
    kept, inputs = arrays[:count], arrays[count:]
    if all(type(ct) is ad.Zero for ct in cotangents):
        return [None] * len(arrays)
    cotangents = [ad.instantiate_zeros(ct) for ct in cotangents]
    given = _linear.bind(*kept, *cotangents, pair=pair.flipped(), count=count)
    wanted = [ct if ad.is_undefined_primal(x) else None for ct, x in zip(given, inputs, strict=True)]
    return [None] * count + wanted


def _batched(axis_data: Any, arrays: Sequence[Any], axes: Sequence[Any], *, pair: _Pair, count: int) -> Any:
    is_named = type(axis_data.name) is not object
    if not is_named and all(axis is None for axis in axes):
        outputs = _linear.bind(*arrays, pair=pair, count=count)
        return outputs, [None] * len(outputs)
    first = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(arrays, axes, strict=True)]
    kept_axes = [None if axis is None else 0 for axis in axes[:count]]
    for i in range(count, len(arrays)):
        # The transpose of an input that all elements share would be a sum over the batch.
        if axes[i] is None:
            first[i] = jnp.broadcast_to(first[i], (axis_data.size, *first[i].shape))
    outputs = _linear.bind(*first, pair=pair.mapped(axis_data, kept_axes), count=count)
    return outputs, [0] * len(outputs)


def _types(*_arrays: Any, pair: _Pair, count: int) -> Sequence[Any]:  # noqa: ARG001  a rule of JAX
    return pair.outputs


_linear = Primitive("callbox_linear")
_linear.multiple_results = True
_linear.def_impl(_apply)
_linear.def_abstract_eval(_types)
ad.primitive_jvps[_linear] = _jvp
ad.primitive_transposes[_linear] = _transpose
# Unlike the other rules for batches, these get the axis.
batching.fancy_primitive_batchers[_linear] = _batched
mlir.register_lowering(_linear, mlir.lower_fun(_apply, multiple_results=True))
