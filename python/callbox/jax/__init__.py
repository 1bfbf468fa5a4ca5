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

- `op` makes a function of a target, with batching, derivatives and shapes from the target's metadata.
- `call` is one call, in the words of `jax.ffi.ffi_call`.
- `check` raises what a status says, where failures are results of the program (``on_error="status"``).
- `FFICall` is the JAX FFI proposal's own interface.
- `export_checks` are the safety checks that `jax.export` has to leave out.

XLA calls the kernels: no Python runs during a call. A failure of a kernel is JAX's error of the program (`jax.errors.JaxRuntimeError`)
whose message begins with the status code's name, such as ``DEADLINE_EXCEEDED: ...``.
"""

from . import _registration

_registration.check_jax()
_registration.register()

from ._call import call  # noqa: E402  after the check of what JAX there is
from ._export import export_checks  # noqa: E402
from ._ffi_call import FFICall  # noqa: E402
from ._op import op  # noqa: E402
from ._status import check  # noqa: E402

__all__ = ["FFICall", "call", "check", "export_checks", "op"]
