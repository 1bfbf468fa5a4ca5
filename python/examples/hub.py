"""A training loop that takes a kernel by name, and each round tries one of a hostile author.

It needs a hub that has both, which `HF_ENDPOINT` names. `python/tests/hub` serves them.
"""

import callbox
import callbox.hub
import jax
import jax.numpy as jnp

good = callbox.hub.get_kernel("good/rms-norm", version=1)
rms_norm = good.op("rms_norm")  # with its gradient, which the package names


@jax.jit
@jax.value_and_grad
def loss(weight, x, wanted):
    return jnp.mean((rms_norm(x, weight, eps=1e-5) - wanted) ** 2)


def main() -> None:
    x = jnp.sin(jnp.arange(64.0 * 8)).reshape(64, 8)
    wanted = rms_norm(x, jnp.linspace(0.5, 2.0, 8), eps=1e-5)
    weight = jnp.ones(8)
    print(good)
    for version in range(1, 6):
        value, gradient = loss(weight, x, wanted)
        weight = weight - 2.0 * gradient
        print(f"loss {value:.5f}")
        try:
            evil = callbox.hub.get_kernel("evil/rms-norm", version=version)
            evil.rms_norm(x, weight, deadline=0.2, result_shape_dtypes=x, attributes={"eps": 1e-5})
        except (callbox.CallError, ValueError) as error:
            print(f"evil/rms-norm {version}: {error}")


if __name__ == "__main__":
    main()
