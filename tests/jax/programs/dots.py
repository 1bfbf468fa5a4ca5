"""`dot`: contracting and batch dimensions, element types."""

import jax
import ml_dtypes
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, array, lattice

SUBJECT = Subject("dots")


@SUBJECT.program(lattice((3, 4)), lattice((4, 2)), lattice((4,)))
def matrix_products(a, b, v):
    """Multiples of 1/8 up to 18/8: products and sums are exact in f32 in any order, fused or
    not."""
    return a @ b, a @ v, v @ v, jnp.outer(v, v), a.T @ a


@SUBJECT.program(lattice((2, 3, 4)), lattice((2, 4, 5)), lattice((4, 3, 2)))
def batched(a, b, c):
    """Batch dimensions first, in the middle, and two contracting dimensions in another order."""
    return (
        lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))),
        lax.dot_general(a, c, (((2, 1), (0, 1)), ((0,), (2,)))),
        lax.dot_general(a, c, (((1, 2), (1, 0)), ((), ()))),
        jnp.einsum("bij,jik->kbi", a, c),
        jnp.einsum("bij,bjk->ikb", a, b),
    )


@SUBJECT.program(lattice((2, 3)), np.zeros((3, 0), np.float32), np.zeros((0, 3), np.float32))
def empty_products(a, b, c):
    """Nothing to add up gives zero."""
    return a @ b, b @ c


SHORT = {
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "c64": np.complex64,
}

for short, dtype in SHORT.items():
    step = 1 if np.issubdtype(dtype, np.integer) else 0.5
    a, b = lattice((3, 4), np.float32, step, 11), lattice((4, 3), np.float32, step, 7)
    if short == "u8":
        a, b = abs(a), abs(b)
    if short == "c64":
        a, b = a + 1j * a[::-1], b - 0.5j
    SUBJECT.add(
        f"dot_{short}", lambda a, b: a @ b, a.astype(dtype), b.astype(dtype), optimized=short in ("s8", "bf16", "c64")
    )

SUBJECT.add(
    "dot_f64",
    lambda a, b: (a @ b, lax.dot(a, b, preferred_element_type=jnp.float64)),
    lattice((2, 3), np.float64),
    lattice((3, 2), np.float64),
    x64=True,
)


@SUBJECT.program(
    array(np.int8)([[100, -128, 3]]),
    array(np.int8)([[127], [-128], [2]]),
    lattice((2, 3), ml_dtypes.bfloat16),
    lattice((3, 2), ml_dtypes.bfloat16),
)
def wider_result(a, b, c, d):
    """`preferred_element_type`: s8 to s32, bf16 to f32."""
    return (
        lax.dot(a, b, preferred_element_type=jnp.int32),
        lax.dot(c, d, preferred_element_type=jnp.float32),
        lax.dot(a, b.astype(jnp.int32)[:, :1].astype(jnp.int8)),
    )


@SUBJECT.program(lattice((2, 3)), lattice((3, 2)))
def precision(a, b):
    """The instruction's `operand_precision`."""
    return jnp.dot(a, b, precision=jax.lax.Precision.HIGHEST), jnp.dot(a, b, precision="high")


@SUBJECT.program(lattice((16, 32)), lattice((32, 8)))
def larger_product(a, b):
    """Large enough for XLA:CPU to call a library; still exact in f32."""
    return a @ b
