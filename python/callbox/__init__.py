"""Untrusted WebAssembly kernels as functions on NumPy arrays and as ops in jitted JAX programs.

A *host* loads modules, under a policy that says what guests may take and do. A module's *targets* are functions on arrays:

>>> import numpy as np
>>> import callbox
>>> host = callbox.Host()
>>> kernels = host.load(guests / "add_n.wasm")
>>> kernels.add_n(np.arange(4, dtype=np.float32), n=4.0)
array([4., 5., 6., 7.], dtype=float32)

Whatever a kernel does, it fails alone: a trap, an endless loop or a lie is an exception, and the process goes on.

>>> kernels.add_n(np.arange(4, dtype=np.float32), n=-1.0)
Traceback (most recent call last):
    ...
callbox.CallError: INVALID_ARGUMENT: Info must be >= 0
>>> kernels.add_n(np.arange(4, dtype=np.int32), n=4.0)  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
TypeError: ...
>>> sorted(host.stats()["failures"].items())
[('INVALID_ARGUMENT', 1)]

``callbox.jax`` makes the same targets ops in JAX programs, ``callbox.torch`` custom operators of PyTorch. Each needs its framework and
is imported by itself; this package needs neither, and NumPy only for the arrays that calls return.
"""

from ._callbox import (
    FFI_TARGET,
    FFI_TARGET_COMMAND_BUFFER,
    Attribute,
    Buffer,
    CallError,
    Host,
    InvalidArgumentError,
    Module,
    StaticInfo,
    Target,
    __version__,
    error_name,
    ffi_capsules,
    last_failure,
)

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
