//! Reductions by a computation of scalars: all pairs of neighbours are combined at once, until one
//! element is left of each row.

use std::iter::zip;

use super::super::array::{Array, array, filled_within, repeat_within};
use super::super::strided::{Strides, copy_within};
use super::super::{Check, bug, lift, share};
use super::{Rows, collect, line, new_array};
use crate::instruction::{Computation, Program};
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
        let even = collect(&inputs, |x| flat_columns(x, 0, half, check))?;
        let odd = collect(&inputs, |x| flat_columns(x, 1, half, check))?;
        let size = rows.results * half;
        let lines = [even, odd].concat();
        let combined = lift::run(called, &lines, size, program, check)?.into_elements();
        let widened = zip(&inputs, &combined).map(|(x, half)| with_last(x, half, count, check));
        inputs = widened.collect::<Result<_>>()?;
        count = count.div_ceil(2);
    }
    let initial = collect(initial, |x| {
        new_array(
            x.shape.element_type(),
            &[rows.results],
            repeat_within(x.bytes, rows.results, check)?,
        )
    })?;
    let lines = inputs.iter().map(line).collect::<Result<Vec<_>>>()?;
    let arguments = [initial, lines].concat();
    let result = lift::run(called, &arguments, rows.results, program, check)?;
    share(shape, &[&result])
}

/// `count` columns of a matrix, every second one from `start` on, as one row.
fn flat_columns(x: &Array<'_>, start: usize, count: usize, check: &dyn Check) -> Result<Literal> {
    let rows = x.dimensions().first().copied().unwrap_or(0);
    let mut from = Strides::dense(x.dimensions(), x.width()).moved(1, start);
    if let [_, step] = &mut *from.steps {
        *step *= 2;
    }
    let mut bytes = filled_within(0_u8, rows * count * x.width(), check)?;
    let to = Strides::dense(&[rows, count], x.width());
    let (from, to) = (from.of(x.bytes), to.of(&mut *bytes));
    copy_within(&[rows, count], x.width(), from, to, check)?;
    new_array(x.shape.element_type(), &[rows * count], bytes)
}

/// `half` as a matrix, followed by the last column of `x` if its number of columns is odd.
fn with_last(
    x: &Literal,
    half: &Literal,
    columns_of_x: usize,
    check: &dyn Check,
) -> Result<Literal> {
    let (x, elements) = (array(x)?, array(half)?.bytes);
    let rows = x.dimensions().first().copied().unwrap_or(0);
    let [narrow, wide] = [[rows, columns_of_x / 2], [rows, columns_of_x.div_ceil(2)]];
    let shape = ArrayShape::new(x.shape.element_type(), &wide).map_err(bug)?;
    if narrow == wide {
        return Literal::from_shared_leaves(shape.into(), half.shared_leaves().to_vec())
            .map_err(bug);
    }
    let width = x.width();
    let mut bytes = filled_within(0_u8, shape.byte_size(), check)?;
    let to = Strides::dense(&wide, width);
    let half = Strides::dense(&narrow, width).of(elements);
    let last = Strides::dense(x.dimensions(), width).moved(1, columns_of_x - 1);
    let end = to.moved(1, columns_of_x / 2);
    copy_within(&narrow, width, half, to.of(&mut *bytes), check)?;
    copy_within(
        &[rows, 1],
        width,
        last.of(x.bytes),
        end.of(&mut *bytes),
        check,
    )?;
    Literal::from_bytes(shape, bytes).map_err(bug)
}
