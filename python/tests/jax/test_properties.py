"""Jitted calls compared with NumPy, for any dtype, shape and layout, donated or not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import callbox.jax

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
DTYPES = st.sampled_from(
    [np.bool_, np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.float16, np.float32, np.complex64]
)
NUMBERS = st.floats(-1e6, 1e6, width=32)


@settings(deadline=None, max_examples=25)
@given(data=st.data(), dtype=DTYPES)
def test_any_array_comes_back_as_it_went_in(load, data, dtype):
    x = data.draw(hnp.arrays(dtype, SHAPES))
    permutation = data.draw(st.permutations(range(x.ndim)))
    donated = data.draw(st.booleans())

    def program(x):
        x = jnp.transpose(x, permutation)
        return callbox.jax.call(
            load("typed_ffi").copy_any, x, result_shape_dtypes=x, input_output_aliases={0: 0} if donated else None
        )

    y = jax.jit(program, donate_argnums=0 if donated else ())(jnp.array(x))
    expected = np.transpose(x, permutation)
    assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
    assert np.asarray(y).tobytes() == expected.tobytes()


@settings(deadline=None, max_examples=20)
@given(data=st.data(), x=hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=4, max_side=3), elements=NUMBERS))
def test_any_nest_of_batches_is_numpys(load, data, x):
    """Each vmap maps another axis, and the target gets the remaining ones."""
    depth = data.draw(st.integers(0, x.ndim))
    axes = [data.draw(st.integers(-(x.ndim - i), x.ndim - i - 1)) for i in range(depth)]
    function = lambda x: callbox.jax.call(load("add_n").add_n, x, n=1.5)  # noqa: E731
    expected = x
    for i, axis in enumerate(axes):
        expected = np.moveaxis(expected, i + axis % (x.ndim - i), i)
    for axis in reversed(axes):
        function = jax.vmap(function, axis)
    np.testing.assert_array_equal(function(x), expected + np.float32(1.5))
