"""`rng-bit-generator`, and the random numbers of JAX's own generator."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, u32

SUBJECT = Subject("random")
KEY = u32(1, 2, 3, 4)


def bits(name, algorithm, dtype, shape, x64=False):
    """Adds a program that draws bits twice."""

    def draw(key):
        state, first = lax.rng_bit_generator(key, shape, dtype, algorithm)
        return (first, *lax.rng_bit_generator(state, shape, dtype, algorithm))

    SUBJECT.add(f"rng_{name}", draw, KEY, x64=x64)


ALGORITHM = lax.RandomAlgorithm
bits("default", ALGORITHM.RNG_DEFAULT, np.uint32, (5,))
bits("philox", ALGORITHM.RNG_PHILOX, np.uint32, (3, 3))
bits("philox_bytes", ALGORITHM.RNG_PHILOX, np.uint8, (2, 3))
bits("philox_wide", ALGORITHM.RNG_PHILOX, np.uint64, (3,), x64=True)
bits("three_fry", ALGORITHM.RNG_THREE_FRY, np.uint32, (3, 4))
bits("three_fry_odd", ALGORITHM.RNG_THREE_FRY, np.uint32, (3, 5))
bits("three_fry_scalar", ALGORITHM.RNG_THREE_FRY, np.uint32, ())
bits("three_fry_shorts", ALGORITHM.RNG_THREE_FRY, np.uint16, (5, 2, 3))
bits("three_fry_wide", ALGORITHM.RNG_THREE_FRY, np.uint64, (3,), x64=True)


@SUBJECT.program(u32(7))
def random_keys(seed):
    """The bits of `jax.random`, whose generator consists of plain instructions."""
    keys = jax.random.split(jax.random.key(seed), 3)
    return jax.random.key_data(keys), jax.random.bits(keys[0], (5,)), jax.random.permutation(keys[1], 8)


@SUBJECT.program(u32(7))
def random_numbers(seed):
    """Uniform numbers, integers, and choices."""
    key = jax.random.key(seed, impl="rbg")
    numbers = jax.random.uniform(key, (4,)), jax.random.randint(key, (4,), 0, 10)
    return *numbers, jnp.where(jax.random.bernoulli(key, 0.5, (4,)), 1, 2)
