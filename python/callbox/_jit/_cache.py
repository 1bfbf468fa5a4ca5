"""Compiled modules on disk, by the digest of what they were compiled from.

An entry is written aside and renamed, so that processes which compile the same source at once do
not disturb each other, and begins with the digest of its key and content. What a killed process
leaves aside is deleted after an hour, when an entry is next written. Another user could forge
that digest: the folder and the file must belong to this user or to root, and only the owner may
write to them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import time
import warnings
from pathlib import Path

_DIGEST = 32

#: The most bytes of an entry: those of the largest module under the default policy.
_MOST = 64 << 20

#: The names of entries that are being written, and the seconds after which their writers are dead.
_ASIDE = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{16}")
_ABANDONED = 3600


def folder() -> Path:
    """The folder: ``CALLBOX_JIT_CACHE``, or ``callbox/jit`` in the user's cache folder."""
    if chosen := os.environ.get("CALLBOX_JIT_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "callbox" / "jit"


def find(key: str) -> bytes | None:
    """The module of this key, if it is there and whole, and only this user can have stored it."""
    try:
        place = folder()
        _check(os.stat(place), place)
        # A FIFO would otherwise wait for a writer.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(place / key, flags), "rb") as file:
            found = os.fstat(file.fileno())
            _check(found, place / key)
            if not stat.S_ISREG(found.st_mode):
                return None
            entry = file.read(_DIGEST + _MOST)
    except (OSError, RuntimeError):
        return None
    module = entry[_DIGEST:]
    return module if _digest(key, module) == entry[:_DIGEST] else None


def keep(key: str, module: bytes) -> None:
    """Stores a module. Where it cannot, it warns: the module will be compiled again."""
    try:
        place = folder()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(os.stat(place), place)
        _sweep(place, _ASIDE)
        replace(place / key, _digest(key, module) + module, mode=0o600)
    except (OSError, RuntimeError) as error:
        warnings.warn(f"the compiled kernel is not kept for the next process: {error}", stacklevel=2)


def _sweep(place: Path, names: re.Pattern[str]) -> None:
    """Deletes what killed processes wrote aside. Errors are discarded: the next process tries."""
    end = time.time() - _ABANDONED
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if names.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < end:
                    os.unlink(entry.path)


def _digest(key: str, module: bytes) -> bytes:
    """The start of an entry. It covers the key, so that an entry under another name is none."""
    return hashlib.sha256(key.encode() + module).digest()


def _check(found: os.stat_result, path: Path) -> None:
    """Refuses what another user could have written.

    Raises:
        PermissionError: Another user owns it or may write to it.
    """
    if not hasattr(os, "geteuid"):
        return
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} belongs to another user, or others may write to it")


def save(path: Path, content: bytes) -> None:
    """Writes a file for a user, so that it has its old content or all of the new.

    An earlier file's mode stays. What a killed process wrote aside, beside the file, is deleted
    after an hour, when the file is next written. A device or a pipe is written to.

    Raises:
        OSError: It cannot be written; what was there remains.
    """
    mode = None
    with contextlib.suppress(FileNotFoundError):
        earlier = os.stat(path).st_mode
        if not stat.S_ISREG(earlier) and not stat.S_ISDIR(earlier):
            path.write_bytes(content)
            return
        mode = stat.S_IMODE(earlier)
    _sweep(path.parent, re.compile(re.escape(_prefix(path)) + r"[0-9a-f]{16}"))
    replace(path, content, kept_mode=mode, is_durable=True)


def _prefix(path: Path) -> str:
    """The start of the names of files that are to replace this one."""
    return f".{path.name[:64]}."


def replace(
    path: Path, content: bytes, *, mode: int = 0o666, kept_mode: int | None = None, is_durable: bool = False
) -> None:
    """Writes a file, so that it has its old content or all of the new.

    Args:
        path: The file.
        content: All of its bytes.
        mode: Its mode, without the bits that the process's umask takes.
        kept_mode: Its mode, with all bits.
        is_durable: The content is on the disk before the file has its name.

    Raises:
        OSError: It cannot be written; what was there remains.
    """
    aside = path.parent / (_prefix(path) + secrets.token_hex(8))
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if kept_mode is not None:
                os.chmod(aside, kept_mode)
            file.write(content)
            if is_durable:
                file.flush()
                # Some file systems report a full disk only now.
                os.fsync(descriptor)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
