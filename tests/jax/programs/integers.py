"""Elementwise operations on integers, with the corner cases that XLA defines and C does not."""

import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, array, s32, u32

SUBJECT = Subject("integers")


def operands(dtype):
    """Pairs that meet zero, minus one, both ends of the type and more."""
    info = np.iinfo(dtype)
    low, high = info.min, info.max
    pairs = [(7, 2), (7, 0), (0, 0), (low, 0), (high, 3), (low, high), (high, high), (low, 1), (low, low), (5, 7)]
    if low:
        pairs += [(-7, 2), (7, -2), (low, -1), (-1, low), (-7, 0)]
    return tuple(array(dtype)(column) for column in zip(*pairs, strict=True))


def arithmetic(x, y):
    """Two's complement wraps. x / 0 is all ones, x rem 0 is x; the lowest value over -1 is itself,
    remainder 0."""
    return x + y, x - y, x * y, lax.div(x, y), lax.rem(x, y), lax.max(x, y), lax.min(x, y)


def bitwise(x, y):
    return (
        x & y,
        x | y,
        x ^ y,
        ~x,
        lax.population_count(x),
        lax.clz(x),
        lax.abs(x) if np.issubdtype(x.dtype, np.signedinteger) else x,
        lax.neg(x),
        lax.sign(x),
    )


def shifts(x, y):
    """A shift of the type's width or more gives zero, or the sign for an arithmetic shift; so does
    a negative one."""
    return lax.shift_left(x, y), lax.shift_right_logical(x, y), lax.shift_right_arithmetic(x, y)


def comparisons(x, y):
    return x == y, x != y, x < y, x <= y, x > y, x >= y


def all_of(x, y, value, by):
    return arithmetic(x, y) + bitwise(x, y) + shifts(value, by) + comparisons(x, y)


for kind in ("int", "uint"):
    for bits in (8, 16, 32, 64):
        dtype = np.dtype(f"{kind}{bits}")
        info = np.iinfo(dtype)
        by = [0, 1, bits - 1, bits, bits + 1, info.max, 3] + ([-1, info.min] if info.min else [])
        value = [1, info.max, info.max, 1, info.max, info.min + 3, 85] + ([-1, -5] if info.min else [])
        SUBJECT.add(
            f"integers_{'s' if kind == 'int' else 'u'}{bits}",
            all_of,
            *operands(dtype),
            array(dtype)(value),
            array(dtype)(by),
            x64=bits == 64,
            # The texts after optimisation differ only in the type.
            optimized=dtype.name in ("int8", "uint32", "int64"),
            note="Corner cases: division by zero, the lowest value over -1, shifts past the width.",
        )


@SUBJECT.program(s32(-3, -1, 0, 2, 5), u32(0, 1, 3, 10, 2**16 + 1))
def integer_powers(x, y):
    return (
        lax.integer_pow(x, 3),
        lax.integer_pow(y, 2),
        jnp.power(x, s32(5, 4, 3, 2, 0)),
        jnp.power(y, u32(0, 3, 2, 5, 2)),
    )


@SUBJECT.program(s32(-9, -3, 0, 4, 11), s32(-5, -5, -5, -5, -5), s32(5, 5, 2, 3, 4))
def integer_clamp(x, low, high):
    return lax.clamp(low, x, high), lax.clamp(np.int32(-2), x, np.int32(6))


@SUBJECT.program(s32(-7, -6, -1, 0, 1, 6, 7), s32(3, -3, 3, 3, -3, -4, 2))
def floor_division(x, y):
    """numpy's division rounds down: JAX makes it of `divide`, `remainder`, `sign` and `select`."""
    return x // y, x % y
