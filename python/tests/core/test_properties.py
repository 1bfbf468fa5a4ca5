"""Direct calls compared with NumPy, for any dtype, shape and layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
DTYPES = st.sampled_from([np.bool_, *INTEGERS, np.float16, np.float32, np.float64, np.complex64, np.complex128])
NUMBERS = st.floats(-1e6, 1e6, width=32)


@st.composite
def views(draw, dtype, elements=None):
    """Arrays of any layout: permuted, reversed, strided or broadcast."""
    x = draw(hnp.arrays(dtype, SHAPES, elements=elements))
    x = np.transpose(x, draw(st.permutations(range(x.ndim))))
    steps = tuple(slice(None, None, draw(st.sampled_from([1, -1, 2]))) for _ in range(x.ndim))
    x = x[steps] if steps else x
    return np.broadcast_to(x, (2, *x.shape)) if draw(st.booleans()) and x.ndim < 4 else x


@settings(deadline=None, max_examples=60)
@given(data=st.data(), dtype=DTYPES)
def test_any_array_comes_back_as_it_went_in(load, data, dtype):
    x = data.draw(views(dtype))
    y = load("typed_ffi").copy_any(x, result_shape_dtypes=x)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert y.flags.c_contiguous
    assert y.tobytes() == x.tobytes()


@settings(deadline=None, max_examples=60)
@given(x=views(np.float32, NUMBERS), n=st.floats(0, 1e6, width=32), in_place=st.booleans())
def test_add_n_is_numpys(load, x, n, in_place):
    expected = x + np.float32(n)
    out = np.ascontiguousarray(x).reshape(x.shape) if in_place else None
    out = out.copy() if out is not None else None
    y = load("add_n").add_n(x if out is None else out, n=n, out=out)
    assert out is None or y is out
    np.testing.assert_array_equal(y, expected)


@settings(deadline=None, max_examples=30)
@given(x=views(np.float64, st.floats(-100, 100)))
def test_softmax_is_numpys(load, x):
    if x.ndim == 0:
        with pytest.raises(ValueError, match=r"expected x: \[\.\., n\] but got \[\]"):
            load("softmax").softmax(x, result_shape_dtypes=x)
        return
    y = load("softmax").softmax(x, result_shape_dtypes=x)
    if x.size:
        e = np.exp(x - x.max(-1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-12, atol=1e-15)
    assert y.shape == x.shape


@settings(deadline=None, max_examples=40)
@given(text=st.text(), numbers=hnp.arrays(np.int32, hnp.array_shapes(max_dims=3, min_side=0, max_side=3)))
def test_any_attribute_arrives_as_it_is(load, text, numbers):
    module = load("typed_ffi")
    data = text.encode()
    assert bytes(module.text(text=text, result_shape_dtypes=("uint8", (len(data),)))) == data
    said = [numbers.ndim, *numbers.shape, *numbers.ravel()[:1], *numbers.ravel()[-1:]]
    found = module.array_shape(array=numbers, result_shape_dtypes=("int64", (len(said),)))
    assert found.tolist() == said
