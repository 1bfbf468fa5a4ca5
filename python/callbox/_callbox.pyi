"""The extension: hosts, modules and targets, and the handlers that XLA calls."""

from collections.abc import Iterator, Mapping, Sequence
from inspect import Signature
from os import PathLike
from typing import Any, Final, Literal, Protocol, TypeAlias, final

from ._errors import CallError as CallError
from ._errors import InvalidArgumentError as InvalidArgumentError

__all__ = [
    "FFI_TARGET",
    "FFI_TARGET_COMMAND_BUFFER",
    "Attribute",
    "Buffer",
    "CallError",
    "Host",
    "InvalidArgumentError",
    "Module",
    "StaticInfo",
    "Target",
    "__version__",
    "error_name",
    "ffi_capsules",
    "last_failure",
]

__version__: Final[str]

FFI_TARGET: Final[str]
"""The name of the FFI target by which XLA programs call every target of callbox."""

FFI_TARGET_COMMAND_BUFFER: Final[str]
"""The same for targets that XLA may record into a command buffer (a CUDA graph) on a GPU: those of the trait
``command_buffer_compatible``."""

class _HasShapeAndDtype(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...

_Shape: TypeAlias = _HasShapeAndDtype | tuple[Any, tuple[int, ...]]
_Array: TypeAlias = Any

@final
class Host:
    """Loads modules, and says what their guests may take, do and reach. A process wants one.

    Args:
        policy: What guests may take, do and reach, with the fields of callbox's policy in JSON: a mapping, or JSON text. What is left
            out has its default, which suits untrusted kernels and grants nothing: 1 GiB of memory, 10 seconds for a call.
        traps: How guests that reach past their memory are caught: "explicit" (the default), by checks that the compiler puts into the
            guest; or "signals", which is faster for kernels that jump about in memory, and which `faulthandler.enable()`, called after
            the first call, turns into the end of the process.
        isolation: Whom an instance serves: "executable" (the default), the calls of one target with the same shapes and attributes; or
            "fresh", one call alone.
        cache_dir: A directory for compiled modules, of mode 0700 and the user's own. It is made if it is not there.

    Raises:
        ValueError: The policy has a field that is not known, or a value that does not fit.
        TypeError: The policy is no mapping and no text of one.
        CallError: The machine does not give what the limits ask for.
    """

    def __new__(
        cls,
        *,
        policy: Mapping[str, Any] | str | bytes | None = None,
        traps: Literal["explicit", "signals"] | None = None,
        isolation: Literal["executable", "fresh"] | None = None,
        cache_dir: str | PathLike[str] | None = None,
    ) -> Host: ...
    @property
    def policy(self) -> dict[str, Any]:
        """What guests may take, do and reach: all fields of callbox's policy in JSON."""

    def load(
        self,
        source: str | PathLike[str] | bytes,
        *,
        native: str | PathLike[str] | None = None,
        allow_native: str | Sequence[str] | None = None,
    ) -> Module:
        """Loads a module: checks it against the limits and the ABI, reads what it declares of its targets, and compiles it. Nothing of
        it runs.

        Args:
            source: The path of a .wasm file, or its bytes.
            native: The manifest `callbox.json` of CUDA kernels for targets of the same names, for programs that run on a GPU. They are
                native code, without a sandbox.
            allow_native: The SHA-256 digests, in hexadecimal, of the manifests that are trusted: `callbox inspect callbox.json` prints
                it, and so does the error without it.

        Returns:
            The module, with its targets as attributes.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The module has no targets.
            CallError: What is wrong with the module. PERMISSION_DENIED if it imports what is not granted, or native code is not.
        """

    def stats(self) -> dict[str, Any]:
        """How many calls there were, and how they went: ``calls``, ``bytes_in``, ``bytes_out``, and ``failures`` by the code's name.

        Programs know a module by its file and policy. Where several hosts of one policy have loaded one file, calls of programs are
        counted by the first of them that a program was traced with.
        """

    def take_logs(self) -> list[dict[str, str]]:
        """The guests' log messages that the policy grants, since the last time: ``level`` and ``message``, oldest first. The newest
        1,024 are kept."""

@final
class Module:
    """A loaded module. Its targets are attributes, ``module.add_n``, and items, ``module["add_n"]``, for names that Python has no
    attributes for.

    Modules of the same file, policy and native code are equal.
    """

    @property
    def digest(self) -> str:
        """The file's SHA-256, in hexadecimal."""

    @property
    def key(self) -> str:
        """The digest, in hexadecimal, of the file, the policy and the native code: what programs know the module by."""

    @property
    def native(self) -> str | None:
        """The digest of the manifest that the CUDA kernels come from, if there is one."""

    @property
    def targets(self) -> Mapping[str, Target]:
        """The targets by name."""

    def register(self) -> None:
        """Has programs find the module that were made in another process, and exported or cached: they know it by its key.

        It stays for as long as the process lives. A module that a program of this process was traced with needs no registering.
        """

    def __getattr__(self, name: str) -> Target: ...
    def __getitem__(self, name: str, /) -> Target: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __dir__(self) -> list[str]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Target:
    """A target: a function on arrays, which runs in the sandbox."""

    @property
    def name(self) -> str:
        """The target's name."""

    @property
    def module(self) -> Module:
        """The module that it is a target of."""

    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    @property
    def __signature__(self) -> Signature: ...
    @property
    def operands(self) -> tuple[Buffer, ...] | None:
        """The operands that it declares. None: it does not say."""

    @property
    def results(self) -> tuple[Buffer, ...] | None:
        """The results that it declares. None: it does not say."""

    @property
    def attributes(self) -> tuple[Attribute, ...] | None:
        """The attributes that it declares. None: it does not say."""

    @property
    def traits(self) -> tuple[str, ...]:
        """Its traits, such as ``"pure"``."""

    @property
    def api_versions(self) -> tuple[str, ...]:
        """The conventions by which it can be called, as HLO text names them: ``"API_VERSION_TYPED_FFI"``."""

    @property
    def has_native(self) -> bool:
        """Whether a CUDA kernel of its name was loaded with the module."""
    @property
    def native_traits(self) -> tuple[str, ...]:
        """The traits of that kernel, such as ``"command_buffer_compatible"``."""

    def __call__(
        self,
        *arrays: _Array,
        out: Any = None,
        result_shape_dtypes: _Shape | Sequence[_Shape] | None = None,
        deadline: float | None = None,
        attributes: Mapping[str, Any] | None = None,
        opaque: bytes | None = None,
        static_info: bytes | StaticInfo | None = None,
        api_version: str | None = None,
        platform: str = "Host",
        **attrs: Any,
    ) -> Any:
        """Calls the target. The GIL is not held while it runs.

        Args:
            *arrays: The operands: NumPy arrays, or whatever has a buffer or can be made an array of. One copy is made, into the guest.
            out: An array, or a tuple of arrays, for the results: contiguous in row-major order, and not read-only. It may be an
                operand. None, or None in the tuple: arrays are made.
            result_shape_dtypes: What has the results' ``shape`` and ``dtype``, or pairs ``(dtype, shape)``: one, or a sequence. None:
                what the metadata says.
            deadline: How long the call may take, in seconds. None: what the policy says. It takes the place of the policy's.
            attributes: Attributes whose names are those of the other arguments.
            opaque: The opaque bytes, for a target of XLA's older conventions.
            static_info: The static information, for a target of the JAX FFI proposal's convention: bytes, or `StaticInfo`.
            api_version: The convention, for a target that has several.
            platform: "Host", or "CUDA" for the native kernel of the same name, to which arrays are copied.
            **attrs: The attributes. Numbers of Python's take the declared type.

        Returns:
            The result, or a tuple of results.

        Raises:
            TypeError: A wrong dtype, number of operands, attribute, or type of an attribute.
            ValueError: A wrong rank or size.
            BufferError: An `out` that is read-only or not contiguous.
            CallError: How the call failed. `out` is then as it was.
        """

    def infer(self, operands: Sequence[_Shape]) -> list[tuple[str, tuple[int, ...]]]:
        """The results' dtypes and shapes, by what the metadata says, for operands of these dtypes and shapes.

        Args:
            operands: Pairs of dtype and shape, or what has ``dtype`` and ``shape``.

        Returns:
            Pairs of dtype, by NumPy's name, and shape.

        Raises:
            TypeError: A wrong number or dtype of operands.
            ValueError: The metadata does not say, or the operands do not fit it.
        """

    def xla_attributes(
        self,
        operands: Sequence[_Shape],
        results: Sequence[_Shape],
        attrs: dict[str, Any],
        *,
        on_error: str = "raise",
        deadline: float | None = None,
        aliases: dict[int, int] | None = None,
        opaque: bytes | None = None,
        static_info: bytes | StaticInfo | None = None,
        api_version: str | None = None,
    ) -> dict[str, str]:
        """The attributes of an XLA FFI call of the target `FFI_TARGET`: by these callbox knows what to call. The whole call site is
        checked.

        Args:
            operands: The operands of one call, without a batch: pairs of dtype and shape, or what has ``dtype`` and ``shape``.
            results: Its results, likewise, without the status.
            attrs: The target's attributes.
            on_error: "raise", or "status" for one more result, int32.
            deadline: How long XLA's call may take, in seconds: all elements of a batch together. It takes the place of the policy's,
                which is for each element.
            aliases: Operand's number to result's number, as `jax.ffi.ffi_call` has it.
            opaque: As in a direct call.
            static_info: As in a direct call.
            api_version: As in a direct call.

        Raises:
            TypeError: As in a direct call.
            ValueError: As in a direct call.
        """

@final
class Buffer:
    """What a target declares of an operand or result."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that it may have, by NumPy's names. Empty: any."""

    @property
    def rank(self) -> int | None:
        """Its number of dimensions. None: any."""

    @property
    def dimensions(self) -> tuple[int | str, ...] | None:
        """Its dimensions: sizes, symbols, and ``".."`` for any number of dimensions. None: not declared."""

    @property
    def optional(self) -> bool:
        """Whether it can be left out, with those after it."""

@final
class Attribute:
    """What a target declares of an attribute."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kind(self) -> str:
        """Its kind: ``"scalar"``, ``"array"``, ``"string"``, ``"dictionary"`` or ``"function"``."""

    @property
    def dtype(self) -> str | None:
        """The dtype of a scalar or array, by NumPy's name."""

    @property
    def optional(self) -> bool:
        """Whether it can be left out."""

@final
class StaticInfo:
    """Static information for a target of the JAX FFI proposal's convention that the guest makes itself, and gets by reference.

    Bytes are static information by value, without this.
    """

    @staticmethod
    def reference(constructor: str, destructor: str, argument: bytes) -> StaticInfo:
        """What the export `constructor`, ``(data, size) -> object``, makes of `argument` in each instance, and `destructor` takes
        back."""

def ffi_capsules() -> dict[str, Any]:
    """The handlers that XLA calls, in capsules as `jax.ffi.register_ffi_target` takes them: ``"cpu"``, ``"cuda"``,
    ``"cuda_command_buffer"``."""

def error_name(code: int) -> str:
    """The name of a status code: ``"OUT_OF_RANGE"`` of 11."""

def last_failure(code: int) -> str | None:
    """The message of this process's last failure with this code under ``on_error="status"``. None: there was none."""
