"""Operations that slide a window: `reduce-window`, `select-and-scatter`, `convolution`."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, bf16, lattice, s32

SUBJECT = Subject("windows")


@SUBJECT.program(lattice((6,)), lattice((3, 4)), s32(1, -2, 3, 4))
def cumulative(x, y, z):
    return (
        jnp.cumsum(x),
        jnp.cumsum(y, axis=0),
        lax.cumsum(x, reverse=True),
        lax.cummax(y, axis=1),
        lax.cummin(x),
        jnp.cumprod(z),
    )


@SUBJECT.program(lattice((1, 5, 6, 2)))
def pooling(x):
    def pool(initial, f, size, strides, padding):
        return lax.reduce_window(x, np.float32(initial), f, (1, *size, 1), (1, *strides, 1), padding)

    return (
        pool(-np.inf, lax.max, (2, 2), (2, 2), "VALID"),
        pool(0, lax.add, (3, 2), (1, 2), "SAME"),
        pool(np.inf, lax.min, (2, 3), (3, 1), ((0, 0), (1, 2), (0, 1), (0, 0))),
    )


@SUBJECT.program(lattice((7,)), lattice((4,)))
def dilated_windows(x, y):
    """Dilation of the window, dilation of the base, and both."""

    def sums(x, size, **options):
        return lax.reduce_window(x, np.float32(0), lax.add, (size,), (2,), ((1, 1),), **options)

    return (
        sums(x, 3, window_dilation=(2,)),
        sums(y, 2, base_dilation=(3,)),
        sums(y, 3, base_dilation=(2,), window_dilation=(2,)),
    )


@SUBJECT.program(lattice((5,)), lattice((3, 4)))
def windows_with_start(x, y):
    """An initial value that is not neutral counts once in each window, whatever its padding."""

    def windows(x, start, f, size, padding, **options):
        strides = (1,) * x.ndim
        return lax.reduce_window(x, np.float32(start), f, size, strides, padding, **options)

    return (
        windows(x, 2, lax.add, (3,), ((1, 1),)),
        windows(x, 0.5, lax.max, (2,), ((3, 0),)),
        windows(x, 4, lax.add, (2,), ((0, 0),), base_dilation=(2,)),
        windows(y, -1, lax.min, (2, 3), "SAME"),
    )


@SUBJECT.program(lattice((4, 3)), s32([[3, 1, 2], [0, 9, 4], [7, 8, 5], [6, 6, 1]]))
def window_of_several(x, y):
    """Two operands at once: the value at the smallest key."""

    def least(left, right):
        first = left[1] <= right[1]
        return jnp.where(first, left[0], right[0]), jnp.where(first, left[1], right[1])

    return lax.reduce_window(
        (x, y), (np.float32(0), np.int32(1000)), least, (2, 2), (1, 1), ((0, 1), (1, 0))
    )


@SUBJECT.program(lattice((8,)), lattice((1, 4, 6, 1)), s32(5, 5, 5, 1, 2, 2))
def pooling_gradients(x, y, z):
    """The gradient of a maximum goes to the first of equal elements."""

    def pooled(x, size, strides, padding):
        initial = -np.inf if x.dtype == np.float32 else np.iinfo(np.int32).min
        return lax.reduce_window(x, np.array(initial, x.dtype), lax.max, size, strides, padding)

    def overlapping(x):
        return (pooled(x, (3,), (2,), "SAME") * jnp.array([1.0, 2.0, 4.0, 8.0])).sum()

    def planes(y):
        return (pooled(y, (1, 2, 3, 1), (1, 2, 2, 1), "VALID") ** 2).sum()

    return jax.grad(overlapping)(x), jax.grad(planes)(y), pooled(z, (2,), (2,), "VALID")


@SUBJECT.program(lattice((2, 3, 6)), lattice((4, 3, 3)))
def convolutions_1d(x, w):
    def conv(**options):
        options = {"window_strides": (1,), "padding": "SAME"} | options
        return lax.conv_general_dilated(x, w, **options)

    return (
        conv(),
        conv(window_strides=(2,), padding="VALID"),
        conv(padding=((2, 1),), lhs_dilation=(2,)),
        conv(padding=((3, 3),), rhs_dilation=(2,)),
        conv(padding=((-1, 0),)),
    )


@SUBJECT.program(lattice((1, 5, 6, 4)), lattice((3, 2, 4, 2)), lattice((3, 3, 2, 4)), lattice((2, 2, 1, 8)))
def convolutions_2d(x, plain, grouped, depthwise):
    """Channels last; all features at once, in two groups, and each by itself."""

    def conv(w, strides, padding, groups=1):
        names = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, w, strides, padding, dimension_numbers=names, feature_group_count=groups
        )

    return (
        conv(plain, (1, 1), "SAME"),
        conv(grouped, (2, 1), "VALID", 2),
        conv(depthwise, (1, 2), "SAME", 4),
    )


@SUBJECT.program(lattice((2, 4, 5, 2)), lattice((3, 3, 2, 4), step=0.25))
def convolution_gradients(x, w):
    """The gradients reverse the kernel, dilate, and swap the batch with the features."""

    def f(x, w):
        y = lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return y.sum()

    return jax.grad(f, (0, 1))(x, w)


@SUBJECT.program(lattice((2, 4, 5, 4)), lattice((2, 2, 2, 4)))
def grouped_gradients(x, w):
    """The gradient of a grouped convolution has groups of the batch."""

    def f(x, w):
        names = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=names, feature_group_count=2).sum()

    return jax.grad(f, (0, 1))(x, w)


@SUBJECT.program(lattice((1, 2, 4)), lattice((2, 2, 3)))
def transposed_convolution(x, w):
    return lax.conv_transpose(x, w, (2,), "SAME", dimension_numbers=("NCW", "OIW", "NCW"))


@SUBJECT.program(s32([[[1, -2, 3, 4]]]), s32([[[2, 1]]]), bf16([[[1, 2, 3, 4]]]), bf16([[[0.5, -1]]]))
def convolution_types(x, v, y, w):
    return (
        lax.conv_general_dilated(x, v, (1,), "VALID"),
        lax.conv_general_dilated(y, w, (1,), "VALID"),
        lax.conv_general_dilated(y, w, (1,), "SAME", preferred_element_type=np.float32),
    )
