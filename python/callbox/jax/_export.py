"""`jax.export` of programs that call targets, and files that have the modules with the program."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callbox import _json
from callbox._callbox import FFI_TARGET, FFI_TARGET_COMMAND_BUFFER, CallError, Host, Module, loaded_module
from callbox._files import contents_of

if TYPE_CHECKING:
    import jax.export

#: The first bytes of a bundle. The number grows if the format changes.
_MAGIC = b"callbox bundle 1\n"

#: The length of the header's length, which is little-endian.
_LENGTH = 8

#: The longest header.
_MOST_HEADER = 1 << 20

#: The attribute of a call that names its module.
_KEY = re.compile(r'\bmodule = "([0-9a-f]{64})"')


def export_checks() -> list[jax.export.DisabledSafetyCheck]:
    """The safety checks that `jax.export` must disable for a program that calls targets.

    An exported program names each module by its key, the digest of its file, policy and native
    code. A process that runs the program imports `callbox.jax`, loads the same file into a host
    with the same policy, and calls the module's `register()`; otherwise the program fails with
    NOT_FOUND. The same holds for programs from JAX's persistent compilation cache. `export` makes a
    program with its modules.

    Example: ``jax.export.export(jax.jit(f),
    disabled_checks=callbox.jax.export_checks())(x).serialize()``.
    """
    # jax.export needs packages that JAX 0.5 does not install.
    import jax.export

    return [jax.export.DisabledSafetyCheck.custom_call(name) for name in (FFI_TARGET, FFI_TARGET_COMMAND_BUFFER)]


@dataclasses.dataclass(frozen=True)
class Exported:
    """An exported program with its modules."""

    #: JAX's part, which calls the modules by their keys.
    program: jax.export.Exported
    #: The modules, registered in this process.
    modules: tuple[Module, ...]
    _is_bundle: bool

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the program, as `jax.export.Exported.call` does."""
        return self.program.call(*args, **kwargs)

    def serialize(self, *, vjp_order: int = 0) -> bytearray | bytes:
        """The program as bytes.

        A bundle, for `deserialize`, has the files of the modules. Without them, these are the bytes
        of `jax.export.Exported.serialize`.

        Args:
            vjp_order: As in `jax.export.Exported.serialize`.
        """
        program = self.program.serialize(vjp_order=vjp_order)
        if not self._is_bundle:
            return program
        files = [module.to_bytes() for module in self.modules]
        modules = [
            {"name": _name(module), "key": module.key, "policy": module.policy, "length": len(file)}
            for module, file in zip(self.modules, files, strict=True)
        ]
        header = json.dumps({"program": len(program), "modules": modules}, sort_keys=True).encode()
        return b"".join([_MAGIC, len(header).to_bytes(_LENGTH, "little"), header, program, *files])


def export(function: Any, *, bundle: bool = False, **options: Any) -> Callable[..., Exported]:
    """Makes a function that exports a program, as `jax.export.export` does.

    Args:
        function: A function of `jax.jit`.
        bundle: Whether the serialized program has the modules that it calls, so that a process that
            runs it needs no other file. Modules with native code cannot be bundled.
        **options: Those of `jax.export.export`, such as ``platforms``.

    The function that is returned raises CallError with FAILED_PRECONDITION if a module of the
    bundle was closed.

    Example: ``callbox.jax.export(jax.jit(f), bundle=True)(x).serialize()``.
    """
    import jax.export

    checks = [*export_checks(), *options.pop("disabled_checks", ())]
    exporter = jax.export.export(function, disabled_checks=checks, **options)

    def exported(*args: Any, **kwargs: Any) -> Exported:
        program = exporter(*args, **kwargs)
        keys = dict.fromkeys(_KEY.findall(program.mlir_module()))
        found = {key: loaded_module(key) for key in keys}
        closed = [key for key, module in found.items() if module is None]
        if bundle and closed:
            raise CallError(
                "FAILED_PRECONDITION",
                f"the program's module, of the key {closed[0]!r}, is closed and cannot be bundled: load the same file "
                "again with the same policy",
                blame="caller",
            )
        modules = tuple(module for module in found.values() if module is not None)
        native = next((module for module in modules if module.native is not None), None)
        if bundle and native is not None:
            raise ValueError(f"expected modules without native code in a bundle, found {native!r}")
        return Exported(program, modules, bundle)

    return exported


