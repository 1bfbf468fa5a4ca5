"""Instructions that make and move data: constants, iota, shapes, slices."""

import ml_dtypes
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, f32, lattice, s32, s64, u8

SUBJECT = Subject("data")

INF, NAN = float("inf"), float("nan")


@SUBJECT.program(f32(0.0), lost_on_xla="XLA's reader takes -0 for 0, and both parts of (nan, -inf) for NaN")
def constants(x):
    """The ways in which HLO text writes literals."""
    return (
        x + f32(-1.5),
        jnp.array([1.0, -0.0, INF, -INF, NAN, 1e-30, 3.4028235e38, 0.1], jnp.float32),
        jnp.array([[1, -2, 3], [4, 5, -6]], jnp.int32),
        jnp.array([[[1, 2]], [[3, 4]]], jnp.uint8),
        jnp.array([True, False, True]),
        jnp.array([1 + 2j, -3.5j, complex(NAN, -INF)], jnp.complex64),
        jnp.array([0.1, -2.0], jnp.bfloat16),
        jnp.array([0.1, 65504.0], jnp.float16),
        jnp.array([0.5, -448.0], jnp.float8_e4m3fn),
        jnp.array([-8, 7, 3], jnp.int4),
        jnp.zeros((2, 0, 3), jnp.float32),
        jnp.int32(7),
        jnp.bool_(True),
    )


@SUBJECT.program(s64(1), x64=True)
def constants_64(x):
    return (
        x + s64(2**62 + 1),
        jnp.array([2**63 - 1, -(2**63)], jnp.int64),
        jnp.array([2**64 - 1, 5], jnp.uint64),
        jnp.array([0.1, 1e-300, 1.7976931348623157e308, -NAN], jnp.float64),
        jnp.array([1.5 - 2.5j], jnp.complex128),
    )


@SUBJECT.program()
def iotas():
    """`iota` of several types, along each dimension."""
    return (
        lax.iota(jnp.int32, 7),
        lax.broadcasted_iota(jnp.float32, (2, 3), 0),
        lax.broadcasted_iota(jnp.float32, (2, 3), 1),
        lax.broadcasted_iota(jnp.uint8, (2, 3, 2), 1),
        lax.iota(jnp.bfloat16, 5),
        lax.iota(jnp.complex64, 3),
        lax.iota(jnp.int32, 0),
    )


@SUBJECT.program(f32(2.5), f32([1, 2, 3]), lattice((2, 3)))
def broadcasts(scalar, vector, matrix):
    return (
        lax.broadcast(scalar, (2, 2)),
        lax.broadcast_in_dim(vector, (3, 2), (0,)),
        lax.broadcast_in_dim(vector, (2, 3), (1,)),
        lax.broadcast_in_dim(matrix, (2, 2, 3, 2), (1, 2)),
        matrix + vector,
        matrix * jnp.ones((4, 1, 1), jnp.float32),
    )


@SUBJECT.program(lattice((2, 3, 4)))
def reshapes_and_transposes(x):
    return (
        x.reshape(6, 4),
        x.reshape(24),
        x.reshape(4, 1, 3, 2),
        x.transpose(2, 0, 1),
        x.transpose(1, 2, 0).reshape(3, 8),
        lax.squeeze(x[:1], (0,)),
        lax.expand_dims(x, (0, 2)),
    )


@SUBJECT.program(lattice((5, 7)), np.arange(10, dtype=np.int32))
def slices(x, y):
    return x[1:4, 2:], x[::2, 1:6:3], y[2:9:3], y[4:4], lax.slice(x, (0, 6), (5, 7)), y[3]


@SUBJECT.program(lattice((2, 3)))
def reversals(x):
    return x[::-1], x[:, ::-1], lax.rev(x, (0, 1))


@SUBJECT.program(lattice((4, 5)), s32([-9, 1, 99]), s32([0, 2, 3]))
def dynamic_slices(x, row, column):
    """Starts out of range clamp, so that the slice lies inside. `lax` passes them on unchanged."""
    return tuple(lax.dynamic_slice(x, (row[i], column[j]), (2, 3)) for i in range(3) for j in range(3))


@SUBJECT.program(lattice((4, 5)), f32([[100, 101], [102, 103]]), s32([-1, 2, 2**31 - 1]), u8([0, 4, 255]))
def dynamic_updates(x, update, row, column):
    """Starts of two integer types; those out of range clamp."""
    return tuple(lax.dynamic_update_slice(x, update, (row[i], column[i].astype(jnp.int32))) for i in range(3))


@SUBJECT.program(s64([1, -5, 2**40]), lattice((6,), np.float64), x64=True)
def dynamic_slices_64(start, x):
    return tuple(lax.dynamic_slice(x, (start[i],), (2,)) for i in range(3))


@SUBJECT.program(lattice((2, 3)), lattice((2, 1)), lattice((2, 2)), np.zeros((2, 0), np.float32))
def concatenations(x, y, z, empty):
    return lax.concatenate([x, y, empty, z], 1), lax.concatenate([x, x], 0), jnp.stack([x, -x], axis=2)


@SUBJECT.program(lattice((3, 4)), f32(9.0))
def pads(x, value):
    """Edge, interior and negative padding."""
    return (
        lax.pad(x, value, ((1, 2, 0), (0, 1, 0))),
        lax.pad(x, value, ((0, 0, 1), (0, 0, 2))),
        lax.pad(x, value, ((-1, 0, 0), (-1, -2, 0))),
        lax.pad(x, value, ((-1, 3, 1), (2, -4, 2))),
        lax.pad(x, value, ((-2, -1, 0), (0, 0, 0))),
        jnp.pad(np.arange(3, dtype=np.int32), (2, 1)),
    )


@SUBJECT.program(f32(1.5), s32([1, 2]))
def nested_tuples(x, y):
    """JAX flattens what it returns: the leaves come in this order."""
    return {"b": (x, {"c": y}), "a": [(), (y + 1, (x * 2,))]}


@SUBJECT.program(f32([1, 2, 3]), f32([4, 5, 6]))
def unused_and_passed_through(x, y):
    """A parameter that nothing uses, and one that is a result twice."""
    return x, x


@SUBJECT.program(np.zeros((0, 3), np.float32), np.float32(2.0))
def empty_arrays(x, scalar):
    return x + 1, x.sum(axis=0), x.sum(), jnp.concatenate([x, x]), scalar * 2, x.T


def roundtrip(*leaves):
    """Every type through the program unchanged, and through `select` and `slice`, which no type
    refuses."""
    return tuple(jnp.concatenate([leaf[2:], leaf[:2]]) for leaf in leaves)


NARROW = (
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.bfloat16,
    np.float16,
    np.int8,
    np.uint16,
    np.bool_,
    np.complex64,
)
SUBJECT.add("data_movement_by_type", roundtrip, *(np.array([0, 1, 2, 3]).astype(dtype) for dtype in NARROW))
SUBJECT.add(
    "data_movement_s4",
    roundtrip,
    *(np.array([0, 1, 2, 7]).astype(dtype) for dtype in (ml_dtypes.int4, ml_dtypes.uint4)),
)


@SUBJECT.program(np.float32(1.0), status={"code": "INVALID_ARGUMENT", "contains": "{...}"})
def elided_constant(x):
    """JAX leaves out the values of constants with more than ten elements. Such a text cannot be
    run, only refused."""
    return x + lattice((11,))
