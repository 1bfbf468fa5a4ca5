"""The variant ``build/callbox-wasm32`` of a repository, which ``callbox pack --hub`` writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from callbox import _json
from callbox._callbox import CallError

VARIANT = "build/callbox-wasm32"
METADATA = "metadata.json"

FORMAT = 1

MOST_METADATA = 256 << 10
MOST_BYTES = 64 << 20
MOST_FILES = 1024
MOST_LICENSE = 4096

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_VERSION = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)([-+][0-9A-Za-z.+-]+)?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PATH_NAME = re.compile(r"[A-Za-z0-9_+-]([A-Za-z0-9._+-]*[A-Za-z0-9_+-])?")
_DEVICE = re.compile(r"(aux|con|nul|prn|(com|lpt)[0-9])(\..*)?", re.IGNORECASE)


@dataclass(frozen=True)
class File:
    """A file of the variant."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Metadata:
    """What ``metadata.json`` says: its author's claims, apart from the digests."""

    name: str
    version: str
    license: str
    derivatives: Mapping[str, str]
    module: File
    #: The manifest of the native twin.
    manifest: File | None
    files: tuple[File, ...]


def parse(text: bytes) -> Metadata:
    """Reads ``metadata.json``, which a stranger wrote.

    Raises:
        CallError: INVALID_ARGUMENT if it is wrong, RESOURCE_EXHAUSTED if its files are too large.
    """
    fields = _fields(
        _object(text),
        METADATA,
        required={"format": int, "name": str, "version": str, "license": str, "module": str, "files": list},
        optional={"derivatives": dict, "manifest": str},
    )
    if fields["format"] != FORMAT:
        raise _wrong(f"expected `format` {FORMAT}, found {fields['format']}: a newer callbox wrote this variant")
    if not _NAME.fullmatch(fields["name"]):
        raise _wrong(f"expected a `name` of lower-case letters, digits, `-` and `_`, found {quoted(fields['name'])}")
    if len(fields["version"]) > 64 or not _VERSION.fullmatch(fields["version"]):
        raise _wrong(f"expected a `version` such as 1.0.0, found {quoted(fields['version'])}")
    if len(fields["license"]) > MOST_LICENSE or not fields["license"].isprintable():
        raise _wrong(f"expected a `license` that can be shown, found {quoted(fields['license'])}")
    derivatives = fields.get("derivatives", {})
    if not all(isinstance(name, str) for name in derivatives.values()):
        raise _wrong("expected names of targets in `derivatives`")
    files = _files(fields["files"])
    by_path = {file.path: file for file in files}

    def named(key: str) -> File:
        if fields[key] not in by_path:
            raise _wrong(f"`{key}` is {quoted(fields[key])}, which is not in `files`")
        return by_path[fields[key]]

    return Metadata(
        name=fields["name"],
        version=fields["version"],
        license=fields["license"],
        derivatives=derivatives,
        module=named("module"),
        manifest=named("manifest") if "manifest" in fields else None,
        files=files,
    )


def _files(entries: list[Any]) -> tuple[File, ...]:
    if len(entries) > MOST_FILES:
        raise exhausted(f"{METADATA}: expected at most {MOST_FILES} files, found {len(entries)}")
    files, seen, total = [], set(), 0
    for entry in entries:
        fields = _fields(entry, "an entry of `files`", required={"path": str, "size": int, "sha256": str})
        file = File(**fields)
        _check_path(file.path)
        # Some file systems do not tell names apart that differ in case.
        folded = file.path.lower()
        if folded in seen or any(folded.startswith(f"{other}/") or other.startswith(f"{folded}/") for other in seen):
            raise _wrong(f"the path {quoted(file.path)} collides with another path of `files`")
        seen.add(folded)
        if not _DIGEST.fullmatch(file.sha256):
            raise _wrong(
                f"expected a SHA-256 of 64 lower-case hexadecimal digits for {quoted(file.path)}, "
                f"found {quoted(file.sha256)}"
            )
        if file.size < 0:
            raise _wrong(f"expected a size of {quoted(file.path)}, found {file.size}")
        if file.size > MOST_BYTES:
            # Not the number itself, which may have thousands of digits.
            found = f"{quoted(file.path)} with more"
            raise exhausted(f"{METADATA}: expected files of at most {MOST_BYTES} bytes, found {found}")
        total += file.size
        files.append(file)
    if total > MOST_BYTES:
        raise exhausted(f"{METADATA}: expected files of at most {MOST_BYTES} bytes, found {total}")
    return tuple(files)


def _check_path(path: str) -> None:
    names = path.split("/")
    if len(path) > 200 or not all(_PATH_NAME.fullmatch(name) and not _DEVICE.fullmatch(name) for name in names):
        raise _wrong(f"{quoted(path)} cannot be the path of a file in {VARIANT}")
    if path.lower() == METADATA:
        raise _wrong(f"`files` names {quoted(path)} itself")


def _object(text: bytes) -> Any:
    try:
        return _json.loads(text)
    except ValueError as error:
        raise _wrong(f"expected JSON: {quoted(str(error))}") from None


def _fields(
    value: Any, where: str, *, required: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> dict[str, Any]:
    """The fields of an object, with their types checked."""
    known = {**required, **(optional or {})}
    if not isinstance(value, dict):
        raise _wrong(f"expected an object for {where}")
    for key in value:
        if key not in known:
            raise _wrong(f"{quoted(key)} is not a key of {where}; it takes {', '.join(known)}")
    for key, kind in known.items():
        if key not in value and key in required:
            raise _wrong(f"{where} lacks `{key}`")
        # bool is a subclass of int.
        if key in value and (not isinstance(value[key], kind) or isinstance(value[key], bool)):
            raise _wrong(f"expected `{key}` of {where} to be of type {kind.__name__}")
    return value


def quoted(text: str) -> str:
    """A stranger's text for a message: short, and without characters that control a terminal."""
    shown = text if len(text) <= 80 else f"{text[:80]}..."
    return ascii(shown)


def exhausted(message: str) -> CallError:
    """The failure for a file past a limit."""
    return CallError("RESOURCE_EXHAUSTED", message)


def _wrong(message: str) -> CallError:
    return CallError("INVALID_ARGUMENT", f"{METADATA}: {message}")
