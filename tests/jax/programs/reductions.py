"""`reduce`, with one operand and with several."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, f32, lattice, pred, s32

SUBJECT = Subject("reductions")

NAN = float("nan")


@SUBJECT.program(lattice((3, 4, 2)))
def sums(x):
    """Multiples of 1/8 add up exactly in any order."""
    return x.sum(), x.sum(axis=0), x.sum(axis=(0, 2)), x.sum(axis=1, keepdims=True), x.mean(axis=1)


@SUBJECT.program(lattice((3, 4)), f32([1.0, NAN, 3.0]))
def extremes(x, y):
    """NaN wins over any number."""
    return x.max(), x.min(axis=0), x.max(axis=1), y.max(), y.min(), lax.reduce_max(y[::2], (0,))


@SUBJECT.program(f32([[0.5, 2.0, -4.0], [1.0, 0.25, 8.0]]), s32([[3, 5, -7], [100000, 100000, 100000]]))
def products(x, y):
    """Powers of two multiply exactly; integers wrap."""
    return x.prod(), x.prod(axis=1), y.prod(axis=1), y.sum(dtype=jnp.int32)


@SUBJECT.program(pred([[True, False, True], [True, True, True]]), s32([[12, 10], [7, 255]]))
def logical(x, y):
    return (
        x.all(),
        x.all(axis=1),
        x.any(axis=0),
        x.sum(axis=1),
        lax.reduce_and(y, (1,)),
        lax.reduce_or(y, (0,)),
        lax.reduce_xor(y, (0, 1)),
    )


@SUBJECT.program(f32([[3, 9, 9, -1], [0, NAN, 5, NAN]]), s32([4, -2, 4, -2]))
def arg_extremes(x, y):
    """Variadic `reduce` over values and indices: the first of equals wins, NaN wins over any
    number."""
    return jnp.argmax(x, axis=1), jnp.argmin(x, axis=0), jnp.argmax(y), jnp.argmin(y), jnp.argmax(x)


@SUBJECT.program(lattice((2, 5)), np.arange(10, dtype=np.int32).reshape(2, 5))
def generic_reduce(x, y):
    """A computation of the caller's over two operands of different types."""

    def combine(left, right):
        return left[0] + right[0], lax.max(left[1], right[1])

    return lax.reduce((x, y), (np.float32(0), np.int32(3)), combine, (0,))


@SUBJECT.program(lattice((2, 3)), f32(2.0))
def reduce_with_start(x, start):
    """An initial value that is a parameter, and no dimensions at all."""
    return lax.reduce(x, start, lax.add, (0, 1)), lax.reduce(x, np.float32(0), lax.add, ())


@SUBJECT.program(f32([1.5, -0.25, 0.0, 8.0]), np.array([1.5, 2.5, 256.0, 1.0], jnp.bfloat16))
def reductions_of_narrow_types(x, y):
    """JAX sums bf16 in f32 and rounds once."""
    return x.astype(jnp.float16).sum(), y.sum(), y.max(), (x.astype(jnp.complex64) * 1j).sum()


@SUBJECT.program(lattice((4, 6)), ulps=[2, 4, 4])
def statistics(x):
    return x.mean(), x.var(axis=1), x.std(axis=0)


@SUBJECT.program(f32([0.5, -1.0, 2.0, 88.0]), ulps=2)
def logsumexp(x):
    return jax.nn.logsumexp(x), jax.nn.logsumexp(x - 100.0)
