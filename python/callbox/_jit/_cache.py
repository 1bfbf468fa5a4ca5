"""Compiled modules on disk, by the digest of what they were compiled from.

An entry is written aside and renamed, so that processes which compile the same source at once do
not disturb each other, and begins with the digest of its content.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import warnings
from pathlib import Path

_DIGEST = 32


def folder() -> Path:
    """The folder: ``CALLBOX_JIT_CACHE``, or ``callbox/jit`` in the user's cache folder."""
    if chosen := os.environ.get("CALLBOX_JIT_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "callbox" / "jit"


def find(key: str) -> bytes | None:
    """The module of this key, if it is there and whole."""
    try:
        entry = (folder() / key).read_bytes()
    except (OSError, RuntimeError):
        return None
    module = entry[_DIGEST:]
    return module if hashlib.sha256(module).digest() == entry[:_DIGEST] else None


def keep(key: str, module: bytes) -> None:
    """Stores a module. Where it cannot, it warns: the module will be compiled again."""
    try:
        place = folder()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(place / key, hashlib.sha256(module).digest() + module)
    except (OSError, RuntimeError) as error:
        warnings.warn(f"the compiled kernel is not kept for the next process: {error}", stacklevel=2)


def replace(path: Path, content: bytes) -> None:
    """Writes a file, so that it has its old content or all of the new.

    Raises:
        OSError: It cannot be written; what was there remains.
    """
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(aside, 0o666 & ~umask)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
