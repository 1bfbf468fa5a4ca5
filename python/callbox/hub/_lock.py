"""``callbox.lock``: the digests of the kernels that a program uses, as ``callbox lock`` writes."""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from callbox import _json
from callbox._callbox import CallError, InvalidArgumentError
from callbox._files import open_regular

from ._layout import quoted

FORMAT = 1

_MOST_BYTES = 1 << 20

_KEYS = {"file": str, "digest": str, "size": int, "name": str, "version": str, "commit": str, "from": str}
_OPTIONAL = {"name", "version", "commit", "from"}


@dataclass(frozen=True)
class Locked:
    """A locked kernel of the Hub."""

    commit: str
    #: SHA-256 of its metadata.
    digest: str


def find(path: str | PathLike[str], reference: str) -> Locked:
    """The entry of a kernel.

    Raises:
        CallError: PERMISSION_DENIED if the lock lacks it.
    """
    entry = _read(path).get(reference)
    if entry is None or "commit" not in entry:
        raise CallError(
            "PERMISSION_DENIED",
            f"{quoted(reference)} is not in {os.fspath(path)}: `callbox.hub.lock` writes it down",
            blame="caller",
        )
    return Locked(commit=entry["commit"], digest=entry["digest"])


def add(path: str | PathLike[str], entries: dict[str, dict[str, Any]]) -> None:
    """Writes entries down beside those that the lock has. A link to a lock stays a link."""
    path = Path(path)
    if path.with_name(f"{path.name}.next").exists():
        raise CallError(
            "FAILED_PRECONDITION",
            f"{path}: an update was interrupted: `callbox update` finishes it",
            blame="caller",
        )
    known = _read(path) if path.exists() else {}
    files = [entry for _, entry in sorted({**known, **entries}.items())]
    text = json.dumps({"format": FORMAT, "files": files}, indent=2, ensure_ascii=False)
    length = len(text.encode()) + 1
    if length > _MOST_BYTES:
        message = f"{path}: expected a lock of at most {_MOST_BYTES} bytes, found {length}: nothing is written"
        raise CallError("RESOURCE_EXHAUSTED", message, blame="caller")
    real = path.resolve(strict=True) if path.is_symlink() else path
    # Others may write to the folder: the name is new, and no link is followed.
    staged = real.with_name(f"{real.name}.{secrets.token_hex(8)}.part")
    file = staged.open("x", encoding="utf-8")
    try:
        with file:
            file.write(f"{text}\n")
        os.replace(staged, real)
    finally:
        staged.unlink(missing_ok=True)


def _read(path: str | PathLike[str]) -> dict[str, dict[str, Any]]:
    with open_regular(path) as file:
        text = file.read(_MOST_BYTES + 1)
    try:
        if len(text) > _MOST_BYTES:
            raise ValueError(f"expected a lock of at most {_MOST_BYTES} bytes, found more")
        lock = _json.loads(text)
        if not isinstance(lock, dict) or set(lock) != {"format", "files"} or not isinstance(lock["files"], list):
            raise ValueError("expected an object with `format` and `files`")
        # True and 1.0 are equal to 1.
        if type(lock["format"]) is not int or lock["format"] != FORMAT:
            raise ValueError(f"expected `format` {FORMAT}, found {quoted(repr(lock['format']))[1:-1]}")
        entries: dict[str, dict[str, Any]] = {}
        for entry in lock["files"]:
            _check(entry)
            if entry["file"] in entries:
                raise ValueError(f"the lock has {quoted(entry['file'])} twice")
            entries[entry["file"]] = entry
    except ValueError as error:
        raise InvalidArgumentError("INVALID_ARGUMENT", f"{os.fspath(path)}: {error}", blame="caller") from None
    return entries


def _check(entry: Any) -> None:
    if not isinstance(entry, dict):
        raise ValueError("expected objects in `files`")
    for key, value in entry.items():
        if key not in _KEYS or not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise ValueError(f"{quoted(str(key))} is wrong in an entry of `files`")
    if lacking := [key for key in _KEYS if key not in entry and key not in _OPTIONAL]:
        raise ValueError(f"an entry of `files` lacks `{lacking[0]}`")
    if not re.fullmatch(r"[0-9a-f]{64}", entry["digest"]):
        raise ValueError(
            f"expected a SHA-256 of 64 lower-case hexadecimal digits for {quoted(entry['file'])}, "
            f"found {quoted(entry['digest'])}"
        )
    if "commit" in entry and not re.fullmatch(r"[0-9a-f]{40}", entry["commit"]):
        raise ValueError(f"expected a commit of 40 hexadecimal digits for {quoted(entry['file'])}")
