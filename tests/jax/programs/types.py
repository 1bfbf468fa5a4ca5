"""Conversions: `convert` and `bitcast-convert`."""

import jax
import ml_dtypes
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, array, f32, f64, s8, s32, s64, u8, u32

SUBJECT = Subject("types")

INF, NAN = float("inf"), float("nan")
INTEGERS = (jnp.int8, jnp.int16, jnp.int32, jnp.uint8, jnp.uint16, jnp.uint32)
WIDE_INTEGERS = (*INTEGERS, jnp.int64, jnp.uint64)
FLOATS = (jnp.float16, jnp.bfloat16, jnp.float32)
F8 = {
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e3m4": ml_dtypes.float8_e3m4,
}


def to_all(types):
    """Conversions of one operand to each of the types."""
    return lambda x: tuple(x.astype(dtype) for dtype in types)


TRUNCATING = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 100.25, -100.25, 127.0, -128.0]
SATURATING = [300.0, -300.0, 70000.0, -70000.0, 3e9, -3e9, 1e20, -1e20, INF, -INF, NAN]

SUBJECT.add(
    "convert_s32",
    to_all((*INTEGERS, *FLOATS, jnp.bool_)),
    s32(0, 1, -1, 127, 128, -129, 65536, 2**24 + 1, -(2**31), 2**31 - 1),
)
SUBJECT.add("convert_u8", to_all((*INTEGERS, *FLOATS, jnp.bool_)), u8(0, 1, 2, 127, 128, 255))
SUBJECT.add(
    "convert_s64",
    to_all((*WIDE_INTEGERS, *FLOATS, jnp.float64, jnp.bool_)),
    s64(0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)),
    x64=True,
)
SUBJECT.add(
    "convert_f32_to_integers",
    lambda x: tuple(lax.convert_element_type(x, dtype) for dtype in (*INTEGERS, jnp.bool_)),
    f32(TRUNCATING + SATURATING),
    note="Towards zero; what is out of range becomes the nearest end of the type, NaN becomes 0.",
)
SUBJECT.add(
    "convert_f64_to_integers",
    lambda x: tuple(lax.convert_element_type(x, dtype) for dtype in (*WIDE_INTEGERS, jnp.bool_)),
    f64(TRUNCATING + SATURATING),
    x64=True,
    note="Towards zero; what is out of range becomes the nearest end of the type, NaN becomes 0.",
)
SUBJECT.add(
    "convert_f64_to_floats",
    to_all((*FLOATS, jnp.float64)),
    f64(0.0, -0.0, 1 / 3, 2049.0, 1.00390625, 1.01171875, 65504.0, 65520.0, 1e10, 1e300, INF, -INF, NAN),
    x64=True,
    note="Rounds to nearest, ties to even.",
)

for short, dtype in F8.items():
    SUBJECT.add(
        f"convert_{short}",
        lambda x, y, dtype=dtype: (x.astype(dtype), y.astype(jnp.float32), y.astype(jnp.bfloat16)),
        f32(0.0, 0.3, -0.3, 1.0, 1.0625, 1.1875, -7.7, 14.0, 15.4, 200.0, -239.0, 448.0, 1e6, -1e6, NAN),
        array(dtype)(0.0, 0.5, -1.75, 3.5, 6.0, -7.0),
        optimized=short in ("f8e5m2", "f8e4m3fn"),
        note="Rounds to nearest, ties to even; too large becomes infinity, or NaN where the type has no infinity.",
    )

SUBJECT.add(
    "convert_s4_u4",
    lambda x, y: (
        x.astype(jnp.int4),
        x.astype(jnp.uint4),
        y.astype(jnp.int4).astype(jnp.int32),
        y.astype(jnp.uint4).astype(jnp.float32),
    ),
    s8(0, 1, 7, 8, 15, 16, -1, -8, -9),
    u8(0, 7, 8, 15, 16, 255),
    note="Conversions between integers keep the low bits.",
)


@SUBJECT.program(
    array(F8["f8e4m3fn"])(0.5, -1.75, 3.5, 20.0, 448.0),
    array(F8["f8e5m2"])(0.5, -1.75, 3.5, 28.0, 57344.0),
)
def arithmetic_f8(x, y):
    """Each operation rounds to the type."""
    return x + x, x * x, -x, x < x * x, y + y, y * y


@SUBJECT.program(
    array(ml_dtypes.int4)(0, 3, -8, 7),
    array(ml_dtypes.uint4)(0, 3, 9, 15),
)
def arithmetic_s4(x, y):
    """Each operation keeps the low four bits."""
    return x + x, x * x, y + y, y * y


@SUBJECT.program(f32([1.0, -2.5, 0.1]), u32([0, 0x7F800000, 0xBF800000]), array(np.float16)([1.0, -2.0, 65504.0]))
def bitcast_same_width(x, y, z):
    as_type = jax.lax.bitcast_convert_type
    return (
        as_type(x, jnp.uint32),
        as_type(x, jnp.int32),
        as_type(y, jnp.float32),
        as_type(z, jnp.bfloat16),
        as_type(z, jnp.int16),
    )


@SUBJECT.program(
    f32([[1.0, -2.5], [0.1, 3e7]]), u8(np.arange(16).reshape(2, 2, 4)), array(np.uint16)([[1, 2], [0x3F80, 0xBF80]])
)
def bitcast_other_width(x, y, z):
    """A narrower type adds a minor dimension, a wider one takes it away; the low part comes
    first."""
    as_type = jax.lax.bitcast_convert_type
    return (
        as_type(x, jnp.uint8),
        as_type(x, jnp.bfloat16),
        as_type(y, jnp.float32),
        as_type(z, jnp.int32),
        as_type(z, jnp.int8),
    )


@SUBJECT.program(f64([1.0, -0.1]), u32([[0, 0x3FF00000], [1, 2]]), x64=True)
def bitcast_64(x, y):
    as_type = jax.lax.bitcast_convert_type
    return (
        as_type(x, jnp.uint64),
        as_type(x, jnp.uint32),
        as_type(y, jnp.float64),
        as_type(as_type(x, jnp.int64), jnp.float64),
    )
