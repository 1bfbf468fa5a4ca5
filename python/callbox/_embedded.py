"""Modules in files and by reference: ``.wasm`` and ``.safetensors`` files, and packages."""

from __future__ import annotations

import functools
import os
import re
import reprlib
from collections.abc import Sequence
from os import PathLike
from typing import Any, BinaryIO

from . import _json
from ._callbox import (
    CallError,
    Contents,
    Host,
    InvalidArgumentError,
    Module,
    check_locked,
    is_reference,
    names_of_file,
    shown_path,
)
from ._errors import retold
from ._files import contents_of, open_regular

#: The beginning of the names of tensors that are modules.
PREFIX = "callbox."

#: The largest bundle of signatures.
MOST_BUNDLE = 16 << 20

#: The longest header of a ``.safetensors`` file, as the command line reads it.
_MOST_HEADER = 16 << 20
#: The longest name of a tensor with a package.
_MOST_NAME = 200
#: The most memory of a header's values, by an estimate that also counts the brackets in texts.
_MOST_MEMORY = 128 << 20


def load(
    path: str | PathLike[str],
    name: str | None = None,
    *,
    host: Host | None = None,
    digest: str | None = None,
    lock: str | PathLike[str] | None = None,
    offline: bool = False,
    native: str | PathLike[str] | bool | None = None,
    allow_native: str | Sequence[str] | None = None,
) -> Module:
    """Loads a module from a file, from a registry, from the Hugging Face Hub or from an address.

    A file is a ``.wasm`` file, or a ``.safetensors`` file that has a package beside weights, which
    are not read: ``callbox pack --into`` puts it there, as the U8 tensor ``callbox.NAME``.

    A text that begins with ``oci:``, ``hf:``, ``https://`` or ``http://`` is a reference, as of
    ``callbox fetch``, with its cache, tokens and passwords. Nothing of a package runs when it is
    loaded.

    Args:
        path: The file or the reference: ``"oci:ghcr.io/org/softmax:1.0.0"``.
        name: The package in a ``.safetensors`` file. None: the only one.
        host: The host that loads the module. None: one with the default policy.
        digest: The SHA-256 of the module, in hexadecimal, or for the Hub of ``metadata.json``.
            Another one is refused. A reference may also end in ``#sha256:DIGEST``.
        lock: The ``callbox.lock`` that must have the file, the package beside weights or the
            reference, as ``callbox lock`` and ``callbox fetch --write-lock`` write it. Its version
            of a reference is loaded.
        offline: Whether to use only what was downloaded before.
        native: As of `Host.load`: True for the native twin that the package carries, for
            ``platform="CUDA"``.
        allow_native: As of `Host.load`.

    Raises:
        FileNotFoundError: The file does not exist.
        OSError: The path is not a regular file, or cannot be read.
        MemoryError: The process lacks memory, or address space under a limit, for the file.
        CallError: NOT_FOUND if there is no such package, INVALID_ARGUMENT if it is damaged,
            PERMISSION_DENIED for another digest or native code that is not granted, DATA_LOSS for a
            host that contradicts itself, UNAVAILABLE without a connection, and what `Host.load`
            raises.
    """
    if host is not None and not isinstance(host, Host):
        raise TypeError(f"expected a callbox.Host as host, found {type(host).__name__}")
    host = host or default_host()
    if isinstance(path, str) and is_reference(path):
        if name is not None:
            raise _wrong(path, f"name={name!r} is for .safetensors files")
        return _fetched(path, host, (digest, lock, offline, native, allow_native))
    path = os.fsdecode(path)
    if digest is not None:
        check_digest(digest)
    with open_regular(path) as file:
        if file.read(4) == b"\0asm":
            # Its name would be one that rules about tensors do not match.
            if path.endswith(".safetensors"):
                raise _wrong(path, "expected weights, found a module")
            if name is not None:
                raise _wrong(path, f"the file is a module: it has no package {name!r}")
            file.seek(0)
            # The host reads one byte past its limit at most.
            contents = contents_of(file, _most(host) + 1)
            if lock is not None:
                check_locked(lock, path, None, contents)
            return _checked(path, contents, host, digest, None, native=native, allow_native=allow_native)
        key, contents = _tensor(path, file, name, _most(host))
        if lock is not None:
            check_locked(lock, path, key, contents)
        return _checked(path, contents, host, digest, key, native=native, allow_native=allow_native)


def check_digest(digest: str) -> None:
    """Checks the form of a digest that a caller wants."""
    if not isinstance(digest, str):
        raise TypeError(f"expected a str as digest, found {type(digest).__name__}")
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        message = f"expected a SHA-256 of 64 lower-case hexadecimal digits as digest, found {digest[:80]!a}"
        raise InvalidArgumentError("INVALID_ARGUMENT", message, blame="caller")


def _fetched(reference: str, host: Host, options: tuple[Any, ...]) -> Module:
    try:
        return host._load_reference(reference, *options)
    except CallError as error:
        # An address may have a password after the mark.
        known = reference.split("?")[0].split("#")[0]
        if known in error.message:
            raise
        raise retold(error, f"{known}: {error.message}") from None


