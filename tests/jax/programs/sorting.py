"""`sort`, and what lowers to it."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, bf16, f32, lattice, s32, u8

SUBJECT = Subject("sorting")

NAN = float("nan")
INFINITY = float("inf")


@SUBJECT.program(lattice((3, 7)), f32(3, 1, 2), s32(5, -1, 5, 0, 9, -7))
def sorts(x, y, z):
    return jnp.sort(x), jnp.sort(x, axis=0), jnp.sort(y, descending=True), jnp.sort(z)


@SUBJECT.program(f32(NAN, 1, -INFINITY, 0.0, -0.0, NAN, INFINITY, -NAN, -1))
def sort_special(x):
    """NaNs come last, whatever their sign; zeros are equal and keep their order."""
    return jnp.sort(x), jnp.argsort(x), jnp.argsort(x, descending=True)


@SUBJECT.program(s32(3, 1, 3, 0, 1, 3, 2, 0, 1), lattice((9,)))
def stable(keys, values):
    """Equal keys keep the order of their values."""
    return lax.sort((keys, values), num_keys=1), jnp.argsort(keys), lax.sort((keys, values), num_keys=2)


@SUBJECT.program(u8([[7, 3, 200], [7, 255, 0]]), bf16([[1.5, -2, 0.5], [3, 1, 2]]))
def sort_types(x, y):
    return jnp.sort(x), jnp.sort(y), jnp.sort(x, axis=None), lax.sort((x, y), dimension=0, num_keys=1)


@SUBJECT.program(lattice((64,)), lattice((1,)), np.zeros((2, 0), np.float32), lattice((33, 3), span=7))
def sort_lengths(x, y, z, w):
    """Powers of two, one element, none, and an odd length."""
    return jnp.sort(x), jnp.sort(y), jnp.sort(z), jnp.argsort(w, axis=0)


@SUBJECT.program(lattice((4, 6)))
def order_statistics(x):
    return jnp.median(x), jnp.median(x, axis=0), jnp.quantile(x, 0.5, axis=1)


@SUBJECT.program(s32(4, 1, 4, 2, 1), s32(1, 3, 4, 9))
def search(x, y):
    return jnp.searchsorted(y, x), jnp.unique(x, size=4), jnp.isin(x, y)


@SUBJECT.program(lattice((3, 7)), s32(5, -1, 5, 0, 9, -7), u8([[7, 3], [200, 7]]), bf16(1.5, -2, 0.5, 3))
def top_k(x, y, z, w):
    """Of equal elements the first comes first; one of none."""
    return lax.top_k(x, 3), lax.top_k(y, 6), lax.top_k(z, 1), lax.top_k(w, 2), lax.top_k(x, 2, axis=0), lax.top_k(y, 0)


@SUBJECT.program(f32(NAN, 1, -INFINITY, 0.0, -0.0, INFINITY, -1))
def top_k_special(x):
    """NaN is the largest, and -0 less than 0."""
    return lax.top_k(x, 7)


@SUBJECT.program(lattice((4, 6)))
def beams(x):
    """The best of each row, and what they are chosen from."""
    values, indices = lax.top_k(jax.nn.relu(x), 2)
    return values, jnp.take_along_axis(x, indices, 1), lax.approx_max_k(x, 2)[0]


@SUBJECT.program(lattice((5,)), s32(0, 1, 2, 3, 4))
def permuted(x, i):
    """The inverse of a permutation, by sorting."""
    order = jnp.argsort(-x)
    return x[order], jnp.argsort(order), jax.vmap(lambda k: jnp.sort(x)[k])(i)
