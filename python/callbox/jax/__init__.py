"""Targets of WebAssembly modules as ops in JAX programs.

>>> import callbox.jax
>>> import jax
>>> import jax.numpy as jnp
>>> kernels = callbox.Host().load(guests / "add_n.wasm")
>>> add_n = callbox.jax.op(kernels.add_n, result_shape_dtypes=lambda x, n: x)
>>> @jax.jit
... def program(x):
...     return 2 * add_n(x, n=4.0)
>>> program(jnp.arange(4.0))
Array([ 8., 10., 12., 14.], dtype=float32)

- `op` turns a target into a function, with batching, derivatives and shapes from the metadata.
- `call` makes one call, with the arguments of `jax.ffi.ffi_call`.
- `check` raises the failure of a call with ``on_error="status"``.
- `FFICall` is the interface of the JAX FFI proposal.
- `export` and `deserialize` are `jax.export` for programs that carry their modules.
- `export_checks` are the safety checks that `jax.export` must disable.

XLA calls the kernels directly: no Python runs during a call. If a kernel fails, the program raises
`jax.errors.JaxRuntimeError`, or `ValueError` if it has succeeded before, with a message that begins
with the status code, such as ``DEADLINE_EXCEEDED: ...``. `callbox.errors.from_jax` finds the
`callbox.CallError` of either.
"""

from . import _registration

_registration.check_jax()
_registration.register()

from ._call import call  # noqa: E402  after the check of JAX's version
from ._export import Exported, deserialize, export, export_checks  # noqa: E402
from ._ffi_call import FFICall  # noqa: E402
from ._op import op  # noqa: E402
from ._status import check  # noqa: E402

__all__ = ["Exported", "FFICall", "call", "check", "deserialize", "export", "export_checks", "op"]
