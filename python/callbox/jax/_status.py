"""Statuses of calls that do not raise.

In a program with collectives a shard's failure must be a result (``on_error="status"``): XLA waits
for a shard that failed, and then ends the process.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from callbox._callbox import CallError, error_name, last_failure

#: The last of XLA's status codes, UNAUTHENTICATED.
_HIGHEST = 16


def check(status: Any) -> None:
    """Raises the failure of a call with ``on_error="status"``, if it failed.

    Args:
        status: The call's last result, or an array of several of them: int32, 0 or a status code.
            An array with shards in other processes is checked as a whole: every process must call
            this function, and each raises.

    Raises:
        CallError: Not all of `status` is 0. The code is the highest of them. The rest is of this
            process's last failure with this code, because programs keep nothing else.
        TypeError: `status` is not an array of integers, or is traced. Check statuses outside of
            `jax.jit`.
        ValueError: One of `status` is not a status code, for example a sum of several.
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
    last = last_failure(worst) or CallError(name, "the message is not known in this process")
    message = f"{last.message} ({failed} calls failed)" if failed > 1 else last.message
    raise CallError(name, message, recoverable=last.recoverable, blame=last.blame, backtrace=last.backtrace)
