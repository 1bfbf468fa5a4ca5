"""Downloaded files by their SHA-256, and the commit that each revision had when last seen."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from callbox._callbox import CallError


class Cache:
    """A folder of one user. Files are verified each time they are read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for part in (folder, folder / "sha256", folder / "revisions"):
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = part.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
                raise CallError(
                    "FAILED_PRECONDITION",
                    f"expected a folder that this user alone can write, found {part}",
                    blame="caller",
                )

    def file(self, sha256: str) -> bytes | None:
        """The file with this digest."""
        found = self._read(self._folder / "sha256" / sha256)
        return found if found is not None and digest(found) == sha256 else None

    def keep(self, contents: bytes) -> None:
        """Keeps a file."""
        self._write(self._folder / "sha256" / digest(contents), contents)

    def note(self, key: str) -> str | None:
        """What was noted of a revision: its commit, or the digest of the metadata of a commit."""
        text = self._read(self._note(key))
        found = text.decode("ascii", "replace").strip() if text is not None else ""
        return found if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", found) else None

    def take_note(self, key: str, text: str) -> None:
        """Remembers a commit or a digest."""
        self._write(self._note(key), f"{text}\n".encode())

    def _note(self, key: str) -> Path:
        # Names of repositories differ in case, and file systems may not tell those apart.
        return self._folder / "revisions" / digest(key.encode())

    @staticmethod
    def _read(path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    @staticmethod
    def _write(path: Path, contents: bytes) -> None:
        descriptor, staged = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(contents)
            os.replace(staged, path)
        except BaseException:
            os.unlink(staged)
            raise


def digest(contents: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(contents).hexdigest()
