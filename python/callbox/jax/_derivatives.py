"""Derivatives of functions that JAX can't look into."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from callbox._callbox import Target

from . import _axes

#: A call: operands to results, both flat.
Call = Callable[..., tuple[jax.Array, ...]]


def is_inexact(array: Any) -> bool:
    """Whether an array has derivatives: those of floating-point and complex dtypes do."""
    return jnp.issubdtype(array.dtype, jnp.inexact)


def is_traced(operands: Sequence[Any]) -> bool:
    """Whether a transformation may differentiate by any of these operands: it sees tracers, and nothing else.

    What only it needs costs more than a small call does.
    """
    return any(isinstance(x, jax.core.Tracer) for x in operands)


def as_arrays(operands: Sequence[Any]) -> tuple[jax.Array, ...]:
    """The operands of a function with derivatives of its own: JAX hands it the numbers that a caller of its own had."""
    return tuple(map(jnp.asarray, operands))


def refused(target: Target, operands: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """The operands of a target without derivatives, as they were: but to differentiate by them is an error that says what to do."""
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
            f"target {name!r} cannot be differentiated: nothing says what its derivatives are. Pass vjp= or jvp= to callbox.jax.op"
        )

    return guard


def with_vjp(call: Call, vjp: Callable[..., Sequence[Any]]) -> Call:
    """The call with derivatives in reverse.

    `vjp` takes the operands, the results and the results' cotangents, those of integers None, and gives the operands' cotangents, those
    of integers whatever.
    """

    @jax.custom_vjp
    def function(*operands: jax.Array) -> tuple[jax.Array, ...]:
        return call(*operands)

    def forward(*operands: jax.Array) -> Any:
        operands = as_arrays(operands)
        # Not the call itself: whoever differentiates twice differentiates this.
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
    """The call with derivatives forward.

    `jvp` takes the operands, the results and the operands' tangents, those of integers None, and gives the results' tangents, None for
    0 and for integers.
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


def _tangent(given: Any, result: jax.Array) -> Any:
    if not is_inexact(result):
        return np.zeros(result.shape, jax.dtypes.float0)
    return jnp.zeros_like(result) if given is None else _axes.sharded_as(given, result)
