"""`jax.export` of programs that call targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callbox._callbox import FFI_TARGET, FFI_TARGET_COMMAND_BUFFER

if TYPE_CHECKING:
    import jax.export


def export_checks() -> list[jax.export.DisabledSafetyCheck]:
    """The safety checks that `jax.export` must disable for a program that calls targets.

    An exported program names each module by its key, the digest of its file, policy and native
    code. A process that runs the program imports `callbox.jax`, loads the same file into a host
    with the same policy, and calls the module's `register()`; otherwise the program fails with
    NOT_FOUND. The same holds for programs from JAX's persistent compilation cache.

    Example: ``jax.export.export(jax.jit(f),
    disabled_checks=callbox.jax.export_checks())(x).serialize()``.
    """
    # jax.export needs packages that JAX 0.5 does not install.
    import jax.export

    return [jax.export.DisabledSafetyCheck.custom_call(name) for name in (FFI_TARGET, FFI_TARGET_COMMAND_BUFFER)]
