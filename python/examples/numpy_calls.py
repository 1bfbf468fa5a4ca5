"""Targets as functions on NumPy arrays, without JAX."""

import inspect
import os
from pathlib import Path

import callbox
import numpy as np

GUESTS = Path(os.environ.get("CALLBOX_GUESTS", Path(__file__).parent / "../../target/guests"))


def main() -> None:
    host = callbox.Host()
    kernels = host.load(GUESTS / "activation.wasm")
    print(kernels)
    print(kernels.squareplus.__doc__)
    print(inspect.signature(kernels.squareplus))

    x = np.linspace(-2, 2, 5, dtype=np.float32)
    print(kernels.squareplus(x, beta=4.0))

    # Write into an existing array, here the operand.
    kernels.squareplus(x, beta=4.0, out=x)
    print(x)

    # The host refuses wrong operands before the kernel runs.
    try:
        kernels.squareplus(x.astype(np.int32), beta=4.0)
    except TypeError as error:
        print("TypeError:", error)

    # Errors of the kernel have a code.
    try:
        kernels.squareplus(x, beta=-1.0)
    except callbox.CallError as error:
        print(f"{error.code}, recoverable: {error.recoverable}: {error.message}")
    print(host.stats())


if __name__ == "__main__":
    main()
