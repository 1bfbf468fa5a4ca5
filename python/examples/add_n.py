"""`add_n`, the example of the JAX FFI proposal (2022), and the same with typed FFI."""

import os
import struct
from pathlib import Path

import callbox
import callbox.jax
import jax

GUESTS = Path(os.environ.get("CALLBOX_GUESTS", Path(__file__).parent / "../../target/guests"))

host = callbox.Host()
add_n_lib = host.load(GUESTS / "jax_add_n.wasm")

add_n = callbox.jax.FFICall("add_n")
add_n.register_function(add_n_lib.add_n, platform="cpu")


def by_value(x):
    """Passes the static information, a struct of one float, as bytes."""
    static_info = struct.pack("f", 4.0)
    return add_n(x, static_info=static_info, out_shape_dtype=x)


def by_reference(x):
    """Passes the static information by reference: the guest makes an object from the bytes."""
    static_info = callbox.StaticInfo.reference("make_info", "delete_info", struct.pack("f", 4.0))
    return add_n(x, static_info=static_info, out_shape_dtype=x)


def typed(x):
    """Calls the typed FFI target, whose attribute `n` and result are declared by the module."""
    kernels = host.load(GUESTS / "add_n.wasm")
    return callbox.jax.op(kernels.add_n)(x, n=4.0)


def main() -> None:
    for f in (by_value, by_reference, typed):
        y = jax.jit(f)(4.0)
        print(f"{f.__name__}: {y}")
        assert y == 8.0


if __name__ == "__main__":
    main()
