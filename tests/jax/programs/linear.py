"""Linear algebra, which JAX lowers to functions of LAPACK on CPU."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.scipy import linalg

from .registry import Subject, c64, f32, lattice, wave

SUBJECT = Subject("linear")


def definite(shape, dtype=np.float32):
    """Symmetric matrices of small integers with a large diagonal."""
    a = np.round(lattice(shape, step=1, span=7))
    a = a + np.swapaxes(a, -1, -2)
    return (a + 32 * np.eye(shape[-1])).astype(dtype)


HERMITIAN = c64([[9, 2 - 1j, 1j], [2 + 1j, 8, 3], [-1j, 3, 7]])


@SUBJECT.program(definite((3, 3)), definite((2, 4, 4)), ulps=16)
def cholesky(x, y):
    return jnp.linalg.cholesky(x), jnp.linalg.cholesky(y), linalg.cholesky(x, lower=False)


@SUBJECT.program(HERMITIAN, definite((3, 3), np.float64), x64=True, ulps=16)
def cholesky_types(x, y):
    return jnp.linalg.cholesky(x), jnp.linalg.cholesky(y)


@SUBJECT.program(f32([[1, 2], [2, 1]]), np.stack([definite((2, 2)), -definite((2, 2))]), ulps=16)
def cholesky_of_indefinite(x, y):
    """A matrix that is not positive definite has no factor: NaN."""
    return jnp.linalg.cholesky(x), jnp.linalg.cholesky(y)


def triangular(a, b, **options):
    return lax.linalg.triangular_solve(a, b, **options)


A = f32([[2, -1, 4], [1, 4, -2], [3, 5, 8]])


@SUBJECT.program(A, lattice((3, 2)), lattice((2, 3)), ulps=32)
def triangular_solves(a, b, c):
    """Both sides, both triangles, transposed and not, with and without a diagonal of ones."""
    return (
        triangular(a, b, left_side=True, lower=True),
        triangular(a, b, left_side=True, lower=False, transpose_a=True),
        triangular(a, b, left_side=True, lower=True, unit_diagonal=True),
        triangular(a, c, left_side=False, lower=True),
        triangular(a, c, left_side=False, lower=False, transpose_a=True),
        triangular(a, c, left_side=False, lower=False, unit_diagonal=True),
    )


@SUBJECT.program(HERMITIAN, c64([[1, 2j], [3, 1 - 1j], [0, 5]]), ulps=64)
def triangular_complex(a, b):
    """The conjugate of the transpose, and the transpose alone."""
    return (
        triangular(a, b, left_side=True, lower=True, transpose_a=True, conjugate_a=True),
        triangular(a, b, left_side=True, lower=True, transpose_a=True),
        triangular(a, jnp.swapaxes(b, 0, 1), left_side=False, lower=False, transpose_a=True, conjugate_a=True),
    )


@SUBJECT.program(definite((2, 3, 3)), lattice((2, 3)), ulps=64)
def cholesky_solve(a, b):
    """A batch of systems."""
    return jax.vmap(lambda a, b: linalg.cho_solve(linalg.cho_factor(a), b))(a, b)


@SUBJECT.program(f32([[1, 2, 4], [3, 5, -2], [-4, 1, 8]]), lattice((4, 2, 3)), f32([[0, 1], [2, 3]]), ulps=64)
def lu(x, y, z):
    """Pivots; matrices that are not square; a first pivot of 0."""
    return linalg.lu_factor(x), lax.linalg.lu(y), linalg.lu(z)


@SUBJECT.program(f32([[2, 1], [1, 3]]), f32([[1, 2], [3, 4]]), f32([[1, 2], [2, 4]]), ulps=64)
def solve_and_invert(a, b, singular):
    """A singular matrix has a determinant of 0."""
    return jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.det(b), jnp.linalg.det(singular)


@SUBJECT.program(lattice((4, 3), step=1), lattice((3, 4), step=1), ulps=32)
def qr(x, y):
    """Reduced and complete factors. The bounds are those of numbers away from 0."""
    factors = *jnp.linalg.qr(x), *jnp.linalg.qr(y), jnp.linalg.qr(x, mode="complete")[0]
    return [factor + 64 for factor in factors]


@SUBJECT.program(HERMITIAN, ulps=32)
def qr_complex(x):
    """The bounds are those of numbers away from 0."""
    return [part(factor) + 64 for factor in jnp.linalg.qr(x) for part in (jnp.real, jnp.imag)]


@SUBJECT.program(wave((3, 3)).astype(np.float16) + 2 * np.eye(3, dtype=np.float16), lattice((3, 2), np.float16), ulps=64)
def triangular_half(a, b):
    """A type that LAPACK lacks: the instruction itself."""
    return triangular(a, b, left_side=True, lower=True), triangular(a, b, left_side=True, transpose_a=True)


@SUBJECT.program(definite((3, 3)), HERMITIAN, ulps=16, platform="tpu", optimized=False)
def cholesky_instruction(x, y):
    """The instruction itself, which JAX prints for TPU."""
    return jnp.linalg.cholesky(x), lax.linalg.cholesky(y, symmetrize_input=False)


@SUBJECT.program(
    definite((3, 3)),
    status={"code": "NOT_FOUND", "contains": ["lapack_ssyevd_ffi", "it is LAPACK's"]},
)
def eigenvalues(x):
    return jnp.linalg.eigvalsh(x)
