"""Derivatives of functions that JAX cannot look into."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from callbox._callbox import Target

from . import _axes
from ._linear import linear

#: A call from operands to results, both flat.
Call = Callable[..., tuple[jax.Array, ...]]


def is_inexact(array: Any) -> bool:
    """Returns whether an array has derivatives: floating-point and complex dtypes do."""
    return jnp.issubdtype(array.dtype, jnp.inexact)


def is_traced(operands: Sequence[Any]) -> bool:
    """Returns whether a transformation may differentiate by the operands.

    Transformations pass tracers. Other calls skip the derivative rules, which cost more than a
    small call.
    """
    return any(isinstance(x, jax.core.Tracer) for x in operands)


def as_arrays(operands: Sequence[Any]) -> tuple[jax.Array, ...]:
    """Converts the operands of a function with derivatives.

    JAX also passes the plain numbers of a caller to such a function.
    """
    return tuple(map(jnp.asarray, operands))


def refused(target: Target, operands: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Guards the operands of a target without derivatives.

    Differentiating with respect to them raises an error that says what to do.
    """
    inexact = [i for i, x in enumerate(operands) if is_inexact(x)]
    if not inexact or not is_traced(operands):
        return tuple(operands)
    guarded = list(operands)
    for i, x in zip(inexact, _guard(target.name)(*(operands[i] for i in inexact)), strict=True):
        guarded[i] = x
    return tuple(guarded)


@functools.lru_cache(maxsize=256)
def _guard(name: str) -> Any:
    @jax.custom_jvp
    def guard(*operands: jax.Array) -> tuple[jax.Array, ...]:
        return operands

    @guard.defjvp
    def differentiate(_primals: Any, _tangents: Any) -> Any:
        raise ValueError(
            f"target {name!r} cannot be differentiated: it has no derivatives. Pass vjp= or jvp= to callbox.jax.op"
        )

    return guard


def with_vjp(call: Call, vjp: Callable[..., Sequence[Any]]) -> Call:
    """Adds reverse-mode derivatives to the call.

    `vjp` takes the operands, the results and the results' cotangents, and returns the operands'
    cotangents. Those of integers are None as arguments, and ignored as results.
    """

    @jax.custom_vjp
    def function(*operands: jax.Array) -> tuple[jax.Array, ...]:
        return call(*operands)

    def forward(*operands: jax.Array) -> Any:
        operands = as_arrays(operands)
        # Second derivatives differentiate this call, so it must have the rule too.
        results = function(*operands)
        return results, (operands, results)

    def backward(kept: Any, cotangents: Any) -> Any:
        operands, results = kept
        given = vjp(
            operands,
            results,
            tuple(ct if is_inexact(result) else None for ct, result in zip(cotangents, results, strict=True)),
        )
        return tuple(_axes.sharded_as(ct, x) if is_inexact(x) else None for ct, x in zip(given, operands, strict=True))

    function.defvjp(forward, backward)
    return function


def with_jvp(call: Call, jvp: Callable[..., Sequence[Any]]) -> Call:
    """Adds forward-mode derivatives to the call.

    `jvp` takes the operands, the results and the operands' tangents, and returns the results'
    tangents. Tangents of integers are None, and a returned None means 0.
    """

    @jax.custom_jvp
    def function(*operands: jax.Array) -> tuple[jax.Array, ...]:
        return call(*operands)

    @function.defjvp
    def forward(primals: Any, tangents: Any) -> Any:
        primals = as_arrays(primals)
        results = function(*primals)
        known = tuple(jnp.asarray(t) if is_inexact(x) else None for t, x in zip(tangents, primals, strict=True))
        given = jvp(primals, results, known)
        return results, tuple(_tangent(t, result) for t, result in zip(given, results, strict=True))

    return function


def with_both(call: Call, vjp: Callable[..., Sequence[Any]], jvp: Callable[..., Sequence[Any]]) -> Call:
    """Adds derivatives of both modes to the call.

    `vjp` and `jvp` are those of `with_vjp` and `with_jvp`.
    """

    @jax.custom_jvp
    def function(*operands: jax.Array) -> tuple[jax.Array, ...]:
        return call(*operands)

    @function.defjvp
    def differentiate(primals: Any, tangents: Any) -> Any:
        primals = as_arrays(primals)
        results = function(*primals)
        by = [i for i, x in enumerate(primals) if is_inexact(x)]
        of = [i for i, x in enumerate(results) if is_inexact(x)]

        def forward(kept: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
            operands, results = kept[: len(primals)], kept[len(primals) :]
            found = jvp(operands, results, _spread(given, by, len(primals)))
            return tuple(_tangent(found[i], results[i]) for i in of)

        def backward(kept: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
            operands, results = kept[: len(primals)], kept[len(primals) :]
            found = vjp(operands, results, _spread(given, of, len(results)))
            return tuple(_tangent(found[i], operands[i]) for i in by)

        inputs = [jnp.asarray(tangents[i]) for i in by]
        outputs = linear(forward, backward, (*primals, *results), inputs, [results[i] for i in of])
        spread = _spread(outputs, of, len(results))
        return results, tuple(_tangent(t, result) for t, result in zip(spread, results, strict=True))

    return function


def _spread(arrays: Sequence[Any], positions: Sequence[int], count: int) -> tuple[Any, ...]:
    """The arrays at these of `count` positions, and None at the others."""
    spread = [None] * count
    for i, x in zip(positions, arrays, strict=True):
        spread[i] = x
    return tuple(spread)


def _tangent(given: Any, result: jax.Array) -> Any:
    if not is_inexact(result):
        return np.zeros(result.shape, jax.dtypes.float0)
    return jnp.zeros_like(result) if given is None else _axes.sharded_as(given, result)
