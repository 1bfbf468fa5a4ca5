"""Exceptions of callbox, and those of JAX's programs as the same exceptions.

When a call in a jitted program fails, JAX raises `jax.errors.JaxRuntimeError` or, for a program
that has succeeded before, `ValueError`. Both have only the text of the failure. `from_jax` and
`as_call_errors` give the `CallError` with everything that a direct call's has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ._callbox import find_failure
from ._errors import CallError, InvalidArgumentError

__all__ = ["CallError", "InvalidArgumentError", "as_call_errors", "from_jax"]


def from_jax(error: BaseException) -> CallError | None:
    """Returns the failure of a target that ended a program of JAX.

    Args:
        error: The exception that JAX raised, of whichever class.

    Returns:
        The failure, or None if the exception is another one. This process keeps its last 64
        failures. It does not know those of other processes.

    >>> import callbox, callbox.jax, jax, jax.numpy as jnp
    >>> kernels = callbox.Host().load(guests / "add_n.wasm")
    >>> program = jax.jit(lambda x: callbox.jax.call(kernels.add_n, x, n=-1.0))
    >>> try:
    ...     program(jnp.ones(3)).block_until_ready()
    ... except Exception as error:
    ...     failure = callbox.errors.from_jax(error)
    >>> failure.code, failure.target, failure.module, failure.recoverable
    ('INVALID_ARGUMENT', 'add_n', 'add_n.wasm', True)
    """
    return error if isinstance(error, CallError) else find_failure(str(error))


@contextlib.contextmanager
def as_call_errors() -> Iterator[None]:
    """Raises failures of targets in programs of JAX as `CallError`, with JAX's as the cause.

    It is a context manager and a decorator. JAX runs programs asynchronously: wait for the results
    inside, for example with `jax.block_until_ready`.
    """
    try:
        yield
    except CallError:
        raise
    except Exception as error:
        failure = from_jax(error)
        if failure is None:
            raise
        raise failure from error