def _checked(
    path: str, contents: Contents, host: Host, wanted: str | None, tensor: str | None, **native: Any
) -> Module:
    found = contents.sha256()
    if wanted is not None and found != wanted:
        raise CallError(
            "PERMISSION_DENIED", f"{shown_path(path)}: expected the digest {wanted}, found {found}", blame="caller"
        )
    try:
        names = _names(path, tensor)
        return host._load_contents(contents, name=names, bundle=_bundle(path, names, host), **native)
    except CallError as error:
        raise retold(error, f"{shown_path(path)}: {error.message}") from None


def _bundle(path: str, names: list[str], host: Host) -> bytes | None:
    """The bundle of signatures beside a file, if a rule asks for one."""
    if not host._takes_bundles(names):
        return None
    try:
        with open_regular(f"{path}.sig") as file:
            # One byte past the limit is refused when the bundle is read.
            return file.read(MOST_BUNDLE + 1)
    except FileNotFoundError:
        return None


def _names(path: str, tensor: str | None) -> list[str]:
    """The names for rules about signatures: of the file, as for `Host.load`, and of the tensor."""
    names = names_of_file(path)
    return names if tensor is None else [*names, *(f"{name}#{tensor}" for name in names)]


def _tensor(path: str, file: BinaryIO, name: str | None, most: int) -> tuple[str, Contents]:
    """The name and the bytes of a tensor that is a module."""
    header, start, size = _header(path, file)
    found = {key: info for key, info in header.items() if key.startswith(PREFIX)}
    for key in found:
        if len(key) > _MOST_NAME or not key.isprintable():
            what = f"at most {_MOST_NAME} characters that can be printed"
            raise _wrong(path, f"expected names of packages of {what}, found {key[:_MOST_NAME]!a}")
    if name is None and len(found) == 1:
        (key,) = found
    else:
        key = f"{PREFIX}{name}"
    if name is None and len(found) > 1:
        names = ", ".join(repr(key.removeprefix(PREFIX)) for key in sorted(found)[:16])
        raise _wrong(path, f"the file has several packages: expected name=, one of {names}")
    if not found or key not in found:
        what = "no package" if name is None else f"no package {name!r}"
        raise CallError(
            "NOT_FOUND", f"{shown_path(path)}: the file has {what}: a U8 tensor `{PREFIX}NAME` is one", blame="caller"
        )
    info = found[key]
    offsets = info.get("data_offsets") if isinstance(info, dict) else None
    if (
        not isinstance(offsets, list)
        or not all(type(offset) is int for offset in offsets)
        or len(offsets) != 2
        or not 0 <= offsets[0] <= offsets[1] <= size - start
        or info.get("dtype") != "U8"
        or info.get("shape") != [offsets[1] - offsets[0]]
    ):
        raise _wrong(
            path, f"expected a U8 tensor of one dimension inside the file for {key!r}, found {reprlib.repr(info)}"
        )
    length = offsets[1] - offsets[0]
    if length > most:
        raise CallError(
            "RESOURCE_EXHAUSTED",
            f"{shown_path(path)}: expected a module of at most {most} bytes (`module_bytes`), found {length}",
        )
    file.seek(start + offsets[0])
    return key, contents_of(file, length)


def _header(path: str, file: BinaryIO) -> tuple[dict[str, Any], int, int]:
    """The header, the offset of the elements, and the size of the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise _wrong(path, "expected a .wasm or a .safetensors file, found neither")
    if length > _MOST_HEADER:
        raise CallError(
            "RESOURCE_EXHAUSTED",
            f"{shown_path(path)}: expected a header of at most {_MOST_HEADER} bytes, found {length}",
        )
    text = file.read(length)
    # Each takes many times as much memory as text.
    memory = 704 * text.count(b"{") + 160 * text.count(b"[") + 64 * text.count(b",") + 90 * text.count(b'"')
    if not text.isascii() or b"\\u" in text:
        # One such character makes all of its string take four bytes for each, in the text and in a
        # name. Twice that, so that the largest header takes no more than the estimate of others.
        memory += 16 * length
    if memory > _MOST_MEMORY:
        message = f"{shown_path(path)}: expected a header whose values take at most {_MOST_MEMORY} bytes of memory, found more"
        raise CallError("RESOURCE_EXHAUSTED", message, blame="caller")
    try:
        header = _json.loads(text)
    except ValueError as error:
        raise _wrong(path, f"header of the .safetensors file: {error!s:.200}") from None
    if not isinstance(header, dict):
        raise _wrong(path, "header of the .safetensors file: expected an object")
    return header, 8 + length, size


def _most(host: Host) -> int:
    return int(host.policy["limits"]["module_bytes"])


@functools.cache
def default_host() -> Host:
    """A host with the default policy, for the process."""
    return Host()


def _wrong(path: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError("INVALID_ARGUMENT", f"{shown_path(path)}: {message}", blame="caller")
