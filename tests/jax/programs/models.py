"""Small realistic programs."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, f32, lattice, s32, wave

SUBJECT = Subject("models")


@SUBJECT.program(wave((3, 5), scale=3.0), ulps=6)
def softmax(x):
    return jax.nn.softmax(x, axis=-1)


@SUBJECT.program(wave((3, 5), scale=3.0), ulps=8)
def log_softmax(x):
    return jax.nn.log_softmax(x, axis=0)


@SUBJECT.program(wave((7,), scale=3.0), ulps=[4, 4, 4, 4, 6, 0])
def activations(x):
    return (
        jax.nn.sigmoid(x),
        jax.nn.silu(x),
        jax.nn.softplus(x),
        jax.nn.elu(x),
        jax.nn.gelu(x, approximate=False),
        jax.nn.leaky_relu(x, 0.25),
    )


def normalize(x, scale, bias):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


@SUBJECT.program(lattice((3, 8), span=31), wave((8,)), wave((8,)), ulps=12)
def layer_norm(x, scale, bias):
    return normalize(x, scale, bias)


@SUBJECT.program(lattice((2, 8)), wave((8,)) + np.float32(3), wave((8,)), wave((2, 8), scale=2.0), ulps=16)
def layer_norm_gradient(x, scale, bias, cotangent):
    def loss(x, scale, bias):
        return (normalize(x, scale, bias) * cotangent).sum()

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(x, scale, bias)


@SUBJECT.program(lattice((2, 8)), wave((8,)), ulps=6)
def rms_norm(x, weight):
    return x * lax.rsqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6) * weight


@SUBJECT.program(
    lattice((4, 3)),
    s32(0, 1, 1, 0),
    {
        "w1": wave((3, 5), scale=0.375),
        "b1": wave((5,), scale=0.5),
        "w2": wave((5, 2), scale=0.5),
        "b2": wave((2,), scale=0.5),
    },
    ulps=16,
)
def mlp_gradient(x, labels, parameters):
    """Loss and gradients of a classifier; the operands are a dictionary of arrays."""

    def loss(p):
        hidden = jnp.tanh(x @ p["w1"] + p["b1"])
        logits = hidden @ p["w2"] + p["b2"]
        picked = jax.nn.one_hot(labels, 2)
        return -(jax.nn.log_softmax(logits) * picked).sum(axis=-1).mean()

    return jax.value_and_grad(loss)(parameters)


@SUBJECT.program(wave((2, 4, 3), scale=2.0), wave((2, 4, 3), scale=0.7), wave((2, 4, 3)), ulps=8)
def attention(query, key, value):
    """Two heads, causal mask."""
    scores = jnp.einsum("hqd,hkd->hqk", query, key) / jnp.sqrt(jnp.float32(3))
    mask = jnp.tril(jnp.ones((4, 4), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    return jnp.einsum("hqk,hkd->hqd", weights, value)


@SUBJECT.program(f32(1, 2, 3), f32([0.5, -1, 2]), ulps=4)
def adam_step(parameter, gradient):
    m, v = 0.1 * gradient, 0.001 * gradient**2
    return parameter - 0.01 * (m / 0.1) / (jnp.sqrt(v / 0.001) + 1e-8), m, v


@SUBJECT.program(lattice((4, 3), span=41), lattice((3,)), ulps=8)
def recurrent(inputs, state):
    """A recurrent cell under `scan`."""

    def cell(h, x):
        h = jnp.tanh(0.5 * h + 0.25 * x)
        return h, h.sum()

    return lax.scan(cell, state, inputs)


@SUBJECT.program(lattice((3, 3), step=0.25), f32([1, 0, 0]))
def matrix_power(a, v):
    """Repeated squaring by the bits of 13; exact."""

    def body(state):
        n, base, result = state
        return n // 2, base @ base, jnp.where(n % 2 == 1, result @ base, result)

    start = (jnp.int32(5), jnp.round(a), jnp.eye(3, dtype=jnp.float32))
    return lax.while_loop(lambda s: s[0] > 0, body, start)[2] @ v


@SUBJECT.program(s32(10))
def fibonacci(n):
    return lax.fori_loop(0, n, lambda _, s: (s[1], s[0] + s[1]), (jnp.int32(0), jnp.int32(1)))[0]
