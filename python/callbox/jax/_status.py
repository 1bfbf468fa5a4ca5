"""Statuses of calls that do not raise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from callbox._callbox import CallError, error_name, last_failure

#: The last of XLA's status codes, UNAUTHENTICATED.
_HIGHEST = 16


def check(status: Any) -> None:
    """Raises what a call with ``on_error="status"`` failed with, if it did.

    Args:
        status: The call's last result, or several of them in an array of any shape: int32, 0 or a status code. An array that has parts
            on other processes is looked at as a whole: then every process has to call this, and each raises.

    Raises:
        CallError: Not all of `status` is 0. The code is the highest of them. Its message is that of this process's last failure with
            that code under ``on_error="status"``, if there was one: it is not kept in the program.
        TypeError: `status` is no array of integers, or is traced: statuses are looked at outside of `jax.jit`.
        ValueError: One of `status` is none of the codes, such as a sum of statuses.
    """
    if isinstance(status, jax.core.Tracer):
        raise TypeError(
            f"expected a status outside of jax.jit and other transformations, found {status}: "
            "return it from the program, and check it there"
        )
    if isinstance(status, jax.Array) and not (status.is_fully_addressable or status.is_fully_replicated):
        status = jax.jit(lambda x: jnp.stack([jnp.min(x), jnp.max(x), jnp.sum(x != 0, dtype=x.dtype)]))(status)
        lowest, worst, failed = map(int, np.asarray(status))
    else:
        codes = np.asarray(status)
        if not np.issubdtype(codes.dtype, np.integer):
            raise TypeError(f"expected a status, which is an array of integers, found {codes.dtype}{list(codes.shape)}")
        lowest, worst, failed = int(codes.min(initial=0)), int(codes.max(initial=0)), int(np.count_nonzero(codes))
    if lowest < 0 or worst > _HIGHEST:
        raise ValueError(
            f"expected a status, which is 0 to {_HIGHEST}, found {worst if lowest >= 0 else lowest}: "
            "the highest of several is jax.lax.pmax of them or their max, and their sum is no status"
        )
    if failed == 0:
        return
    name = error_name(worst)
    message = last_failure(worst) or "the message is not known in this process"
    if failed > 1:
        message = f"{message} ({failed} calls failed)"
    raise CallError(name, message)
