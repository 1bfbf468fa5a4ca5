"""The deadline of a mapped call, which the elements of its batch share."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from callbox._callbox import Budget, Target

#: The most passes of a batch that are known at one time.
_MOST_PASSES = 16


class Batch:
    """The calls of a mapped call: those of its elements, and of their derivatives.

    Each pass of a program, forward or backward, has the time anew.
    """

    def __init__(self, seconds: float, around: Batch | None) -> None:
        self._seconds, self._around = seconds, around
        self._budgets: dict[int, Budget] = {}

    def budget(self) -> Budget:
        """The budget that the calls of this pass share, within that of the batch around it."""
        # Minus one outside of backward passes.
        number = torch._C._current_graph_task_id()
        budget = self._budgets.get(number)
        if budget is None:
            # Passes of several threads can take turns.
            if len(self._budgets) == _MOST_PASSES:
                del self._budgets[next(iter(self._budgets))]
            around = None if self._around is None else self._around.budget()
            budget = self._budgets[number] = Budget(self._seconds, around)
        return budget


#: The batch that is mapped or differentiated now.
_batch: contextvars.ContextVar[Batch | None] = contextvars.ContextVar("callbox.torch._batch", default=None)


def seconds(target: Target, options: Mapping[str, Any]) -> float | None:
    """The time that one call may take: that of `deadline`, or else the policy's."""
    if options.get("deadline") is not None:
        return float(options["deadline"])
    policy = target.module.policy
    milliseconds = policy["limits"]["deadline_ms"]
    # In the deterministic mode, fuel bounds each call.
    return None if policy["deterministic"] or milliseconds is None else milliseconds / 1000


def current() -> Batch | None:
    """The batch that is mapped or differentiated now."""
    return _batch.get()


def mapped(seconds: float | None) -> contextlib.AbstractContextManager[None]:
    """The calls of the block are those of a batch, which may take this time together."""
    return of(current() if seconds is None else Batch(seconds, current()))


@contextlib.contextmanager
def of(batch: Batch | None) -> Iterator[None]:
    """The calls of the block are those of the batch, too."""
    token = _batch.set(batch)
    try:
        yield
    finally:
        _batch.reset(token)


def within(options: Mapping[str, Any], seconds: float | None) -> Mapping[str, Any]:
    """The options of a call that may take this time, and is one of a batch if there is one."""
    batch = current()
    if batch is None:
        return options
    budget = batch.budget()
    return {**options, "deadline": budget if seconds is None else Budget(seconds, budget)}
