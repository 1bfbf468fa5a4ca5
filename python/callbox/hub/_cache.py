"""Downloaded files by their SHA-256, and the commit that each revision had when last seen."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import warnings
from pathlib import Path

from callbox._callbox import CallError


class Cache:
    """A folder of one user. Files are verified each time they are read.

    Nothing is written that the folder has. A folder that cannot be written serves with what it has,
    and a warning says that the rest is not kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for part in (folder, folder / "sha256", folder / "revisions"):
            try:
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
                status = part.lstat()
            except OSError as error:
                raise CallError(
                    "FAILED_PRECONDITION", f"cannot make the folder {part}: {error.strerror}", blame="caller"
                ) from None
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
        sha256 = digest(contents)
        if self.file(sha256) is None:
            self._write(self._folder / "sha256" / sha256, contents)

    def note(self, key: str) -> str | None:
        """What was noted of a revision: its commit, or the digest of the metadata of a commit."""
        text = self._read(self._note(key))
        found = text.decode("ascii", "replace").strip() if text is not None else ""
        return found if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", found) else None

    def take_note(self, key: str, text: str) -> None:
        """Remembers a commit or a digest."""
        if self.note(key) != text:
            self._write(self._note(key), f"{text}\n".encode())

    def _note(self, key: str) -> Path:
        # Names of repositories differ in case, and file systems may not tell those apart.
        return self._folder / "revisions" / digest(key.encode())

    @staticmethod
    def _read(path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except OSError:
            return None

    @staticmethod
    def _write(path: Path, contents: bytes) -> None:
        try:
            descriptor, staged = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(contents)
                os.replace(staged, path)
            except BaseException:
                os.unlink(staged)
                raise
        except OSError as error:
            # The kernel loads without it.
            warnings.warn(
                f"the download is not kept: cannot write to {path.parent}: {error.strerror}",
                RuntimeWarning,
                stacklevel=2,
            )


def digest(contents: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(contents).hexdigest()
