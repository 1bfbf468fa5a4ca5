"""Targets as functions that JAX can transform."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jax.typing import ArrayLike

from callbox._callbox import StaticInfo, Target

from . import _axes, _eager
from ._call import as_target, check_target, eager_call, merged
from ._operands import as_operands, flattened, operand_names, with_named, with_traced
from ._options import OnError, Options, VmapMethod, checked_aliases
from ._results import Results
from ._rules import in_tree, ops, with_rules


def op(
    target: Target,
    *,
    vjp: Target | Callable[..., Any] | None = None,
    jvp: Target | Callable[..., Any] | None = None,
    result_shape_dtypes: Any = None,
    vmap_method: VmapMethod = "loop",
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    on_error: OnError = "raise",
    deadline: float | None = None,
    threads: int | None = None,
    promote: bool = False,
    defaults: Mapping[str, Any] | None = None,
    opaque: bytes | None = None,
    static_info: bytes | StaticInfo | None = None,
    api_version: str | None = None,
) -> Callable[..., Any]:
    """Makes a function of a target: ``function(*arrays, **attributes)``.

    Operands can be passed by name, too, and as pytrees of arrays, which stand for their leaves. An
    attribute may be traced if the target also declares it as an optional operand of rank 0: it is
    an operand then, also for derivative rules.

    It supports `jax.jit`, `jax.vmap`, `jax.lax.scan`, `jax.shard_map` and, with derivatives,
    differentiation. The derivatives are `vjp` and `jvp`, or, if neither is given, those that the
    module declares.

    Args:
        target: A module's target, such as ``module.rms_norm``, or a jitted function, whose `vjp` is
            the default.
        vjp: Reverse-mode derivatives, for `jax.grad` and `jax.vjp`, as a target, an op or a
            function. A target takes the operands and then the cotangents of the results, with the
            same attributes, and returns the cotangents of the operands. An op of such a target has
            derivatives of its own, for second derivatives. A function is ``vjp(operands,
            results, cotangents, **attributes)``, with a tuple of operands, and with results and
            cotangents in the form in which the op returns its results. It returns one cotangent for
            each operand. Integers have no cotangents: a target neither takes nor returns them, and
            a function gets None. Operands that are pytrees and their cotangents are pytrees for a
            function, and flat for a target or an op.
        jvp: Forward-mode derivatives, for `jax.jvp` and `jax.jacfwd`, as a target, an op or a
            function. A target takes the operands and then their tangents, with the same attributes,
            and returns the tangents of the results. A function is ``jvp(operands, results,
            tangents, **attributes)``, with tuples of operands and tangents; it returns tangents in
            the form in which the op returns its results. Without `vjp`, `jax.grad` works too if the
            function uses JAX's own operations and is linear in the tangents, because JAX cannot
            transpose a target. With both, `vjp` must compute the transpose of `jvp`, and
            `jax.hessian` works if `vjp` is an op or a function that has a `jvp`.
        result_shape_dtypes: As in `call`, or a function ``result_shape_dtypes(*operands,
            **attributes)`` that returns them. It may use the operands' shapes and dtypes.
        vmap_method: As in `call`.
        input_output_aliases: As in `call`.
        has_side_effect: As in `call`.
        on_error: As in `call`. With ``"status"`` derivatives do not fail either: those of a failed
            call are NaN.
        deadline: As in `call`.
        threads: As in `call`.
        promote: As in `call`.
        defaults: Values of attributes for calls that do not pass them.
        opaque: As in `call`.
        static_info: As in `call`.
        api_version: As in `call`.

    Returns:
        The function, with the target's name, signature and documentation.

    Raises:
        TypeError: `target` is not a target; `vjp` or `jvp` is neither a target nor a function.
        ValueError: `vjp` or `jvp` is given for a call with a side effect, which JAX may make any
            number of times; or an option is unknown.

    Example: ``rms_norm = op(kernels.rms_norm)``, and then
    ``jax.grad(lambda x: rms_norm(x, weight, eps=1e-5).sum())(x)``, because the module declares
    ``rms_norm_grad`` as the derivative.
    """
    if vjp is None and jvp is None and not has_side_effect:
        vjp, jvp = getattr(target, "vjp", None), getattr(target, "jvp", None)
    target, vjp, jvp = as_target(target), as_target(vjp), as_target(jvp)
    check_target(target, "target")
    options = Options(
        vmap_method=vmap_method,
        input_output_aliases=checked_aliases(input_output_aliases),
        has_side_effect=has_side_effect,
        on_error=on_error,
        deadline=deadline,
        threads=threads,
        promote=promote,
        opaque=opaque,
        static_info=static_info,
        api_version=api_version,
    )
    _check_rules(target, vjp, jvp, options)

    flat_call = with_rules(target, vjp, jvp)
    is_constant = _eager.is_constant(result_shape_dtypes)
    names = operand_names(target)
    defaults = _checked_defaults(target, defaults)

    def function(*arrays: ArrayLike, **attributes: Any) -> Any:
        if len(arrays) < len(names) or not attributes.keys().isdisjoint(names):
            arrays = with_named(target, arrays, attributes)
        arrays, tree = flattened(arrays)
        if defaults:
            attributes = {**defaults, **attributes}
        if attributes:
            arrays = with_traced(target, arrays, attributes)
        # Derivatives are of traced arrays.
        key = _eager.frozen(attributes) if is_constant else None
        if key is not None and _eager.are_concrete(arrays):
            return eager_call(target, result_shape_dtypes, key, options)(*arrays)
        named = merged(target, None, attributes)
        operands = _axes.agreed(as_operands(target, arrays, promote=promote))
        shapes = result_shape_dtypes
        if callable(shapes) and not hasattr(shapes, "shape"):
            shapes = shapes(*in_tree(tree, operands), **named)
        results = Results.of(target, operands, shapes)
        return results.packed(flat_call(operands, results, named, options, tree), options)

    ops[function] = flat_call, defaults
    return _described(function, target, defaults)


def _checked_defaults(target: Target, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Checks that the target has the attributes.

    Raises:
        TypeError: It declares attributes, but not one of these.
    """
    declared = target.attributes
    for name in given or ():
        if declared is not None and all(attribute.name != name for attribute in declared):
            known = ", ".join(f"`{attribute.name}`" for attribute in declared[:16]) or "no attributes"
            known += f" and {len(declared) - 16} more" if len(declared) > 16 else ""
            raise TypeError(f"defaults: `{name}` is not an attribute of `{target.name}`, which takes {known}")
    return dict(given or {})


