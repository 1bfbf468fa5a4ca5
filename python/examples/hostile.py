"""Kernels that misbehave in jitted programs: each fails with a code, and no other is affected."""

import os
import time
from pathlib import Path

import callbox
import callbox.jax
import jax
import jax.numpy as jnp
import numpy as np

GUESTS = Path(os.environ.get("CALLBOX_GUESTS", Path(__file__).parent / "../../target/guests"))

HOSTILE = {
    "infinite_loop": "DEADLINE_EXCEEDED",
    "write_out_of_bounds": "OUT_OF_RANGE",
    "infinite_recursion": "RESOURCE_EXHAUSTED",
    "grow_memory": "RESOURCE_EXHAUSTED",
}


def main() -> None:
    host = callbox.Host(policy={"limits": {"deadline_ms": 200, "memory_bytes": 64 << 20}})
    kernels = host.load(GUESTS / "faults.wasm")
    x = jnp.arange(1024.0)

    def program(name):
        # This module does not declare the shapes of its results.
        kernel = callbox.jax.op(kernels[name], result_shape_dtypes=lambda x: x)
        return jax.jit(lambda x: jnp.sum(2 * kernel(x)))

    healthy = program("healthy")
    for name, code in HOSTILE.items():
        start = time.perf_counter()
        try:
            # JAX raises one of several exceptions, which have only the message.
            with callbox.errors.as_call_errors():
                program(name)(x).block_until_ready()
        except callbox.CallError as error:
            message = str(error).splitlines()[0]
            print(f"{name} after {time.perf_counter() - start:.2f} s: {message}")
            assert (error.code, error.target) == (code, name), message
        else:
            raise AssertionError(f"{name} did not fail")
        # The failure does not affect the next call.
        assert healthy(x) == 2 * np.arange(1024.0).sum()
    print("healthy:", healthy(x))
    print(host.stats()["failures"])


if __name__ == "__main__":
    main()
