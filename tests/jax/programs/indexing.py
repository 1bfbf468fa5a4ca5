"""`gather` and `scatter`, as indexing lowers to them."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, f32, lattice, s8, s32, u8

SUBJECT = Subject("indexing")


@SUBJECT.program(lattice((6, 4)), s32([[0, 5], [2, 2], [-1, 3]]))
def embedding(table, ids):
    """Rows by number; a negative one counts from the end."""
    return table[ids], table[ids, 1], table.at[:, ids[0]].get()


@SUBJECT.program(lattice((3, 4)), s32([[3, 0], [1, 1], [2, -1]]))
def take_along(x, i):
    return jnp.take_along_axis(x, i, axis=1), jnp.take_along_axis(x, i[:1, :1], axis=0)


@SUBJECT.program(lattice((5, 3)), s32(-9, -1, 0, 4, 5, 99))
def out_of_bounds(x, i):
    """Clipped, filled with NaN or a value, and wrapped."""
    return (
        jnp.take(x, i, axis=0, mode="clip"),
        x.at[i].get(mode="fill", fill_value=-1.0),
        jnp.take(x, i, axis=0, mode="wrap"),
        jnp.take(x, i, axis=0),
    )


@SUBJECT.program(lattice((4, 5)), s32([[0, 1], [2, 4], [1, 3]]))
def windows_clamped(x, starts):
    """Windows of two rows and two columns; the ones past the end are moved to fit."""
    numbers = lax.GatherDimensionNumbers(offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(0, 1))
    return lax.gather(x, starts + 2, numbers, (2, 2), mode=lax.GatherScatterMode.CLIP)


@SUBJECT.program(lattice((3, 4, 2)), s32([[3], [0], [2]]))
def gather_batched(x, i):
    """A batch of arrays, each with its own indices."""
    return jax.vmap(lambda x, i: x[i])(x, i), jax.vmap(lambda x, i: lax.dynamic_slice(x, (i[0], 0), (2, 1)))(x, i)


@SUBJECT.program(lattice((3, 4, 2)), s32([[1, 2, 0], [0, 0, 3]]))
def index_vectors_first(x, i):
    """The index vectors lie along the first dimension, and the windows in the result's middle."""
    numbers = lax.GatherDimensionNumbers(offset_dims=(0, 2), collapsed_slice_dims=(1,), start_index_map=(0, 1))
    return lax.gather(x, i.T, numbers, (2, 1, 2), mode="clip")


@SUBJECT.program(u8([[1, 2], [3, 4]]), s8(1, 0, 1))
def narrow_indices(x, i):
    return x[i], x[:, i]


@SUBJECT.program(lattice((0, 3)), np.zeros((2, 0), np.int32), lattice((2, 3)))
def gather_of_nothing(x, i, y):
    return y[i], jnp.take(x, i[0], axis=0, mode="clip")


@SUBJECT.program(lattice((5,)), s32(0, 2, 2, 4, 2), lattice((5,)))
def scatter_combiners(x, i, y):
    """Duplicate indices combine in order."""
    return x.at[i].add(y), x.at[i].max(y), x.at[i].min(y), x.at[i].multiply(y)


@SUBJECT.program(lattice((4, 3)), s32(3, 0), lattice((2, 3)))
def scatter_rows(x, i, y):
    return x.at[i].set(y), x.at[i].add(y), x.at[:, 1].set(7.0), x.at[i, 2].set(y[:, 0])


@SUBJECT.program(lattice((4,)), s32(-5, -1, 3, 4, 100), f32(1, 2, 4, 8, 16))
def scatter_out_of_bounds(x, i, y):
    """Updates out of bounds are dropped; negative numbers count from the end."""
    return x.at[i].add(y), x.at[i].add(y, mode="drop"), x.at[i].set(y, mode="clip")


@SUBJECT.program(lattice((4, 4)), s32([[0, 1], [3, 2], [2, 2]]), lattice((3, 2, 2)))
def scatter_windows(x, starts, y):
    """Windows of two by two; one that would reach past the array is left out whole."""
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(1, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(0, 1)
    )
    return lax.scatter_add(x, starts, y, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)


@SUBJECT.program(lattice((3, 4)), s32(2, 0, 3), lattice((3,)))
def scatter_batched(x, i, y):
    return jax.vmap(lambda x, i, y: x.at[i].add(y))(x, i, y)


@SUBJECT.program(s32(5, 1, 5, 5, 0, 1, 7, -1))
def counts(x):
    """A histogram is a scatter of ones."""
    return jnp.bincount(x, length=6), jnp.zeros(8, jnp.int32).at[x].add(x)


@SUBJECT.program(lattice((4, 5)), s32(1, 4, 0, 2))
def cross_entropy_gradient(x, labels):
    """Integers: the gradient of a gather is a scatter."""
    return jax.grad(lambda x: jnp.take_along_axis(x, labels[:, None], axis=1).sum())(x)


@SUBJECT.program(lattice((6, 2)), s32(0, 0, 2, 1, 2, 2))
def segments(x, i):
    return jax.ops.segment_sum(x, i, num_segments=4), jax.ops.segment_max(x, i, num_segments=3)


@SUBJECT.program(lattice((3,)), s32(1, 1, 2), s32(4, 5, 6))
def scatter_apply(x, i, n):
    """A combination that is no single operation."""
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    return lax.scatter_apply(x, i[:, None], lambda y: y * 2 + 1, numbers, update_shape=(3,))