def _check_rules(target: Target, vjp: Any, jvp: Any, options: Options) -> None:
    given = {name: rule for name, rule in (("vjp", vjp), ("jvp", jvp)) if rule is not None}
    for name, rule in given.items():
        if not callable(rule):
            raise TypeError(
                f"target {target.name!r}: expected {name} to be a target or a function, found {type(rule).__name__}"
            )
    if given and options.has_side_effect:
        raise ValueError(
            f"target {target.name!r}: expected no {next(iter(given))} for a call with has_side_effect=True: "
            "JAX makes a call as often as derivatives need it"
        )


def _described(function: Callable[..., Any], target: Target, defaults: Mapping[str, Any]) -> Callable[..., Any]:
    function.__name__ = target.__name__
    function.__qualname__ = target.__qualname__
    function.__doc__ = target.__doc__
    function.__signature__ = _signature(target, defaults)  # type: ignore[attr-defined]
    return function


def _signature(target: Target, defaults: Mapping[str, Any]) -> inspect.Signature:
    """The target's signature with the defaults, and without the options of a direct call."""
    names = {attribute.name for attribute in target.attributes or ()}
    kept = [
        parameter.replace(default=defaults.get(parameter.name, parameter.default))
        if parameter.name in names
        else parameter
        for parameter in target.__signature__.parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or parameter.name in names
    ]
    return inspect.Signature(kept)
