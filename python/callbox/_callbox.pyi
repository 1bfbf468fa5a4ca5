"""The extension: hosts, modules and targets, and the handlers that XLA calls."""

from collections.abc import Iterator, Mapping, Sequence
from inspect import Signature
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, Protocol, Self, TypeAlias, final

from ._errors import CallError as CallError
from ._errors import InvalidArgumentError as InvalidArgumentError

__all__ = [
    "FFI_TARGET",
    "FFI_TARGET_COMMAND_BUFFER",
    "Attribute",
    "Budget",
    "Buffer",
    "CallError",
    "Contents",
    "Host",
    "InvalidArgumentError",
    "Module",
    "Recording",
    "StaticInfo",
    "Target",
    "__version__",
    "check_locked",
    "error_name",
    "ffi_capsules",
    "find_failure",
    "is_reference",
    "last_failure",
    "loaded_module",
    "names_of_file",
    "record",
    "set_trace_annotation",
    "shown_path",
    "target_stats",
]

__version__: Final[str]

FFI_TARGET: Final[str]
"""The name of the FFI target by which XLA programs call every target of callbox."""

FFI_TARGET_COMMAND_BUFFER: Final[str]
"""The name of the FFI target for kernels that XLA may record into a command buffer.

These are the targets with the trait ``command_buffer_compatible``, on a GPU. A command buffer is a
CUDA graph.
"""

