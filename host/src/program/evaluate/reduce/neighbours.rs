//! Reductions by a computation of scalars: neighbours are combined, all of them at once, until one is left of each row.

use super::super::array::{Array, array, repeat};
use super::super::strided::{Strides, copy};
use super::super::{bug, lift, share, zeroed};
use super::{Rows, line, matrix};
use crate::program::instruction::{Computation, Program};
use crate::values::{Literal, Result, Shape};

/// Combines neighbours until one is left of each row.
pub(super) fn combine(
    shape: &Shape,
    mut inputs: Vec<Literal>,
    initial: &[Literal],
    rows: Rows,
    called: &Computation,
    program: &Program,
) -> Result<Literal> {
    let mut count = rows.count;
    while count > 1 {
        let size = rows.results * (count / 2);
        let even = inputs
            .iter()
            .map(|x| every_other(x, 0, count / 2))
            .collect::<Result<Vec<_>>>()?;
        let odd = inputs
            .iter()
            .map(|x| every_other(x, 1, count / 2))
            .collect::<Result<Vec<_>>>()?;
        let combined = lift::run(called, &[even, odd].concat(), size, program)?.into_elements();
        let widened = std::iter::zip(&inputs, combined);
        inputs = widened
            .map(|(x, half)| with_last(x, &half, count))
            .collect::<Result<Vec<_>>>()?;
        count = count.div_ceil(2);
    }
    let initial = initial
        .iter()
        .map(|x| spread(&array(x)?, rows.results))
        .collect::<Result<Vec<_>>>()?;
    let lines = inputs
        .iter()
        .map(|x| line(&array(x)?))
        .collect::<Result<Vec<_>>>()?;
    share(
        shape,
        &[&lift::run(
            called,
            &[initial, lines].concat(),
            rows.results,
            program,
        )?],
    )
}

/// Every other column of a matrix, beginning with the one of number `start`: `count` columns.
fn every_other(x: &Literal, start: usize, count: usize) -> Result<Literal> {
    let x = array(x)?;
    let [rows, columns] = *x.dimensions() else {
        return Err(bug("expected a matrix"));
    };
    let width = x.width();
    let mut bytes = zeroed(rows * count * width)?;
    let step = width as isize;
    let from = Strides {
        start: start * width,
        steps: vec![step * columns as isize, 2 * step],
    };
    let to = Strides::dense(&[rows, count], width);
    copy(&[rows, count], width, (x.bytes, &from), (&mut bytes, &to))?;
    matrix(x.shape.element_type(), &[rows * count], bytes)
}

/// A matrix of `half`, and behind it, if `count` is odd, the last column of `x`, which has `count`.
fn with_last(x: &Literal, half: &Literal, count: usize) -> Result<Literal> {
    let (x, half) = (array(x)?, array(half)?);
    let rows = x.dimensions().first().copied().unwrap_or(0);
    if count.is_multiple_of(2) {
        return matrix(
            half.shape.element_type(),
            &[rows, count / 2],
            half.bytes.to_vec(),
        );
    }
    let width = x.width();
    let (row, last) = (count / 2 * width, (count - 1) * width);
    let mut bytes = zeroed(rows * (row + width))?;
    let parts = std::iter::zip(
        half.bytes.chunks_exact(row),
        x.bytes.chunks_exact(count * width),
    );
    for (to, (half, x)) in std::iter::zip(bytes.chunks_exact_mut(row + width), parts) {
        let (to_half, to_last) = to.split_at_mut(row);
        to_half.copy_from_slice(half);
        to_last.copy_from_slice(&x[last..]);
    }
    matrix(x.shape.element_type(), &[rows, count / 2 + 1], bytes)
}

/// A scalar, again and again.
fn spread(x: &Array<'_>, count: usize) -> Result<Literal> {
    matrix(x.shape.element_type(), &[count], repeat(x.bytes, count)?)
}
