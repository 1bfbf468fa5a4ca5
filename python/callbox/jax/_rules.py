"""Derivative rules of calls: targets, ops and functions."""

from __future__ import annotations

import dataclasses
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from callbox._callbox import Target

from . import _partitioning
from ._bind import bind
from ._derivatives import is_inexact, is_traced, refused, with_both, with_jvp, with_vjp
from ._options import Options
from ._results import Results, array_type, only

#: A call with derivatives: of operands, results, attributes, options and the structure of the
#: operands, to flat results.
FlatCall = Callable[[Sequence[jax.Array], Results, dict[str, Any], Options, Any], Sequence[jax.Array]]

#: The calls and default attributes of all ops. Unlike an attribute of the function,
#: `functools.wraps` does not copy an entry.
ops: weakref.WeakKeyDictionary[Callable[..., Any], tuple[FlatCall, dict[str, Any]]] = weakref.WeakKeyDictionary()


def declared(target: Target, options: Options) -> tuple[Target | None, Target | None]:
    """The derivatives that the module declares: vjp and jvp. None for a call with a side effect."""
    return (None, None) if options.has_side_effect else (target.vjp, target.jvp)


def with_rules(target: Target, vjp: Any, jvp: Any) -> FlatCall:
    """A call of a target with these derivatives."""

    def call(
        operands: Sequence[jax.Array], results: Results, named: dict[str, Any], options: Options, tree: Any
    ) -> Sequence[jax.Array]:
        def plain(*operands: jax.Array) -> tuple[jax.Array, ...]:
            return bind(target, operands, results, named, options)

        rules = _Rules(target, results, named, options, tree)
        if not is_traced(operands):
            return plain(*operands)
        if vjp is not None and jvp is not None:
            return with_both(plain, rules.vjp(vjp), rules.jvp(jvp))(*operands)
        if vjp is not None:
            return with_vjp(plain, rules.vjp(vjp))(*operands)
        if jvp is not None:
            return with_jvp(plain, rules.jvp(jvp))(*operands)
        return plain(*refused(target, operands))

    return call


class _Rules:
    """Derivative rules as `with_vjp` and `with_jvp` take them: flat, and without the status."""

    def __init__(
        self, target: Target, results: Results, attributes: dict[str, Any], options: Options, tree: Any
    ) -> None:
        self._target = target
        self._tree = tree
        self._results = results
        self._attributes = attributes
        self._options = options

    def vjp(self, rule: Target | Callable[..., Any]) -> Callable[..., Sequence[Any]]:
        if _is_flat(rule):
            return lambda operands, _results, cotangents: self._call(rule, operands, cotangents, operands, is_vjp=True)

        def of_function(operands: Any, results: Any, cotangents: Any) -> Sequence[Any]:
            shown = in_tree(self._tree, operands)
            given = rule(shown, self._packed(results), self._packed(cotangents), **self._attributes)
            return _sequence(given, len(operands), "vjp", "operands", is_tree=self._tree is not None)

        return of_function

    def jvp(self, rule: Target | Callable[..., Any]) -> Callable[..., Sequence[Any]]:
        if _is_flat(rule):
            return lambda operands, results, tangents: self._with_status(
                self._call(rule, operands, tangents, self._own(results), is_vjp=False)
            )

        def of_function(operands: Any, results: Any, tangents: Any) -> Sequence[Any]:
            shown = [in_tree(self._tree, each) for each in (operands, tangents)]
            given = rule(shown[0], self._packed(results), shown[1], **self._attributes)
            return self._with_status(_sequence(given, len(self._results.types), "jvp", "results", is_tree=True))

        return of_function

    def _call(
        self, rule: Any, operands: Sequence[jax.Array], given: Sequence[Any], like: Sequence[Any], *, is_vjp: bool
    ) -> list[Any]:
        """Calls a target or an op on the operands and the given cotangents or tangents.

        Its results have the types of the inexact elements of `like`. The other elements of the
        returned list are None.
        """
        types = tuple(array_type(x.shape, x.dtype) for x in like if is_inexact(x))
        known = [(i, x) for i, x in enumerate(given) if x is not None]
        own = _partitioning.Derivative(
            self._target,
            (*((False, i) for i in range(len(operands))), *((is_vjp, i) for i, _ in known)),
            tuple((not is_vjp, i) for i, x in enumerate(like) if is_inexact(x)),
        )
        options = dataclasses.replace(self._options.without_memory(), derivative=own)
        defaults: Mapping[str, Any]
        if isinstance(rule, Target):
            call, defaults = with_rules(rule, *declared(rule, options)), {}
        else:
            call, defaults = ops[rule]
        # The rules of an op get one result as it is, and several in a tuple.
        container = only if len(types) == 1 else tuple
        arrays = (*operands, *(x for _, x in known))
        flat = iter(call(arrays, Results(types, container), {**defaults, **self._attributes}, options, None))
        return [next(flat) if is_inexact(x) else None for x in like]

    def _own(self, flat: Sequence[Any]) -> Sequence[Any]:
        return flat[: len(self._results.types)]

    def _packed(self, flat: Sequence[Any]) -> Any:
        return self._results.container(self._own(flat))

    def _with_status(self, tangents: Sequence[Any]) -> Sequence[Any]:
        return [*tangents, None] if self._options.has_status else tangents


def _is_flat(rule: Any) -> bool:
    """Returns whether a rule is a target or an op, whose arguments are flat."""
    return isinstance(rule, Target) or (isinstance(rule, types.FunctionType) and rule in ops)


def in_tree(tree: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The operands as the caller passed them, then the attributes that became operands."""
    if tree is None:
        return tuple(operands)
    count = tree.num_leaves
    return (*tree.unflatten(operands[:count]), *operands[count:])


def _sequence(given: Any, count: int, rule: str, of: str, *, is_tree: bool) -> Sequence[Any]:
    """Converts the return value of a rule to a sequence of `count` arrays."""
    if is_tree:
        given = jax.tree.leaves(given, is_leaf=lambda x: x is None)
    arrays = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if len(arrays) != count:
        raise ValueError(f"expected {rule} to return one array for each of the {count} {of}, found {len(arrays)}")
    return arrays
