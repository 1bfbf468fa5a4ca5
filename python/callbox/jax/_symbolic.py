"""Dimensions that `jax.export` leaves open, as variables of the exported program.

A call site names only ranks, so that one serves all sizes. Its checks need numbers: each variable
gets one that no other dimension has, and results are inferred with these. Dimensions that are
computed from variables get the numbers that follow from theirs. The numbers of an exported
program's call are checked again when it runs.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

from callbox import _dimensions
from callbox._callbox import InvalidArgumentError, Target

#: The number of the first variable. Arrays of a few variables stay below 2^63 bytes.
_FIRST = 10007

#: The most expressions of the results' open dimensions, and sums, divisions and remainders in their
#: products, which JAX multiplies out: four expressions of 60 characters took half a minute, and one
#: of 150 terms in each of 1,024 results four.
_MOST_TERMS = 256

_TERM = re.compile(r"[+-]|\b(?:floordiv|mod|max|min)\(")


class Sizes:
    """The numbers of the dimensions of one call."""

    def __init__(self, target: Target, operands: Sequence[Any]) -> None:
        self._target = target
        self._operands = operands
        self._taken = {size for x in operands for size in x.shape if isinstance(size, int)}
        #: The numbers of names in open dimensions.
        self._names: dict[str, int] = {}
        #: The open dimensions with these numbers.
        self._variables: dict[int, Any] = {}
        self._terms_left = _MOST_TERMS

    @property
    def are_open(self) -> bool:
        """Whether a dimension that was asked for is open."""
        return bool(self._variables)

    def of(self, array: Any) -> tuple[str, tuple[int, ...]]:
        """The name of an array's dtype, and its shape in numbers.

        Raises:
            ValueError: A dimension is neither known nor a variable.
        """
        return array.dtype.name, tuple(self._number(size, array) for size in array.shape)

    def results(self, shapes: Sequence[Sequence[int]]) -> list[tuple[Any, ...]]:
        """The dimensions of the inferred results, which have these numbers.

        Raises:
            ValueError: A computed dimension of which the operands do not have the variables.
        """
        if not self._variables:
            return [tuple(shape) for shape in shapes]
        declared = [buffer for buffer in self._target.results or () if not buffer.optional]
        sizes = _dimensions.named_sizes(self._target.operands, [x.shape for x in self._operands])
        return [self._result(*pair, sizes) for pair in itertools.zip_longest(shapes, declared[: len(shapes)])]

    def _result(self, shape: Sequence[int], buffer: Any, sizes: dict[str, Any]) -> tuple[Any, ...]:
        paired = [declared for declared, _ in _dimensions.paired((buffer and buffer.dimensions) or (), shape)]
        wanted = [None] * (len(shape) - len(paired)) + paired
        dimensions: list[Any] = []
        terms = 1
        for size, declared in zip(shape, wanted, strict=True):
            dimensions.append(self._dimension(size, declared, sizes))
            # What is left of an expression may have no terms.
            self._terms_left -= _dimensions.is_computed(declared)
            # JAX multiplies them.
            terms *= 1 + len(_TERM.findall(str(dimensions[-1])))
            if terms - 1 > self._terms_left:
                raise ValueError(
                    f"target {self._target.name!r}: expected results whose open dimensions have expressions and "
                    f"products of at most {_MOST_TERMS} terms in all, found more: the declared dimension {declared} is the last one"
                )
        self._terms_left -= terms - 1
        return tuple(dimensions)

    def _dimension(self, size: int, declared: Any, sizes: dict[str, Any]) -> Any:
        if not isinstance(declared, str):
            return self._variables.get(size, size)
        unknown = _dimensions.symbols(declared) - sizes.keys()
        if unknown:
            raise ValueError(
                f"target {self._target.name!r}: expected operands whose open dimensions say what {min(unknown)} is, "
                f"of which the dimension {declared} of a result is computed"
            )
        return _dimensions.evaluate(declared, sizes)

    @contextlib.contextmanager
    def in_messages(self) -> Iterator[None]:
        """Names variables, not their numbers, in the messages of wrong calls."""
        try:
            yield
        except (TypeError, ValueError) as error:
            if not self._variables:
                raise
            if isinstance(error, InvalidArgumentError):
                raise InvalidArgumentError(error.code, self._named(error.message), blame=error.blame) from None
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(self._named(str(error))) from None

    def _named(self, message: str) -> str:
        for number, variable in self._variables.items():
            message = message.replace(str(number), str(variable))
        return message

    def _number(self, size: Any, array: Any) -> int:
        with contextlib.suppress(Exception):
            return operator.index(size)
        from jax import export

        if not export.is_symbolic_dim(size):
            raise ValueError(
                f"target {self._target.name!r}: expected dimensions that are known when the program is traced, "
                f"found {array.shape}"
            )
        text = str(size)
        if text.isidentifier():
            number = self._name(text, size)
        else:
            try:
                names = {name: self._name(name, size) for name in sorted(_dimensions.symbols(text))}
                number = int(_dimensions.evaluate(text, names))
            except (SyntaxError, ValueError, ArithmeticError):
                # JAX writes it in a way that is not known here.
                number = self._name(text, size)
        self._variables.setdefault(number, size)
        return number

    def _name(self, name: str, size: Any) -> int:
        """The number of a variable, or of a dimension that is none of their sums and products."""
        if name not in self._names:
            free = _FIRST
            while free in self._taken:
                free += 2
            self._taken.add(free)
            self._names[name] = free
            self._variables[free] = size if str(size) == name else _variable(name, size)
        return self._names[name]


def _variable(name: str, size: Any) -> Any:
    """The variable of this name, which the dimension is computed from."""
    from jax import export

    (variable,) = export.symbolic_shape(name, scope=size.scope)
    return variable
