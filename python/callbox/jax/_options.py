"""The options of a call site."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from callbox._callbox import StaticInfo, Target

from . import _partitioning
from ._operands import has_batch

#: The values of `vmap_method`.
VmapMethod = Literal["loop", "sequential", "sequential_unrolled"] | None
_VMAP_METHODS = ("loop", "sequential", "sequential_unrolled", None)

#: The values of `on_error`.
OnError = Literal["raise", "status"]


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a call site."""

    vmap_method: str | None = "loop"
    #: Pairs of an operand and a result.
    input_output_aliases: tuple[tuple[int, int], ...] = ()
    has_side_effect: bool = False
    on_error: str = "raise"
    deadline: float | None = None
    threads: int | None = None
    promote: bool = False
    opaque: bytes | None = None
    static_info: bytes | StaticInfo | None = None
    api_version: str | None = None
    #: The call that this one is a derivative of.
    derivative: _partitioning.Derivative | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "status"):
            raise ValueError(f"expected on_error to be 'raise' or 'status', found {self.on_error!r}")
        if self.vmap_method in ("expand_dims", "broadcast_all"):
            raise ValueError(
                f"expected a vmap_method of 'loop', 'sequential', 'sequential_unrolled' or None, found {self.vmap_method!r}: "
                "it hands the whole batch to the target, which computes something else then unless it is written for batches. "
                "A target that is declares the trait batched, and then gets the whole batch with the method 'loop'"
            )
        if self.vmap_method not in _VMAP_METHODS:
            raise ValueError(
                f"expected a vmap_method of 'loop', 'sequential', 'sequential_unrolled' or None, found {self.vmap_method!r}"
            )

    @property
    def has_status(self) -> bool:
        return self.on_error == "status"

    def ffi_vmap_method(self, target: Target) -> str | None:
        """The method by which `jax.ffi.ffi_call` passes a batch to the handler.

        With ``"expand_dims"`` an operand that is the same for the whole batch keeps its size. That
        is impossible for an operand that shares memory with a result, which has the batch, and
        keeps a target that takes batches from getting the whole one.
        """
        if self.vmap_method != "loop":
            return self.vmap_method
        takes_batch = "batched" in target.traits and all(map(has_batch, target.operands or ()))
        return "broadcast_all" if self.input_output_aliases or takes_batch else "expand_dims"

    def without_memory(self) -> Options:
        """The options for another target of the same program, which has other operands."""
        return dataclasses.replace(
            self, input_output_aliases=(), opaque=None, static_info=None, api_version=None, derivative=None
        )


def checked_aliases(given: Any) -> tuple[tuple[int, int], ...]:
    """Checks the aliases of a call.

    Raises:
        TypeError: They are not a mapping of integers to integers.
        ValueError: One of the integers is negative.
    """
    wrong = f"expected input_output_aliases to be a mapping of operands' numbers to results' numbers, found {given!r}"
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise TypeError(wrong)
    numbers = [*given.keys(), *given.values()]
    if not all(isinstance(x, (int, np.integer)) and not isinstance(x, bool) for x in numbers):
        raise TypeError(wrong)
    if any(x < 0 for x in numbers):
        raise ValueError(wrong)
    return tuple((int(operand), int(result)) for operand, result in given.items())
