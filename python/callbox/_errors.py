"""What callbox raises."""

from __future__ import annotations

from collections.abc import Sequence


class CallError(RuntimeError):
    """A failed call, or a module that was refused.

    A target that fails never takes the process with it: whatever a guest does becomes one of these.

    Attributes:
        code: XLA's name of the status code, such as ``"OUT_OF_RANGE"``.
        message: What was expected and what was found. What a guest wrote is capped in length, and its control characters are replaced.
        recoverable: Whether a later call with other inputs can be expected to succeed, as the target says.
        blame: Whose doing it is: ``"guest"``, ``"caller"`` or ``"host"``.
        backtrace: The guest's functions that were running, innermost first. The names are the guest's claim.
    """

    # What a traceback calls it.
    __module__ = "callbox"

    code: str
    message: str
    recoverable: bool
    blame: str
    backtrace: tuple[str, ...]

    def __init__(
        self,
        code: str,
        message: str,
        *,
        recoverable: bool = False,
        blame: str = "guest",
        backtrace: Sequence[str] = (),
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.recoverable = recoverable
        self.blame = blame
        self.backtrace = tuple(backtrace)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuilt, (type(self), self.code, self.message, self.recoverable, self.blame, self.backtrace))


class InvalidArgumentError(CallError, ValueError):
    """What the caller handed over is wrong, whatever the state of the system: code ``"INVALID_ARGUMENT"``, blame ``"caller"``."""

    __module__ = "callbox"


def _rebuilt(
    kind: type[CallError], code: str, message: str, recoverable: bool, blame: str, backtrace: tuple[str, ...]
) -> CallError:
    return kind(code, message, recoverable=recoverable, blame=blame, backtrace=backtrace)
