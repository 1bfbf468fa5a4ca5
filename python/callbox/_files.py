"""Opens the files that a caller names."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from ._callbox import Contents, shown_path

_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}


#: The bytes that are read at a time.
_PIECE = 1 << 20


def contents_of(file: BinaryIO, most: int) -> Contents:
    """Reads at most `most` bytes of an open file."""
    contents = Contents()
    while most > 0 and (piece := file.read(min(most, _PIECE))):
        contents.add(piece)
        most -= len(piece)
    return contents


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a regular file to read.

    Opening a FIFO would wait for a writer, and opening a device may have an effect.

    Raises:
        OSError: The path is something else, or cannot be read.
    """
    # An int would be an open file of the process.
    _check(path, os.stat(os.fspath(path)).st_mode)
    return open(path, "rb", opener=_opened)


def _opened(path: str, flags: int) -> int:
    # If a FIFO took the file's place after the first check, opening it does not wait.
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        _check(path, os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: str | os.PathLike[str], mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    found = _KINDS.get(stat.S_IFMT(mode), "a device")
    kind = IsADirectoryError if stat.S_ISDIR(mode) else OSError
    raise kind(f"cannot read {shown_path(path)}: expected a regular file, found {found}")
