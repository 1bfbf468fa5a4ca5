"""Computed dimensions: `n/2` and `2*n+1` of a declaration, and those of JAX's open dimensions."""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

#: Ends names that are keywords of Python. Declared names have ASCII letters alone.
_MARK = "\N{MIDDLE DOT}"

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    # A declaration writes a division that rounds down as `/`.
    ast.Div: operator.floordiv,
    ast.Pow: operator.pow,
}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}


def is_computed(dimension: int | str) -> bool:
    """Whether a declared dimension is an expression."""
    return isinstance(dimension, str) and dimension != ".." and not dimension.isidentifier()


def symbols(expression: str) -> set[str]:
    """The names in an expression."""
    tree = ast.walk(_parsed(expression))
    called = {id(node.func) for node in ast.walk(_parsed(expression)) if isinstance(node, ast.Call)}
    names = {node.id for node in tree if isinstance(node, ast.Name) and id(node) not in called}
    return {name.rstrip(_MARK) for name in names} - _FUNCTIONS.keys()


def evaluate(expression: str, sizes: Mapping[str, Any]) -> Any:
    """The value of an expression.

    Raises:
        LookupError: An unknown name.
        ValueError: Anything else than sums, products and quotients.
    """
    return _value(_parsed(expression), sizes)


def named_sizes(declared: Iterable[Any] | None, shapes: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """The sizes of the symbols of operands whose shapes fit their declarations."""
    pairs = [
        pair
        for buffer, shape in zip(declared or (), shapes, strict=False)
        for pair in paired(buffer.dimensions or (), shape)
    ]
    sizes: dict[str, Any] = {}
    for dimension, size in pairs:
        if isinstance(dimension, str) and dimension.isidentifier():
            sizes.setdefault(dimension, size)
    computed = [(str(dimension), size, symbols(str(dimension))) for dimension, size in pairs if is_computed(dimension)]
    # A symbol that one expression determines may be in others.
    is_changed = True
    while is_changed:
        is_changed = False
        for expression, size, named in computed:
            unknown = named - sizes.keys()
            if len(unknown) == 1:
                solved = _solved(expression, size, unknown.pop(), sizes)
                sizes.update(solved)
                is_changed = is_changed or bool(solved)
    return sizes


def _solved(expression: str, size: Any, symbol: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The symbol with which the expression has this size, if the expression is linear in it."""
    try:
        zero, one, two = (evaluate(expression, {**sizes, symbol: value}) for value in range(3))
    except ArithmeticError:
        return {}
    slope = one - zero
    return {symbol: (size - zero) // slope} if two - one == slope != 0 else {}


def paired(declared: Sequence[int | str], shape: Sequence[Any]) -> list[tuple[int | str, Any]]:
    """The declared dimensions after `..`, each with its size in a shape that fits."""
    single = declared[1:] if declared[:1] == ("..",) else declared
    return list(zip(single, shape[len(shape) - len(single) :], strict=False))


def _parsed(expression: str) -> ast.expr:
    # Python has keywords, and no numbers that begin with 0.
    text = re.sub(r"\b0+(?=[0-9])", "", expression.replace("^", "**"))
    text = re.sub(r"\b[A-Za-z_]+\b", lambda word: word[0] + _MARK * keyword.iskeyword(word[0]), text)
    return ast.parse(text, mode="eval").body


def _value(node: ast.expr, sizes: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return sizes[name.rstrip(_MARK)]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, sizes)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, sizes) for argument in args))
    raise ValueError(f"expected a sum, a product or a quotient, found {ast.unparse(node)}")
