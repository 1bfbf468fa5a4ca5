"""Kernels that misbehave, in jitted programs: each fails alone, with a code that says how, and the process goes on."""

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
        # The module does not say what its targets' results look like.
        kernel = callbox.jax.op(kernels[name], result_shape_dtypes=lambda x: x)
        return jax.jit(lambda x: jnp.sum(2 * kernel(x)))

    healthy = program("healthy")
    for name, code in HOSTILE.items():
        start = time.perf_counter()
        try:
            program(name)(x).block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            message = str(error).splitlines()[0]
            print(f"{name} after {time.perf_counter() - start:.2f} s: {message}")
            assert message.startswith(code), message
        else:
            raise AssertionError(f"{name} did not fail")
        # The next call is not touched by it.
        assert healthy(x) == 2 * np.arange(1024.0).sum()
    print("healthy:", healthy(x))
    print(host.stats()["failures"])


if __name__ == "__main__":
    main()
