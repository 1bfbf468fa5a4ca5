"""Kernels from the Hugging Face Hub, by name, without code of their authors outside the sandbox.

A repository of kernels has the variant ``build/callbox-wasm32``, which ``callbox pack --hub``
writes: a WebAssembly module, its native twin, and a ``metadata.json`` with the digest of each:

    kernel = callbox.hub.get_kernel("org/rms-norm", version=1)
    kernel.rms_norm(x, weight, eps=1e-5)

No Python of the repository runs, so that nothing asks for ``trust_remote_code``. The module runs
under the policy of a host, as any other. This module needs ``huggingface_hub``: ``pip install
'callbox[hub]'``. ``HF_ENDPOINT``, ``HF_HOME``, ``HF_TOKEN``, ``HF_HUB_OFFLINE`` and proxies have
the meaning that they have there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, final

from callbox._callbox import CallError, Host, InvalidArgumentError, Module, Target
from callbox._embedded import MOST_BUNDLE, check_digest, default_host
from callbox._errors import retold

from . import _lock
from ._cache import Cache, digest
from ._client import Client, check_repo_id, is_commit
from ._layout import METADATA, MOST_METADATA, VARIANT, File, Metadata, parse, quoted

__all__ = ["Kernel", "get_kernel", "lock"]

#: The targets that the `repr` of a kernel lists.
_MOST_SHOWN = 16


@final
class Kernel:
    """A kernel of the Hub. Its targets are attributes, ``kernel.rms_norm``, and items.

    Attributes:
        module: The loaded module.
        repo_id: The repository, ``"org/name"``.
        commit: The commit that was loaded.
        digest: SHA-256 of ``metadata.json``, which covers every file of the kernel.
        name: The name of the package, by its author.
        version: The version, by its author.
        license: The licence, by its author.
        derivatives: The target that computes the derivative (vjp) of each target that has one.
    """

    def __init__(self, module: Module, repo_id: str, commit: str, sha256: str, metadata: Metadata) -> None:
        self.module = module
        self.repo_id = repo_id
        self.commit = commit
        self.digest = sha256
        self.name = metadata.name
        self.version = metadata.version
        self.license = metadata.license
        self.derivatives = dict(metadata.derivatives)

    def op(self, name: str, **options: Any) -> Callable[..., Any]:
        """The target as an op for JAX, with its derivative: `callbox.jax.op` takes the options."""
        import callbox.jax

        if name in self.derivatives and "jvp" not in options:
            options.setdefault("vjp", self.module[self.derivatives[name]])
        return callbox.jax.op(self.module[name], **options)

    def __getattr__(self, name: str) -> Target:
        # Copies and pickles ask before `module` is there.
        if name.startswith("__") or name == "module":
            raise AttributeError(name)
        target: Target = getattr(self.module, name)
        return target

    def __getitem__(self, name: str) -> Target:
        return self.module[name]

    def __contains__(self, name: object) -> bool:
        return name in self.module

    def __iter__(self) -> Iterator[str]:
        return iter(self.module)

    def __len__(self) -> int:
        return len(self.module)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.module.targets})

    def __repr__(self) -> str:
        names = list(self.module)
        more = ", ..." if len(names) > _MOST_SHOWN else ""
        return f"<callbox.hub.Kernel {self.repo_id} {self.version} with {', '.join(names[:_MOST_SHOWN])}{more}>"


def get_kernel(
    repo_id: str,
    *,
    version: int | None = None,
    revision: str | None = None,
    digest: str | None = None,
    lock: str | PathLike[str] | None = None,
    host: Host | None = None,
    native: bool = False,
    allow_native: str | Sequence[str] | None = None,
    repo_type: Literal["kernel", "model"] = "kernel",
    endpoint: str | None = None,
    token: bool | str | None = None,
    local_files_only: bool = False,
    cache_dir: str | PathLike[str] | None = None,
) -> Kernel:
    """Downloads a kernel, checks it and loads it. None of its code runs.

    Args:
        repo_id: The repository, ``"org/name"``.
        version: The major version: the branch ``v1`` of 1. Either `version` or `revision` is given.
        revision: A branch, tag or commit.
        digest: The SHA-256 of ``metadata.json``, which covers every file. Another one is refused.
        lock: The ``callbox.lock`` that must have the kernel, as `lock` writes it. The commit in it
            is loaded, wherever the branch is now.
        host: The host that loads the module. None: one with the default policy.
        native: Whether to load the native twin too, for ``platform="CUDA"``.
        allow_native: As of `Host.load`.
        repo_type: The kind of the repository on the Hub.
        endpoint: The address of the Hub. None: ``HF_ENDPOINT``, or https://huggingface.co.
        token: As of `huggingface_hub.hf_hub_download`. It is sent to the endpoint and to Hugging
            Face's own hosts.
        local_files_only: Whether to use only what was downloaded before.
        cache_dir: A folder for downloads. None: ``callbox`` in ``HF_HOME``.

    Raises:
        ImportError: `huggingface_hub` is not installed.
        CallError: NOT_FOUND if there is no such kernel. PERMISSION_DENIED if the digest or the lock
            has another one. DATA_LOSS if the hub sends other bytes than the metadata says.
            UNAVAILABLE without a connection. INVALID_ARGUMENT, RESOURCE_EXHAUSTED and others for
            what `Host.load` refuses, too.
    """
    if digest is not None:
        check_digest(digest)
    source = _Source(Client(endpoint, token, repo_type, local_files_only), cache_dir, repo_id, version, revision)
    locked = None if lock is None else _lock.find(lock, source.reference)
    if locked is None:
        variant = source.variant(source.commit(), digest)
    else:
        variant = source.variant(locked.commit, locked.digest, f"{lock} has")
        if digest is not None and digest != locked.digest:
            raise _denied(f"{repo_id}: expected the digest {digest}, {lock} has {locked.digest}")
    metadata = variant.metadata
    if native and metadata.manifest is None:
        raise CallError("NOT_FOUND", f"{repo_id}: the kernel has no native twin", blame="caller")
    module = _load(variant, host or default_host(), native, allow_native)
    for names in metadata.derivatives.items():
        for name in names:
            if name not in module:
                raise CallError(
                    "INVALID_ARGUMENT", f"{repo_id}: `derivatives` names {quoted(name)}, which is not a target"
                )
    return Kernel(module, repo_id, variant.commit, variant.sha256, metadata)


def lock(
    kernels: Mapping[str, int | str],
    path: str | PathLike[str] = "callbox.lock",
    *,
    repo_type: Literal["kernel", "model"] = "kernel",
    endpoint: str | None = None,
    token: bool | str | None = None,
    cache_dir: str | PathLike[str] | None = None,
) -> dict[str, str]:
    """Writes down the commits and digests of kernels, beside what the lock has.

    Every file of the kernels is downloaded and checked.

    Args:
        kernels: The version (a number) or the revision (text) of each repository.
        path: The lock, which is made if it does not exist.
        repo_type: As of `get_kernel`.
        endpoint: As of `get_kernel`.
        token: As of `get_kernel`.
        cache_dir: As of `get_kernel`.

    Returns:
        The digest of each kernel, by the name that it has in the lock.
    """
    if not isinstance(kernels, Mapping):
        raise TypeError(f"expected a mapping from repositories to versions, found {type(kernels).__name__}")
    entries = {}
    for repo_id, wanted in kernels.items():
        version, revision = (None, wanted) if isinstance(wanted, str) else (wanted, None)
        source = _Source(Client(endpoint, token, repo_type, False), cache_dir, repo_id, version, revision)
        variant = source.variant(source.commit())
        for file in variant.metadata.files:
            variant.read(file)
        entries[source.reference] = {
            "file": source.reference,
            "digest": variant.sha256,
            "size": variant.size,
            "name": variant.metadata.name,
            "version": variant.metadata.version,
            "commit": variant.commit,
        }
    _lock.add(path, entries)
    return {reference: str(entry["digest"]) for reference, entry in entries.items()}


class _Source:
    """A revision of a repository."""

    def __init__(
        self,
        client: Client,
        cache_dir: str | PathLike[str] | None,
        repo_id: str,
        version: int | None,
        revision: str | None,
    ) -> None:
        check_repo_id(repo_id)
        if (version is None) == (revision is None):
            raise _misused(f"{repo_id}: expected either version= or revision=")
        if version is not None and (type(version) is not int or version < 0):
            raise _misused(f"{repo_id}: expected a version of at least 0, found {version!r:.80}")
        if revision is not None and (not isinstance(revision, str) or not revision):
            raise _misused(f"{repo_id}: expected a branch, tag or commit as revision, found {revision!r:.80}")
        self.client = client
        self.cache = Cache(Path(cache_dir) if cache_dir is not None else Path(client.home) / "callbox")
        self.repo_id = repo_id
        self.version = version
        self.revision = f"v{version}" if revision is None else revision
        self.reference = f"hf:{repo_id}@{self.revision}"
        self._place = f"{client.endpoint} {client.repo_type} {repo_id}"

    def commit(self) -> str:
        """The commit of the revision: the hub's answer, or offline the last one."""
        if is_commit(self.revision):
            return self.revision
        if self.client.is_offline and (known := self.cache.note(f"{self._place} {self.revision}")):
            return known
        commit = self.client.commit(self.repo_id, self.revision, f"{VARIANT}/{METADATA}")
        self.cache.take_note(f"{self._place} {self.revision}", commit)
        return commit

    def variant(self, commit: str, wanted: str | None = None, who: str = "expected") -> _Variant:
        """The variant of a commit, with the digest that the caller wants."""
        key = f"{self._place} {commit}"
        known = self.cache.note(key)
        # What the hub once sent for the commit need not be what the caller wants.
        text = self.cache.file(known) if known is not None and wanted in (None, known) else None
        if text is None:
            path = f"{VARIANT}/{METADATA}"
            text = self.client.download(self.repo_id, commit, path, size=None, most=MOST_METADATA)
        found = digest(text)
        if wanted is not None and found != wanted:
            raise _denied(f"{self.repo_id}: {who} the digest {wanted}, found {found}")
        try:
            metadata = parse(text)
        except CallError as error:
            raise CallError(error.code, f"{self.repo_id}: {error.message}") from None
        major = metadata.version.split(".", 1)[0]
        if self.version is not None and major != str(self.version):
            raise CallError(
                "FAILED_PRECONDITION",
                f"{self.repo_id}: expected version {self.version} on the branch {self.revision}, "
                f"found {metadata.version}",
            )
        self.cache.keep(text)
        self.cache.take_note(key, found)
        return _Variant(self, commit, found, len(text), metadata)


