//! Runs functions of LAPACK.

use num_complex::Complex;

use super::array::{Array, array};
use super::factors::Matrix;
use super::linear::{self, Check, Field, decoded, encoded, factor, in_field};
use super::wide::Kind;
use super::{bug, zeroed};
use crate::instruction::CustomCall;
use crate::lapack::{Routine, routine};
use callbox_core::values::{Literal, Result, Shape};

/// Runs the function that a custom call names.
pub(super) fn call(
    call: &CustomCall,
    shape: &Shape,
    operands: &[Literal],
    check: Check<'_>,
) -> Result<Literal> {
    let shapes = Vec::from_iter(operands.iter().map(Literal::shape));
    let unbound = || bug(format_args!("{:?} was not bound", call.target));
    let routine = routine(call, &shapes, shape)?.ok_or_else(unbound)?;
    let operands = operands.iter().map(array).collect::<Result<Vec<_>>>()?;
    let leaves = match (routine, &*operands) {
        (Routine::TriangularSolve(options), &[a, b]) => {
            vec![linear::triangular_solve([a, b], &options, check)?]
        }
        (Routine::HouseholderProduct, [a, scales]) => {
            in_field!(a.shape.element_type(), T => product::<T>(a, scales, check))?
        }
        (_, [a]) => in_field!(a.shape.element_type(), T => factors::<T>(routine, a, check))?,
        _ => return Err(bug("a function of LAPACK has other operands")),
    };
    Literal::from_leaves(shape.clone(), leaves).map_err(bug)
}

/// The rows and columns of matrices.
fn sizes(a: &Array<'_>) -> Result<[usize; 2]> {
    match a.dimensions() {
        &[.., rows, columns] => Ok([rows, columns]),
        _ => Err(bug("a matrix has two dimensions")),
    }
}

/// The factors of matrices, and what the function tells besides.
fn factors<T: Field>(routine: Routine, a: &Array<'_>, check: Check<'_>) -> Result<Vec<Vec<u8>>> {
    let [rows, columns] = sizes(a)?;
    let element_type = a.shape.element_type();
    let mut matrices = decoded::<T>(a)?;
    // A batch of empty matrices has an entry for each, however many there are.
    let batch = a.dimensions()[..a.dimensions().len() - 2].iter().product();
    let mut infos = match routine {
        Routine::Cholesky { .. } | Routine::Lu => zeroed::<i32>(batch)?,
        _ => Vec::new(),
    };
    let (mut pivots, mut scales) = (Vec::new(), Vec::new());
    let size = rows * columns;
    for (number, values) in matrices.chunks_exact_mut(size.max(1)).enumerate() {
        if let Routine::Cholesky { lower } = routine {
            infos[number] = factor(values, rows, lower, check)?.unwrap_or(0) as i32;
            continue;
        }
        let mut matrix = Matrix {
            values,
            rows,
            columns,
        };
        if routine == Routine::Lu {
            infos[number] = matrix.lu(&mut pivots, check)?;
        } else {
            matrix.qr(&mut scales, check)?;
        }
    }
    let numbers = |numbers: &[i32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let matrices = encoded(&matrices, element_type)?;
    Ok(match routine {
        Routine::Lu => vec![matrices, numbers(&pivots), numbers(&infos)],
        Routine::Qr => vec![matrices, encoded(&scales, element_type)?],
        _ => vec![matrices, numbers(&infos)],
    })
}

/// The products of reflectors.
fn product<T: Field>(a: &Array<'_>, scales: &Array<'_>, check: Check<'_>) -> Result<Vec<Vec<u8>>> {
    let [rows, columns] = sizes(a)?;
    let mut matrices = decoded::<T>(a)?;
    let number = scales.dimensions().last().copied().unwrap_or(0);
    let scales = decoded::<T>(scales)?;
    let values = matrices.chunks_exact_mut((rows * columns).max(1));
    for (matrix, values) in values.enumerate() {
        let mut product = Matrix {
            values,
            rows,
            columns,
        };
        product.product(&scales[matrix * number..][..number], check)?;
    }
    Ok(vec![encoded(&matrices, a.shape.element_type())?])
}
