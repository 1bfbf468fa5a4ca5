"""Targets as functions that JAX can transform."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.typing import ArrayLike

from callbox._callbox import StaticInfo, Target

from . import _axes
from ._call import Options, Results, array_type, as_operands, bind, check_target, checked_aliases, merged
from ._derivatives import is_inexact, is_traced, refused, with_jvp, with_vjp


def op(
    target: Target,
    *,
    vjp: Target | Callable[..., Any] | None = None,
    jvp: Target | Callable[..., Any] | None = None,
    result_shape_dtypes: Any = None,
    vmap_method: str | None = "loop",
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    on_error: str = "raise",
    deadline: float | None = None,
    opaque: bytes | None = None,
    static_info: bytes | StaticInfo | None = None,
    api_version: str | None = None,
) -> Callable[..., Any]:
    """A function of a target: ``function(*arrays, **attributes)``.

    `jax.jit`, `jax.vmap`, `jax.lax.scan`, `jax.shard_map` and, with `vjp` or `jvp`, differentiation work on it.

    Args:
        target: A module's target, such as ``module.rms_norm``.
        vjp: Derivatives in reverse, for `jax.grad` and `jax.vjp`. A target is called with the operands and then the cotangents of the
            results, with the same attributes, and its results are the cotangents of the operands. A function is
            ``vjp(operands, results, cotangents, **attributes)``, with a tuple of operands, and results and cotangents as the op returns
            its results; it returns a cotangent for each operand, or the one if there is one. Integers have no cotangents: a target
            neither gets nor gives them, and for a function they are None.
        jvp: Derivatives forward, for `jax.jvp`. A target is called with the operands and then their tangents, with the same attributes,
            and its results are the tangents of the results. A function is ``jvp(operands, results, tangents, **attributes)``, with
            tuples of operands and tangents; it returns tangents as the op returns its results. `jax.grad` works as well if it is a
            function of JAX's own operations, linear in the tangents; a target can't be turned round. Not
            together with `vjp`: JAX has no public way to have both.
        result_shape_dtypes: As in `call`, or a function ``result_shape_dtypes(*operands, **attributes)`` that returns that: the
            operands' shapes and dtypes are known.
        vmap_method: As in `call`.
        input_output_aliases: As in `call`.
        has_side_effect: As in `call`.
        on_error: As in `call`. With ``"status"`` derivatives do not fail either: those of a failed call are NaN.
        deadline: As in `call`.
        opaque: As in `call`.
        static_info: As in `call`.
        api_version: As in `call`.

    Returns:
        The function, with the target's name, signature and documentation.

    Raises:
        TypeError: `target` is no target; `vjp` or `jvp` neither a target nor a function.
        ValueError: Both `vjp` and `jvp`; one of them with a side effect, as nobody says how often JAX makes the call then; an option is
            unknown.

    Example: ``rms_norm = op(kernels.rms_norm, vjp=kernels.rms_norm_vjp)``, and then ``jax.grad(lambda x: rms_norm(x,
    eps=1e-5).sum())(x)``.
    """
    check_target(target, "target")
    options = Options(
        vmap_method=vmap_method,
        input_output_aliases=checked_aliases(input_output_aliases),
        has_side_effect=has_side_effect,
        on_error=on_error,
        deadline=deadline,
        opaque=opaque,
        static_info=static_info,
        api_version=api_version,
    )
    _check_rules(target, vjp, jvp, options)

    def function(*arrays: ArrayLike, **attributes: Any) -> Any:
        named = merged(target, None, attributes)
        operands = _axes.agreed(as_operands(target, arrays))
        shapes = result_shape_dtypes
        if callable(shapes) and not hasattr(shapes, "shape"):
            shapes = shapes(*operands, **named)
        results = Results.of(target, operands, shapes)

        def plain(*operands: jax.Array) -> tuple[jax.Array, ...]:
            return bind(target, operands, results, named, options)

        rules = _Rules(results, named, options)
        if not is_traced(operands):
            flat = plain(*operands)
        elif vjp is not None:
            flat = with_vjp(plain, rules.vjp(vjp))(*operands)
        elif jvp is not None:
            flat = with_jvp(plain, rules.jvp(jvp))(*operands)
        else:
            flat = plain(*refused(target, operands))
        return results.packed(flat, options)

    return _described(function, target)


def _check_rules(target: Target, vjp: Any, jvp: Any, options: Options) -> None:
    given = {name: rule for name, rule in (("vjp", vjp), ("jvp", jvp)) if rule is not None}
    for name, rule in given.items():
        if not callable(rule):
            raise TypeError(
                f"target {target.name!r}: expected {name} to be a target or a function, found {type(rule).__name__}"
            )
    if len(given) == 2:
        raise ValueError(
            f"target {target.name!r}: expected vjp or jvp, found both: JAX has no public way for a function to have both. "
            "A jvp that is a function of JAX's own operations gives jax.grad as well"
        )
    if given and options.has_side_effect:
        raise ValueError(
            f"target {target.name!r}: expected no {next(iter(given))} for a call with has_side_effect=True: "
            "JAX makes a call as often as derivatives need it"
        )


class _Rules:
    """Rules for derivatives as `with_vjp` and `with_jvp` take them: flat, and without the status, which has none."""

    def __init__(self, results: Results, attributes: dict[str, Any], options: Options) -> None:
        self._results = results
        self._attributes = attributes
        self._options = options

    def vjp(self, rule: Target | Callable[..., Any]) -> Callable[..., Sequence[Any]]:
        if isinstance(rule, Target):
            return lambda operands, _results, cotangents: self._call(
                rule, (*operands, *(ct for ct in cotangents if ct is not None)), operands
            )

        def of_function(operands: Any, results: Any, cotangents: Any) -> Sequence[Any]:
            given = rule(operands, self._packed(results), self._packed(cotangents), **self._attributes)
            return _sequence(given, len(operands), "vjp", "operands")

        return of_function

    def jvp(self, rule: Target | Callable[..., Any]) -> Callable[..., Sequence[Any]]:
        if isinstance(rule, Target):
            return lambda operands, results, tangents: self._with_status(
                self._call(rule, (*operands, *(t for t in tangents if t is not None)), self._own(results))
            )

        def of_function(operands: Any, results: Any, tangents: Any) -> Sequence[Any]:
            given = rule(operands, self._packed(results), tangents, **self._attributes)
            return self._with_status(_sequence(given, len(self._results.types), "jvp", "results"))

        return of_function

    def _call(self, rule: Target, operands: Sequence[jax.Array], like: Sequence[Any]) -> list[Any]:
        """Calls a target whose results are like the inexact ones of `like`, and puts None between them for the others."""
        types = tuple(array_type(x.shape, x.dtype) for x in like if is_inexact(x))
        options = self._options.without_memory()
        operands = refused(rule, operands)
        flat = bind(rule, operands, Results(types, tuple), self._attributes, options)
        given = iter(flat)
        return [next(given) if is_inexact(x) else None for x in like]

    def _own(self, flat: Sequence[Any]) -> Sequence[Any]:
        return flat[: len(self._results.types)]

    def _packed(self, flat: Sequence[Any]) -> Any:
        return self._results.container(self._own(flat))

    def _with_status(self, tangents: Sequence[Any]) -> Sequence[Any]:
        return [*tangents, None] if self._options.has_status else tangents


def _sequence(given: Any, count: int, rule: str, of: str) -> Sequence[Any]:
    """What a rule returned as one for each."""
    arrays = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if len(arrays) != count:
        raise ValueError(f"expected {rule} to return one array for each of the {count} {of}, found {len(arrays)}")
    return arrays


def _described(function: Callable[..., Any], target: Target) -> Callable[..., Any]:
    function.__name__ = target.__name__
    function.__qualname__ = target.__qualname__
    function.__doc__ = target.__doc__
    function.__signature__ = _signature(target)  # type: ignore[attr-defined]
    return function


def _signature(target: Target) -> inspect.Signature:
    """The target's signature without what only a direct call takes."""
    names = {attribute.name for attribute in target.attributes or ()}
    kept = [
        parameter
        for parameter in target.__signature__.parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or parameter.name in names
    ]
    return inspect.Signature(kept)
