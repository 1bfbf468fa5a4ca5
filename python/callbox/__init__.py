"""Untrusted WebAssembly kernels as functions on NumPy arrays and as ops in jitted JAX programs.

A *host* loads modules under a policy, which limits the kernels and grants them capabilities. A
module's *targets* are functions on arrays:

>>> import numpy as np
>>> import callbox
>>> host = callbox.Host()
>>> kernels = host.load(guests / "add_n.wasm")
>>> kernels.add_n(np.arange(4, dtype=np.float32), n=4.0)
array([4., 5., 6., 7.], dtype=float32)

A kernel that fails raises an exception, whether it traps, loops endlessly or breaks the ABI. The
process continues.

>>> kernels.add_n(np.arange(4, dtype=np.float32), n=-1.0)  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
callbox.CallError: INVALID_ARGUMENT: add_n.wasm: target "add_n" failed: the guest says "Info ..."
>>> kernels.add_n(np.arange(4, dtype=np.int32), n=4.0)  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
TypeError: ...
>>> sorted(host.stats()["failures"].items())
[('INVALID_ARGUMENT', 1)]

``callbox.jax`` makes ops for JAX programs from the same targets, and ``callbox.torch`` custom
operators for PyTorch. Each must be imported by itself and needs its framework. This package needs
NumPy, for the arrays that calls return.
"""

from typing import TYPE_CHECKING, Any

from . import errors
from ._callbox import (
    FFI_TARGET,
    FFI_TARGET_COMMAND_BUFFER,
    Attribute,
    Buffer,
    CallError,
    Host,
    InvalidArgumentError,
    Module,
    Recording,
    StaticInfo,
    Target,
    __version__,
    error_name,
    ffi_capsules,
    last_failure,
    record,
)
from ._embedded import load
from ._shadow import Shadow, shadow
from ._stats import stats

if TYPE_CHECKING:
    from ._jit import CompileError, jit

__all__ = [
    "FFI_TARGET",
    "FFI_TARGET_COMMAND_BUFFER",
    "Attribute",
    "Buffer",
    "CallError",
    "CompileError",
    "Host",
    "InvalidArgumentError",
    "Module",
    "Recording",
    "Shadow",
    "StaticInfo",
    "Target",
    "__version__",
    "error_name",
    "errors",
    "ffi_capsules",
    "jit",
    "last_failure",
    "load",
    "record",
    "shadow",
    "stats",
]


def __getattr__(name: str) -> Any:
    # The compiler's side is imported when it is used.
    if name in ("CompileError", "jit"):
        from . import _jit

        return getattr(_jit, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
