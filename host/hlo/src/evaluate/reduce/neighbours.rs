//! Reductions by a computation of scalars: all pairs of neighbours are combined at once, until one
//! element is left of each row.

use std::iter::zip;

use super::super::array::{Array, array, repeat};
use super::super::movement::{concatenate, slice};
use super::super::{Check, bug, lift, share};
use super::{Rows, collect, line, new_array};
use crate::instruction::{Computation, Program, SliceDimension};
use callbox_core::values::{ArrayShape, Literal, Result, Shape};

/// Combines neighbours until one element is left of each row, then the initial value with it.
pub(super) fn combine(
    shape: &Shape,
    mut inputs: Vec<Literal>,
    initial: &[Literal],
    rows: Rows,
    called: &Computation,
    program: &Program,
    check: &dyn Check,
) -> Result<Literal> {
    let mut count = rows.count;
    while count > 1 {
        let half = count / 2;
        let even = collect(&inputs, |x| flat_columns(x, 0, half))?;
        let odd = collect(&inputs, |x| flat_columns(x, 1, half))?;
        let size = rows.results * half;
        let lines = [even, odd].concat();
        let combined = lift::run(called, &lines, size, program, check)?.into_elements();
        let widened = zip(&inputs, &combined).map(|(x, half)| with_last(x, half, count));
        inputs = widened.collect::<Result<_>>()?;
        count = count.div_ceil(2);
    }
    let initial = collect(initial, |x| {
        new_array(
            x.shape.element_type(),
            &[rows.results],
            repeat(x.bytes, rows.results)?,
        )
    })?;
    let lines = inputs.iter().map(line).collect::<Result<Vec<_>>>()?;
    let arguments = [initial, lines].concat();
    let result = lift::run(called, &arguments, rows.results, program, check)?;
    share(shape, &[&result])
}

/// `count` columns of a matrix, every second one from `start` on, as one row.
fn flat_columns(x: &Array<'_>, start: usize, count: usize) -> Result<Literal> {
    let rows = x.dimensions().first().copied().unwrap_or(0);
    let bytes = columns(x, start, 2, count)?;
    new_array(x.shape.element_type(), &[rows * count], bytes)
}

/// `half` as a matrix, followed by the last column of `x` if its number of columns is odd.
fn with_last(x: &Literal, half: &Literal, columns_of_x: usize) -> Result<Literal> {
    let (x, half) = (array(x)?, array(half)?);
    let rows = x.dimensions().first().copied().unwrap_or(0);
    let element_type = x.shape.element_type();
    let matrix = |columns| ArrayShape::new(element_type, &[rows, columns]).map_err(bug);
    let (narrow, wide) = (matrix(columns_of_x / 2)?, matrix(columns_of_x.div_ceil(2))?);
    if narrow == wide {
        return Literal::from_bytes(wide, half.bytes.to_vec()).map_err(bug);
    }
    let half = Array {
        shape: &narrow,
        bytes: half.bytes,
    };
    let last = Array {
        shape: &matrix(1)?,
        bytes: &columns(&x, columns_of_x - 1, 1, 1)?,
    };
    let bytes = concatenate(&[half, last], &wide, 1)?;
    Literal::from_bytes(wide, bytes).map_err(bug)
}

/// `count` columns of a matrix, from `start` on, `stride` apart.
fn columns(x: &Array<'_>, start: usize, stride: usize, count: usize) -> Result<Vec<u8>> {
    let [rows, limit] = *x.dimensions() else {
        return Err(bug("expected a matrix"));
    };
    let along = |start, limit, stride| SliceDimension {
        start,
        limit,
        stride,
    };
    slice(
        x,
        &[rows, count],
        &[along(0, rows, 1), along(start, limit, stride)],
    )
}
