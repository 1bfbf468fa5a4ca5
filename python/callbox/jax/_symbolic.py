"""Dimensions that `jax.export` leaves open, as variables of the exported program.

A call site names only ranks, so that one serves all sizes. Its checks need numbers: each variable
gets one that no other dimension has, and results are inferred with these. The numbers of an
exported program's call are checked again when it runs.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Sequence
from typing import Any

from callbox._callbox import InvalidArgumentError, Target

#: The number of the first variable. Arrays of a few variables stay below 2^63 bytes.
_FIRST = 10007


class Sizes:
    """The numbers of the dimensions of one call."""

    def __init__(self, target: Target, operands: Sequence[Any]) -> None:
        self._target = target
        self._taken = {size for x in operands for size in x.shape if isinstance(size, int)}
        self._variables: dict[int, Any] = {}

    def of(self, array: Any) -> tuple[str, tuple[int, ...]]:
        """The name of an array's dtype, and its shape in numbers.

        Raises:
            ValueError: A dimension is neither known nor a variable.
        """
        return array.dtype.name, tuple(self._number(size, array) for size in array.shape)

    def dimensions(self, shape: Sequence[int]) -> tuple[Any, ...]:
        """The dimensions with these numbers."""
        return tuple(self._variables.get(size, size) for size in shape)

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
        for number, variable in self._variables.items():
            if str(variable) == str(size):
                return number
        free = _FIRST
        while free in self._taken:
            free += 2
        self._taken.add(free)
        self._variables[free] = size
        return free