class _Variant:
    """A variant whose metadata was checked."""

    def __init__(self, source: _Source, commit: str, sha256: str, size: int, metadata: Metadata) -> None:
        self.source = source
        self.commit = commit
        self.sha256 = sha256
        self.size = size
        self.metadata = metadata

    def read(self, file: File) -> bytes:
        """The bytes of a file, which have its digest."""
        source = self.source
        contents = source.cache.file(file.sha256)
        if contents is None:
            path = f"{VARIANT}/{file.path}"
            contents = source.client.download(
                source.repo_id, self.commit, path, size=file.size, most=file.size, sha256=file.sha256
            )
            if len(contents) != file.size or digest(contents) != file.sha256:
                raise CallError(
                    "DATA_LOSS",
                    f"{source.repo_id}: {path}: expected {file.size} bytes with SHA-256 {file.sha256}, found "
                    f"{len(contents)} with {digest(contents)}",
                    blame="host",
                )
            source.cache.keep(contents)
        return contents

    def bundle(self) -> bytes | None:
        """The bundle of signatures: beside the module, or that of the repository."""
        source = self.source
        for path in (f"{VARIANT}/{self.metadata.module.path}.sig", "model.sig"):
            key = f"{source._place} {self.commit} {path}"
            known = source.cache.note(key)
            contents = source.cache.file(known) if known is not None else None
            if contents is None and not source.client.is_offline:
                try:
                    contents = source.client.download(source.repo_id, self.commit, path, size=None, most=MOST_BUNDLE)
                except CallError as error:
                    if error.code != "NOT_FOUND":
                        raise
            if contents is not None:
                source.cache.keep(contents)
                source.cache.take_note(key, digest(contents))
                return contents
        return None


