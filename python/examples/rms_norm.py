"""RMS norm and its gradient as untrusted kernels in a jitted program."""

import os
from pathlib import Path

import callbox
import callbox.jax
import jax
import jax.numpy as jnp

GUESTS = Path(os.environ.get("CALLBOX_GUESTS", Path(__file__).parent / "../../target/guests"))


def reference(x, weight, eps):
    """The same function in JAX's own operations."""
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + eps) * weight


def main() -> None:
    kernels = callbox.Host().load(GUESTS / "rms_norm.wasm")
    print(kernels.rms_norm)
    rms_norm = callbox.jax.op(kernels.rms_norm)

    def program(norm):
        def loss(x, weight):
            return jnp.sum(jnp.tanh(norm(x, weight, eps=1e-5)))

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))

    x = jax.random.normal(jax.random.key(0), (8, 128, 512))
    weight = jax.random.uniform(jax.random.key(1), (512,), minval=0.5, maxval=1.5)
    value, (dx, dweight) = program(rms_norm)(x, weight)
    expected, (expected_dx, expected_dweight) = program(reference)(x, weight)

    for name, found, known in [
        ("loss", value, expected),
        ("dx", dx, expected_dx),
        ("dweight", dweight, expected_dweight),
    ]:
        difference = float(jnp.max(jnp.abs(found - known)) / jnp.max(jnp.abs(known)))
        print(f"{name:8} {found.dtype}{list(found.shape)}: differs from JAX's own by {difference:.0e} of the largest")
        assert difference < 1e-5


if __name__ == "__main__":
    main()