class _HasShapeAndDtype(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...

_Shape: TypeAlias = _HasShapeAndDtype | tuple[Any, tuple[int, ...]]
_Array: TypeAlias = Any

@final
class Contents:
    """The bytes of a module, read from an open file: `Host._load_contents` takes them."""

    def __init__(self) -> None: ...
    def add(self, piece: bytes) -> None:
        """Adds bytes. MemoryError if there is no memory for them."""
    def sha256(self) -> str:
        """The SHA-256 digest, in hexadecimal."""

@final
class Budget:
    """The time that several calls may take together, as the ``deadline`` of each of them."""

    def __new__(cls, seconds: float, within: Budget | None = None) -> Budget: ...

@final
class Host:
    """Loads WebAssembly modules under a policy. A process usually needs one host.

    Args:
        policy: The limits and grants of guests, in the fields of callbox's JSON policy: a mapping
            or JSON text. The defaults suit untrusted kernels: no grants, 1 GiB of memory, 10
            seconds for a call.
        traps: How memory accesses out of bounds are caught. "explicit" (the default): by compiled
            checks. "signals": by signal handlers, which is faster for kernels with random memory
            accesses. Calling `faulthandler.enable()` after the first call replaces these handlers,
            so that the next access out of bounds ends the process.
        isolation: Which calls share an instance. "executable" (the default): the calls of one
            target with the same shapes and options, and with the same attributes if the target has
            stages or static information. "fresh": none.
        cache_dir: A directory for compiled modules, with mode 0700 and owned by the user. It is
            created if missing.
        trust: The rules about signatures, as a mapping or JSON text: see `callbox sign`. A module
            that is not signed as a rule for its name asks is not loaded.
        idle_seconds: How long a call site keeps the memory of its arrays after its last call. The
            next call takes new memory. None: as long as the module is loaded.
        idle_bytes: The memory that idle call sites may keep for longer, those with the latest calls
            first.

    Raises:
        ValueError: The policy has an unknown field or an invalid value.
        TypeError: The policy is neither a mapping nor JSON text of an object.
        CallError: The machine cannot provide what the limits ask for.
    """

    def __new__(
        cls,
        *,
        policy: Mapping[str, Any] | str | bytes | None = None,
        traps: Literal["explicit", "signals"] | None = None,
        isolation: Literal["executable", "fresh"] | None = None,
        cache_dir: str | PathLike[str] | None = None,
        trust: Mapping[str, Any] | str | bytes | None = None,
        idle_seconds: float | None = ...,
        idle_bytes: int = ...,
    ) -> Host: ...
    @property
    def policy(self) -> dict[str, Any]:
        """The policy of the guests: all fields of callbox's JSON policy."""

    def load(
        self,
        source: str | PathLike[str] | bytes,
        *,
        native: str | PathLike[str] | bool | None = None,
        allow_native: str | Sequence[str] | None = None,
        name: str | Sequence[str] | None = None,
        bundle: bytes | None = None,
    ) -> Module:
        """Loads a module: checks it against the limits and the ABI, reads its metadata and compiles
        it.

        No guest code runs.

        Args:
            source: The path of a .wasm file, or its bytes.
            native: The manifest `callbox.json` of CUDA kernels for targets of the same names, for
                programs that run on a GPU. PTX is verified for each call and runs with a fence,
                within the limits of the policy's ``gpu``. True: the native twin that the package
                itself carries, which a rule of `trust` with ``"native": true`` grants.
            allow_native: The SHA-256 digests, in hexadecimal, of the manifests that you vouch for.
                Their kernels run without a fence and can read and write all memory of the process:
                one that is wrong is undefined behaviour, as in any native extension. Cubins,
                fatbins and CUDA sources need it. `callbox inspect callbox.json` prints the digest,
                and the error for a missing digest names it.
            name: The name that the rules of `trust` are for, or several. None: the path of the
                file, as given and with links resolved, or nothing for bytes.
            bundle: The bundle of signatures of the OpenSSF model-signing format, for the rules of
                `trust`. None: the file beside the module, with ``.sig`` at the end of its name.

        Returns:
            The module, with its targets as attributes.

        Raises:
            FileNotFoundError: The file does not exist.
            OSError: The path is not a regular file, or cannot be read.
            MemoryError: The process lacks memory, or address space under a limit, for the file.
            ValueError: The module has no targets.
            CallError: The module is invalid. PERMISSION_DENIED if it imports functions that are not
                granted, if native code is not allowed, or if a rule of `trust` asks for another
                signature.
        """

    def _load_reference(
        self,
        reference: str,
        digest: str | None,
        lock: str | PathLike[str] | None,
        offline: bool,
        native: str | PathLike[str] | bool | None,
        allow_native: str | Sequence[str] | None,
    ) -> Module: ...
    def _load_contents(
        self,
        contents: Contents,
        *,
        name: str | Sequence[str],
        bundle: bytes | None,
        native: str | PathLike[str] | bool | None,
        allow_native: str | Sequence[str] | None,
    ) -> Module: ...
    def _takes_bundles(self, name: str | Sequence[str]) -> bool: ...
    def stats(self) -> dict[str, Any]:
        """Counts calls: ``calls``, ``bytes_in``, ``bytes_out``, and ``failures`` by status code.

        If several hosts have the same policy and load the same file, calls of compiled programs
        count for the host that the program was traced with first.
        """

    def take_logs(self) -> list[dict[str, str]]:
        """Takes the log messages of guests since the last time: dicts of ``level`` and ``message``.

        Oldest first. The host keeps the newest 1,024 messages that the policy grants.
        """

@final
class Module:
    """A loaded module. Its targets are attributes, ``module.add_n``, and items,
    ``module["add_n"]``.

    Items also work for names that are not Python identifiers. Modules of the same file, policy and
    native code are equal.
    """

    @property
    def digest(self) -> str:
        """The SHA-256 digest of the file, in hexadecimal."""

    @property
    def key(self) -> str:
        """The key of the module in programs: a digest of file, policy and native code, in
        hexadecimal.
        """

    @property
    def compiled_in(self) -> str:
        """Where the module was compiled.

        ``"process"`` for a process of its own, ``"this_process"``, or ``"cache"`` if it was not.
        """

    @property
    def native(self) -> str | None:
        """The digest of the manifest of the CUDA kernels, if there is one."""

    @property
    def targets(self) -> Mapping[str, Target]:
        """The targets by name."""

    def register(self) -> None:
        """Makes the module available to programs that were exported or cached by another process.

        They find it by its key. The module stays until the process ends. Programs that this process
        traces register their modules themselves.
        """

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""

    def close(self) -> None:
        """Frees the module's code, its call sites and their memory, and has programs forget it.

        Later calls fail with FAILED_PRECONDITION, also those of programs that were traced with it,
        until the same file is loaded again under the same policy. Calls that run now end as usual.
        Closing a module twice does nothing. ``with host.load(...) as module`` closes it at the end.
        """

    def __enter__(self) -> Module: ...
    def __exit__(self, *_error: object) -> None: ...
    def to_bytes(self) -> bytes:
        """The bytes of the file."""

    @property
    def policy(self) -> dict[str, Any]:
        """The policy of the module's host, as `Host.policy`."""

    def __getattr__(self, name: str) -> Target: ...
    def __getitem__(self, name: str, /) -> Target: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __dir__(self) -> list[str]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __copy__(self) -> Module: ...
    def __deepcopy__(self, memo: Any, /) -> Module: ...

@final
class Target:
    """A target: a function on arrays, which runs in the sandbox."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def module(self) -> Module:
        """The module of the target."""

    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    @property
    def __signature__(self) -> Signature: ...
    @property
    def operands(self) -> tuple[Buffer, ...] | None:
        """The declared operands. None: undeclared."""

    @property
    def results(self) -> tuple[Buffer, ...] | None:
        """The declared results. None: undeclared."""

    @property
    def attributes(self) -> tuple[Attribute, ...] | None:
        """The declared attributes. None: undeclared."""

    @property
    def traits(self) -> tuple[str, ...]:
        """The traits, such as ``"pure"``."""

    @property
    def api_versions(self) -> tuple[str, ...]:
        """The calling conventions, by their names in HLO text: ``"API_VERSION_TYPED_FFI"``."""

    @property
    def vjp(self) -> Target | None:
        """The target of the module that is declared to compute the reverse-mode derivatives.

        None: there is none.
        """
    @property
    def jvp(self) -> Target | None:
        """The target of the module that is declared to compute the forward-mode derivatives.

        None: there is none.
        """
    @property
    def has_native(self) -> bool:
        """Whether the module has a CUDA kernel of the same name."""
    def _count_shadow(self, differs: bool) -> None: ...
    @property
    def native_traits(self) -> tuple[str, ...]:
        """The traits of the CUDA kernel, such as ``"command_buffer_compatible"``."""

    def __copy__(self) -> Target: ...
    def __deepcopy__(self, memo: Any, /) -> Target: ...
    def __call__(
        self,
        *arrays: _Array,
        out: Any = None,
        result_shape_dtypes: _Shape | Sequence[_Shape] | None = None,
        deadline: float | Budget | None = None,
        threads: int | None = None,
        attributes: Mapping[str, Any] | None = None,
        opaque: bytes | None = None,
        static_info: bytes | StaticInfo | None = None,
        api_version: str | None = None,
        platform: str = "Host",
        **attrs: Any,
    ) -> Any:
        """Calls the target, without the GIL.

        Args:
            *arrays: The operands: NumPy arrays, objects with a buffer, tensors with `__dlpack__`,
                or objects that NumPy can convert. Each is copied once, into the guest.
            out: An array or a tensor, or a tuple of them, for the results, writable and contiguous
                in row-major order. It may be an operand. For None, or None in the tuple, arrays are allocated.
                If any array is given, all arrays go into the guest as a whole and must fit into its
                memory, so that `out` is unchanged if the call fails. Otherwise those of elementwise
                targets and of targets with rows go in pieces, on several threads.
            result_shape_dtypes: One object or a sequence of objects with the ``shape`` and
                ``dtype`` of the results, or pairs ``(dtype, shape)``. None: as the metadata says.
            deadline: The time limit of the call, in seconds, instead of the policy's. None: the
                policy's.
            threads: The most threads that share the call if it is large and the target is
                elementwise or has rows. None: the policy's limit.
            attributes: Attributes whose names are those of other arguments.
            opaque: The opaque bytes, for a target of XLA's older conventions.
            static_info: The static information, for a target of the JAX FFI proposal's convention:
                bytes or a `StaticInfo`.
            api_version: The convention, for a target that has several.
            platform: "Host", or "CUDA" for the native kernel of the same name, to which arrays are
                copied.
            **attrs: The attributes. Python's numbers take the declared type.

        Returns:
            The result, or a tuple of results.

        Raises:
            TypeError: A wrong dtype, number of operands, attribute, or type of an attribute.
            ValueError: A wrong rank or size.
            BufferError: An `out` that is read-only or not contiguous.
            CallError: The call failed. `out` is unchanged.
            KeyboardInterrupt: Ctrl-C cancelled the call, on the main thread. `out` is unchanged.
        """

    def infer(self, operands: Sequence[_Shape], *, bounded: bool = False) -> list[tuple[str, tuple[int, ...]]]:
        """Infers the dtypes and shapes of the results from those of the operands.

        Args:
            operands: Pairs of dtype and shape, or objects with ``dtype`` and ``shape``.
            bounded: Whether results that are larger than those of a direct call may be are an
                error.

        Returns:
            Pairs of dtype, by its NumPy name, and shape.

        Raises:
            TypeError: A wrong number or dtype of operands.
            ValueError: The metadata does not determine them, or the operands do not match it.
            CallError: RESOURCE_EXHAUSTED for results that are too large.
        """

    def xla_attributes(
        self,
        operands: Sequence[_Shape],
        results: Sequence[_Shape],
        attrs: dict[str, Any],
        *,
        declared: bool = False,
        on_error: str = "raise",
        deadline: float | None = None,
        threads: int | None = None,
        aliases: dict[int, int] | None = None,
        opaque: bytes | None = None,
        static_info: bytes | StaticInfo | None = None,
        api_version: str | None = None,
    ) -> dict[str, str]:
        """Makes the attributes of an XLA FFI call of `FFI_TARGET`, which name the target and its
        call site.

        The whole call site is checked.

        Args:
            operands: The operands of one call, without a batch: pairs of dtype and shape, or
                objects with ``dtype`` and ``shape``.
            results: The results likewise, without the status.
            attrs: The target's attributes.
            declared: Whether the results are those that the module declares, with sizes that are
                checked when the call runs.
            on_error: "raise", or "status" for one more result, int32.
            deadline: The time limit of XLA's call in seconds, for all elements of a batch together.
                It replaces the policy's.
            threads: The most threads that share the call. None: the policy's limit.
            aliases: Operand numbers to result numbers, as in `jax.ffi.ffi_call`.
            opaque: As in a direct call.
            static_info: As in a direct call.
            api_version: As in a direct call.

        Raises:
            TypeError: As in a direct call.
            ValueError: As in a direct call.
        """

@final
class Buffer:
    """The declaration of an operand or result."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The accepted dtypes, by their NumPy names. Empty: any."""

    @property
    def rank(self) -> int | None:
        """The number of dimensions. None: any."""

    @property
    def dimensions(self) -> tuple[int | str, ...] | None:
        """The dimensions: sizes, symbols, and ``".."`` for any number of dimensions. None:
        undeclared.
        """

    @property
    def optional(self) -> bool:
        """Whether it can be omitted, together with all that follow."""

@final
class Attribute:
    """The declaration of an attribute."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def kind(self) -> str:
        """The kind: ``"scalar"``, ``"array"``, ``"string"``, ``"dictionary"`` or ``"function"``."""

    @property
    def dtype(self) -> str | None:
        """The dtype of a scalar or array, by its NumPy name."""

    @property
    def fields(self) -> tuple[Attribute, ...] | None:
        """The fields of a dictionary. None: any."""

    @property
    def variants(self) -> dict[str, int] | None:
        """The numbers of an enum's variants by name. None: no enum is declared."""

    @property
    def optional(self) -> bool:
        """Whether it can be omitted."""

@final
class StaticInfo:
    """Static information that a guest makes itself, for the JAX FFI proposal's convention.

    The target gets it by reference. Plain bytes are static information by value.
    """

    @staticmethod
    def reference(constructor: str, destructor: str, argument: bytes) -> StaticInfo:
        """The object that the export `constructor` makes of `argument` in each instance.

        `constructor` is ``(data, size) -> object``; the export `destructor` frees the object.
        """

def set_trace_annotation(class_: Any, /) -> None:
    """Has loads, compilations and direct calls appear in the traces of this class from now on."""

def ffi_capsules() -> dict[str, Any]:
    """The handlers, in capsules for `jax.ffi.register_ffi_target`.

    Their names are ``"cpu"``, ``"cuda"`` and ``"cuda_command_buffer"``.
    """

def error_name(code: int) -> str:
    """The name of a status code: ``"OUT_OF_RANGE"`` of 11."""

def last_failure(code: int) -> CallError | None:
    """This process's last failure with this code under ``on_error="status"``."""

def find_failure(text: str) -> CallError | None:
    """The last failure of a call in a program whose code and message are in the text."""

def target_stats() -> list[dict[str, Any]]:
    """The counters of every target that the hosts of this process have called."""

def check_locked(lock: str | PathLike[str], file: str | PathLike[str], tensor: str | None, contents: Contents) -> None:
    """Checks that a lock has a file with these contents."""

def is_reference(text: str) -> bool:
    """Whether a text is a reference of a host, and not the path of a file."""

def names_of_file(path: str | PathLike[str]) -> list[str]:
    """The names of a file for rules about signatures: as asked for, and with links resolved."""

def shown_path(path: str | PathLike[str]) -> str:
    """A path in a message, without characters that control a terminal."""

def loaded_module(key: str) -> Module | None:
    """The module with this key, if this process has loaded it."""

@final
class Recording:
    """Calls that are recorded until `close`, or the end of a `with` block."""

    @property
    def capsules(self) -> list[Path]:
        """The paths of the capsules that this process wrote."""

    def close(self) -> None:
        """Ends the recording. Calls that run now may still be recorded."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_error: object) -> None: ...

def record(folder: str | PathLike[str], *, every: int | None = None) -> Recording:
    """Writes each call of a target on Host that fails to a file in a folder.

    The file, a capsule, has the module, the operands, the attributes, the policy and how the call
    ended. `callbox replay` of the command line repeats the call. A line on standard error says what
    a capsule holds before it is written. Calls on batches (`vmap`), on CUDA, and with directories,
    clocks or random bytes are not recorded. A recording writes at most 100 files, and has each call
    copy its operands.

    Args:
        folder: The folder, which is made if it does not exist.
        every: Also records each call with a number that this divides, whether it fails or not.

    Returns:
        The recording, which `close` or the end of a `with` block ends.

    Raises:
        ValueError: `every` is 0.
        OSError: The folder cannot be made.
        RuntimeError: Calls are recorded already.
    """
