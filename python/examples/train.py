"""Trains a small network whose activation function and gradient are untrusted kernels."""

import os
from pathlib import Path

import callbox
import callbox.jax
import jax
import jax.numpy as jnp

GUESTS = Path(os.environ.get("CALLBOX_GUESTS", Path(__file__).parent / "../../target/guests"))

kernels = callbox.Host().load(GUESTS / "activation.wasm")
squareplus = callbox.jax.op(kernels.squareplus)


def network(params, x):
    hidden = squareplus(x @ params["w1"] + params["b1"], beta=0.5)
    return hidden @ params["w2"] + params["b2"]


def loss(params, x, y):
    return jnp.mean((network(params, x) - y) ** 2)


@jax.jit
def train(params, x, y):
    """Runs 500 steps of gradient descent with momentum, in one program with 1,000 kernel calls."""

    def step(state, _):
        params, speed = state
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        speed = jax.tree.map(lambda v, g: 0.9 * v - 0.02 * g, speed, gradients)
        return (jax.tree.map(jnp.add, params, speed), speed), value

    (params, _), losses = jax.lax.scan(step, (params, jax.tree.map(jnp.zeros_like, params)), length=500)
    return params, losses


def main() -> None:
    # The network learns the product of two numbers.
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.normal(keys[0], (256, 2))
    y = x[:, :1] * x[:, 1:]
    params = {
        "w1": jax.random.normal(keys[1], (2, 32)),
        "b1": jax.random.normal(keys[2], (32,)),
        "w2": jax.random.normal(keys[3], (32, 1)) / 32**0.5,
        "b2": jnp.zeros(1),
    }
    first = float(loss(params, x, y))
    print(f"step    0: loss {first:.5f}")
    for steps in range(500, 2001, 500):
        params, losses = train(params, x, y)
        print(f"step {steps:4}: loss {float(losses[-1]):.5f}")
    last = float(loss(params, x, y))
    assert last < first / 100, (first, last)


if __name__ == "__main__":
    main()