def _load(variant: _Variant, host: Host, native: bool, allow_native: str | Sequence[str] | None) -> Module:
    """Loads the module from a private copy of its files, which were checked."""
    metadata = variant.metadata
    with tempfile.TemporaryDirectory(prefix="callbox-") as folder:
        # Failures name the module by its file.
        module = Path(folder) / f"{variant.source.repo_id.replace('/', '--')}.wasm"
        module.write_bytes(variant.read(metadata.module))
        manifest = None
        if native and metadata.manifest is not None:
            manifest = Path(folder) / "twin" / metadata.manifest.path
            for file in metadata.files:
                if file != metadata.module:
                    path = Path(folder) / "twin" / file.path
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(variant.read(file))
        try:
            name = variant.source.reference
            bundle = variant.bundle() if host._takes_bundles(name) else None
            return host.load(module, native=manifest, allow_native=allow_native, name=name, bundle=bundle)
        except CallError as error:
            # The copy is gone when the message is read.
            message = error.message.replace(f"{folder}/", "")
            raise retold(error, message) from None


def _denied(message: str) -> CallError:
    return CallError("PERMISSION_DENIED", message, blame="caller")


def _misused(message: str) -> InvalidArgumentError:
    return InvalidArgumentError("INVALID_ARGUMENT", message, blame="caller")