def deserialize(
    data: bytes | bytearray, *, host: Host | None = None, name: str | Sequence[str] | None = None
) -> Exported:
    """Reads a program that `Exported.serialize` wrote, and loads its modules.

    The modules are untrusted and run under the policy of `host`. The program itself is JAX's, which
    makes no promise for programs from untrusted sources.

    Args:
        data: A bundle, or the bytes of a program without modules.
        host: The host that loads the modules. Its policy must be the one under which the program
            was exported. Default: a new host with the default policy.
        name: The name of the bundle for the rules of the host's ``trust``, or several, such as the
            path of its file. A module has each name, and also ``NAME#MODULE`` with the name that
            the bundle gives it, which can only add rules. Default: only rules for every name hold.

    Raises:
        ValueError: The bytes are not a bundle.
        CallError: A module is refused. PERMISSION_DENIED if it is not signed as a rule asks.
            FAILED_PRECONDITION if the host's policy is not the one of the bundle, or a module is
            not the one that the program calls.
    """
    import jax.export

    data = bytes(data)
    if not data.startswith(_MAGIC):
        return Exported(jax.export.deserialize(bytearray(data)), (), False)
    program, files = _parts(data)
    host = Host() if host is None else host
    names = [name] if isinstance(name, str) else list(name or ())
    # One at a time: the host takes what it reads, and the bundle is in memory already.
    modules = tuple(_load(host, names, described, data, at) for described, at in files)
    exported = jax.export.deserialize(bytearray(program))
    # Last: XLA keeps what is registered, and the modules with it.
    for module in modules:
        module.register()
    return Exported(exported, modules, True)


def _load(host: Host, names: Sequence[str], described: Mapping[str, Any], data: bytes, at: int) -> Module:
    name = _shown(described["name"])
    known_as = [*names, *(f"{bundle}#{described['name']}" for bundle in names)]
    policy = host.policy
    if described["policy"] != policy:
        keys = sorted({*policy, *described["policy"]})
        different = [_shown(key) for key in keys if policy.get(key) != described["policy"].get(key)]
        raise CallError(
            "FAILED_PRECONDITION",
            f"the program was exported under another policy, which differs in {', '.join(different[:16])}: "
            "pass host=callbox.Host(policy=...) with the same one, if you grant what it grants",
            blame="caller",
            module=name,
        )
    stream = io.BytesIO(data)
    stream.seek(at)
    contents = contents_of(stream, described["length"])
    module = host._load_contents(contents, name=known_as, bundle=None, native=None, allow_native=None)
    if module.key != described["key"]:
        raise CallError(
            "FAILED_PRECONDITION",
            f"expected a module of the key {_shown(described['key'])}, found {module.key}: the bundle was changed",
            blame="caller",
            module=name,
        )
    return module


def _parts(data: bytes) -> tuple[bytes, list[tuple[dict[str, Any], int]]]:
    """The program of a bundle, and its modules with their offsets.

    Raises:
        ValueError: The bytes are not a bundle.
    """
    begin = len(_MAGIC) + _LENGTH
    length = int.from_bytes(data[len(_MAGIC) : begin], "little")
    if length > min(_MOST_HEADER, max(len(data) - begin, 0)):
        raise ValueError(f"expected a bundle with a header of {length} bytes, found {len(data)} bytes in all")
    try:
        header = _json.loads(data[begin : begin + length])
        described = [_described(each) for each in header["modules"]]
        lengths = [_length(header["program"]), *(each["length"] for each in described)]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"expected the header of a bundle, found {type(error).__name__}: {error}") from error
    if begin + length + sum(lengths) != len(data):
        raise ValueError(f"expected a bundle of {begin + length + sum(lengths)} bytes, found {len(data)}")
    ends = list(itertools.accumulate(lengths, initial=begin + length))
    return data[ends[0] : ends[1]], list(zip(described, ends[1:-1], strict=True))


def _described(given: Any) -> dict[str, Any]:
    kinds: Sequence[tuple[str, type]] = (("name", str), ("key", str), ("policy", dict))
    for name, kind in kinds:
        if not isinstance(given[name], kind):
            raise TypeError(f"{name} is a {type(given[name]).__name__}")
    given["name"].encode()  # JSON can escape one half of a character.
    return {**{name: given[name] for name, _ in kinds}, "length": _length(given["length"])}


def _length(given: Any) -> int:
    if type(given) is not int or given < 0:
        raise TypeError(f"a length is {_shown(repr(given))}")
    return given


def _shown(text: str) -> str:
    """A text of a bundle for a message: short, and quoted if it could control a terminal."""
    short = text if len(text) <= 80 else f"{text[:80]}..."
    return short if short.isprintable() else ascii(short)


def _name(module: Module) -> str:
    """The name of the module's file, as in messages."""
    name: str = module.__reduce__()[1][2]  # type: ignore[index]
    return name
