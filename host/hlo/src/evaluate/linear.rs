//! Cholesky factors and triangular systems, computed in `f64`.

use std::ops::{Add, Div, Mul, Neg, Sub};

use num_complex::Complex;

use super::array::Array;
use super::complex;
use super::wide::{Kind, Wide};
use super::{bug, zeroed};
use crate::instruction::{Transposition, TriangularSolve};
use callbox_core::values::{ElementType, Result};

/// Checks whether a long operation goes on.
pub(super) type Check<'a> = &'a dyn Fn() -> Result<()>;

/// Real or complex numbers.
pub(super) trait Field:
    Wide + Neg<Output = Self> + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
    fn over(self, divisor: Self) -> Self;
    fn conjugate(self) -> Self;
    fn of_real(real: f64) -> Self;
    fn real(self) -> f64;
    fn imaginary(self) -> f64;
    /// The sum of the parts' magnitudes, by which LAPACK chooses pivots.
    fn size(self) -> f64 {
        self.real().abs() + self.imaginary().abs()
    }
}

impl Field for f64 {
    fn over(self, divisor: Self) -> Self {
        Div::div(self, divisor)
    }
    fn conjugate(self) -> Self {
        self
    }
    fn of_real(real: f64) -> Self {
        real
    }
    fn real(self) -> f64 {
        self
    }
    fn imaginary(self) -> f64 {
        0.0
    }
}

impl Field for Complex<f64> {
    fn over(self, divisor: Self) -> Self {
        complex::divide(self, divisor)
    }
    fn conjugate(self) -> Self {
        self.conj()
    }
    fn of_real(real: f64) -> Self {
        real.into()
    }
    fn real(self) -> f64 {
        self.re
    }
    fn imaginary(self) -> f64 {
        self.im
    }
}

/// Runs `$body` with `$type` as the wide type of an element type.
macro_rules! in_field {
    ($element_type:expr, $type:ident => $body:expr) => {
        match Kind::of($element_type)? {
            Kind::Real => {
                type $type = f64;
                $body
            }
            Kind::Complex => {
                type $type = Complex<f64>;
                $body
            }
            _ => Err(bug(
                "expected matrices of floating-point or complex numbers",
            )),
        }
    };
}
pub(super) use in_field;

/// The factor of each matrix in one triangle, and zeros in the other one. The triangle of a matrix
/// that is not positive definite is NaN.
pub(super) fn cholesky(a: &Array<'_>, lower: bool, check: Check<'_>) -> Result<Vec<u8>> {
    let &[.., n, _] = a.dimensions() else {
        return Err(bug("a matrix has two dimensions"));
    };
    in_field!(a.shape.element_type(), T => {
        let mut values = decoded::<T>(a)?;
        for matrix in values.chunks_exact_mut((n * n).max(1)) {
            let is_definite = factor(matrix, n, lower, check)?.is_none();
            for (at, value) in matrix.iter_mut().enumerate() {
                let (i, j) = (at / n, at % n);
                if if lower { j > i } else { j < i } {
                    *value = T::of_real(0.0);
                } else if !is_definite {
                    *value = T::of_real(f64::NAN);
                }
            }
        }
        encoded(&values, a.shape.element_type())
    })
}

/// Replaces one triangle of a matrix by its factor. Gives the order of the first minor that is not
/// positive; the triangle is then half done.
pub(super) fn factor<T: Field>(
    a: &mut [T],
    n: usize,
    lower: bool,
    check: Check<'_>,
) -> Result<Option<usize>> {
    // The upper factor is the adjoint of the lower one, element by element.
    let at = |i: usize, j: usize| if lower { i * n + j } else { j * n + i };
    for j in 0..n {
        check()?;
        let known = (0..j).map(|k| {
            let x = a[at(j, k)];
            x.real() * x.real() + x.imaginary() * x.imaginary()
        });
        let square = a[at(j, j)].real() - known.sum::<f64>();
        if square.is_nan() || square <= 0.0 {
            return Ok(Some(j + 1));
        }
        let pivot = T::of_real(square.sqrt());
        a[at(j, j)] = pivot;
        for i in j + 1..n {
            let mut rest = a[at(i, j)];
            for k in 0..j {
                rest = rest - a[at(i, k)] * a[at(j, k)].conjugate();
            }
            a[at(i, j)] = rest.over(pivot);
        }
    }
    Ok(None)
}

/// The solution of each system.
pub(super) fn triangular_solve(
    [a, b]: [Array<'_>; 2],
    options: &TriangularSolve,
    check: Check<'_>,
) -> Result<Vec<u8>> {
    let (&[.., n, _], &[.., rows, columns]) = (a.dimensions(), b.dimensions()) else {
        return Err(bug("a matrix has two dimensions"));
    };
    in_field!(a.shape.element_type(), T => {
        let (matrices, mut sides) = (decoded::<T>(&a)?, decoded::<T>(&b)?);
        let matrices = matrices.chunks_exact((n * n).max(1));
        let pairs = std::iter::zip(matrices, sides.chunks_exact_mut((rows * columns).max(1)));
        for (matrix, sides) in pairs {
            solve(matrix, n, sides, columns, options, check)?;
        }
        encoded(&sides, a.shape.element_type())
    })
}

/// Replaces right-hand sides by their solutions. `columns` is the number of columns of `sides`.
fn solve<T: Field>(
    a: &[T],
    n: usize,
    sides: &mut [T],
    columns: usize,
    options: &TriangularSolve,
    check: Check<'_>,
) -> Result<()> {
    // `X op(A) = B` is `op(A)ᵀ Xᵀ = Bᵀ`.
    let is_transposed = (options.transpose != Transposition::None) == options.left_side;
    let element = |i: usize, j: usize| {
        let x = if is_transposed {
            a[j * n + i]
        } else {
            a[i * n + j]
        };
        if options.transpose == Transposition::Adjoint {
            x.conjugate()
        } else {
            x
        }
    };
    let (count, step, next) = if options.left_side {
        (columns, columns, 1)
    } else {
        (sides.len() / n.max(1), 1, columns)
    };
    let forward = options.lower != is_transposed;
    for side in 0..count {
        check()?;
        let at = |i: usize| side * next + i * step;
        for done in 0..n {
            let i = if forward { done } else { n - 1 - done };
            let known = if forward { 0..i } else { i + 1..n };
            let mut rest = sides[at(i)];
            for k in known {
                rest = rest - element(i, k) * sides[at(k)];
            }
            sides[at(i)] = if options.unit_diagonal {
                rest
            } else {
                rest.over(element(i, i))
            };
        }
    }
    Ok(())
}

pub(super) fn decoded<T: Field>(x: &Array<'_>) -> Result<Vec<T>> {
    let mut values = zeroed(x.shape.element_count())?;
    T::decode(x.shape.element_type(), x.bytes, &mut values)?;
    Ok(values)
}

pub(super) fn encoded<T: Field>(values: &[T], to: ElementType) -> Result<Vec<u8>> {
    let mut bytes = zeroed(values.len() * to.byte_width())?;
    T::encode(values, to, &mut bytes)?;
    Ok(bytes)
}
