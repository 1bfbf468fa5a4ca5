"""The error of functions that cannot become kernels."""

from __future__ import annotations


class CompileError(Exception):
    """A function that cannot become a kernel.

    Attributes:
        message: The reason, without the place.
        filename: The file of the function, if known.
        line: The number of the line at fault, if known.
    """

    __module__ = "callbox"

    message: str
    filename: str | None
    line: int | None

    def __init__(self, message: str, filename: str | None = None, line: int | None = None) -> None:
        place = f"{filename}:{line}: " if filename and line else ""
        super().__init__(place + message)
        self.message = message
        self.filename = filename
        self.line = line

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.message, self.filename, self.line))
