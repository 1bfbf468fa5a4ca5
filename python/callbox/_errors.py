"""The exceptions of callbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class CallError(RuntimeError):
    """A failed call, or a module that was refused.

    Every failure of a guest raises this exception, and never ends the process.

    Attributes:
        code: XLA's name of the status code, such as ``"OUT_OF_RANGE"``.
        message: The reason. Text of a guest is limited in length, and its control characters are
            replaced.
        recoverable: Whether a later call with other inputs can succeed, according to the target.
        blame: Who caused the failure: ``"guest"``, ``"caller"`` or ``"host"``.
        backtrace: The guest's running functions, innermost first. The guest chooses their names.
        module: The name of the module's file, or None if the failure is not of a target.
        target: The name of the target, or None.
    """

    # The module that tracebacks show.
    __module__ = "callbox"

    code: str
    message: str
    recoverable: bool
    blame: str
    backtrace: tuple[str, ...]
    module: str | None
    target: str | None

    def __init__(
        self,
        code: str,
        message: str,
        *,
        recoverable: bool = False,
        blame: str = "guest",
        backtrace: Sequence[str] = (),
        module: str | None = None,
        target: str | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.recoverable = recoverable
        self.blame = blame
        self.backtrace = tuple(backtrace)
        self.module = module
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuilt, (type(self), self.code, self.message, _details(self)))


class InvalidArgumentError(CallError, ValueError):
    """An invalid argument of the caller: code ``"INVALID_ARGUMENT"``, blame ``"caller"``."""

    __module__ = "callbox"


def retold(error: CallError, message: str) -> CallError:
    """The same failure in other words."""
    return _rebuilt(type(error), error.code, message, _details(error))


def _details(error: CallError) -> dict[str, Any]:
    return {name: getattr(error, name) for name in ("recoverable", "blame", "backtrace", "module", "target")}


def _rebuilt(kind: type[CallError], code: str, message: str, details: dict[str, Any]) -> CallError:
    return kind(code, message, **details)
