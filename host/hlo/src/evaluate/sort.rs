//! Sorts.
//!
//! The comparison is a computation, which is applied to many pairs at once: sorted runs of all rows
//! are merged together, and each element's place is found in the other run by a binary search
//! whose steps are taken by all elements together.

use std::iter::zip;
use std::ops::Range;

use super::apply::{apply, chosen};
use super::array::{Array, array};
use super::movement::transposed;
use super::{Callee, bug, collected, with_capacity};
use crate::instruction::ComputationId;
use callbox_core::values::{ArrayShape, Literal, Result, Shape};

/// The most pairs that are compared without a look at the deadline.
const PIECE: usize = 1 << 16;

/// Sorts the operands together along a dimension. Equal elements keep their order. If the
/// comparison is no order, the result is some permutation.
pub(super) fn sort(
    shape: &Shape,
    operands: &[Literal],
    dimension: usize,
    computation: ComputationId,
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let arrays = operands.iter().map(array).collect::<Result<Vec<_>>>()?;
    let first = arrays
        .first()
        .ok_or_else(|| bug("a sort has no operands"))?;
    let dimensions = first.dimensions();
    // With the sorted dimension last, rows are contiguous.
    let mut order = Vec::from_iter((0..dimensions.len()).filter(|&i| i != dimension));
    order.push(dimension);
    let moved = order.iter().map(|&i| dimensions[i]).collect::<Vec<_>>();
    let rows = arrays
        .iter()
        .map(|x| {
            let shape = ArrayShape::new(x.shape.element_type(), &moved).map_err(bug)?;
            Literal::from_bytes(shape, transposed(x, &order)?.into_owned()).map_err(bug)
        })
        .collect::<Result<Vec<_>>>()?;
    let mut sorter = Sorter {
        rows: rows.iter().map(array).collect::<Result<_>>()?,
        order: collected(0..first.shape.element_count())?,
        computation,
        callee,
    };
    let count = dimensions[dimension];
    let mut run = 1;
    while run < count {
        sorter.merge(count, run)?;
        run *= 2;
    }
    let order_of_elements = sorter.order;
    let mut back = vec![0; order.len()];
    for (i, &from) in order.iter().enumerate() {
        back[from] = i;
    }
    let leaves = rows.iter().map(|x| {
        let x = array(x)?;
        let sorted = chosen(&x, order_of_elements.iter().copied())?;
        let sorted = Array {
            bytes: array(&sorted)?.bytes,
            ..x
        };
        transposed(&sorted, &back).map(std::borrow::Cow::into_owned)
    });
    Literal::from_leaves(shape.clone(), leaves.collect::<Result<_>>()?).map_err(bug)
}

struct Sorter<'a> {
    /// The operands, with their rows contiguous.
    rows: Vec<Array<'a>>,
    /// The numbers of the elements, in the order so far.
    order: Vec<usize>,
    computation: ComputationId,
    callee: &'a mut dyn Callee,
}

impl Sorter<'_> {
    /// Merges neighbouring sorted runs in rows of `count` elements.
    fn merge(&mut self, count: usize, run: usize) -> Result<()> {
        // For each element, the part of the other run in which its place is still sought.
        let mut places = collected((0..self.order.len()).map(|at| other(at, count, run)))?;
        loop {
            let open = collected((0..places.len()).filter(|&at| !places[at].is_empty()))?;
            if open.is_empty() {
                break;
            }
            let middle = |at: usize| places[at].start + places[at].len() / 2;
            // Equal elements of the left run come first.
            let pairs = open.iter().map(|&at| {
                let (this, that) = (self.order[at], self.order[middle(at)]);
                if is_left(at, count, run) {
                    (that, this)
                } else {
                    (this, that)
                }
            });
            let is_before = self.less(&collected(pairs)?)?;
            for (&at, is_before) in zip(&open, is_before) {
                let middle = places[at].start + places[at].len() / 2;
                if is_before == is_left(at, count, run) {
                    places[at].start = middle + 1;
                } else {
                    places[at].end = middle;
                }
            }
        }
        let place = |at: usize| {
            let row = at / count * count;
            let own = at - row;
            let base = own / (2 * run) * (2 * run);
            row + base + own % run + (places[at].start - other(at, count, run).start)
        };
        // A comparison that is no order gives some places twice.
        let mut by_place = collected((0..places.len()).map(|at| (place(at), self.order[at])))?;
        by_place.sort_unstable();
        for (to, (_, element)) in zip(&mut self.order, by_place) {
            *to = element;
        }
        Ok(())
    }

    /// For each pair, whether its first element comes before its second.
    fn less(&mut self, pairs: &[(usize, usize)]) -> Result<Vec<bool>> {
        let mut less = with_capacity(pairs.len())?;
        for pairs in pairs.chunks(PIECE) {
            let mut arguments = Vec::with_capacity(2 * self.rows.len());
            for x in &self.rows {
                arguments.push(chosen(x, pairs.iter().map(|pair| pair.0))?);
                arguments.push(chosen(x, pairs.iter().map(|pair| pair.1))?);
            }
            let results = apply(self.computation, &arguments, pairs.len(), self.callee)?;
            let result = results
                .first()
                .ok_or_else(|| bug("a comparison has no result"))?;
            less.extend(array(result)?.bytes.iter().map(|&byte| byte != 0));
        }
        Ok(less)
    }
}

/// Whether the element at this place is in the first run of two.
fn is_left(at: usize, count: usize, run: usize) -> bool {
    (at % count / run).is_multiple_of(2)
}

/// The places of the run that an element's run is merged with. The last run of a row may be
/// shorter, or be alone.
fn other(at: usize, count: usize, run: usize) -> Range<usize> {
    let row = at / count * count;
    let number = (at - row) / run;
    let start = if is_left(at, count, run) {
        number + 1
    } else {
        number - 1
    } * run;
    row + start.min(count)..row + (start + run).min(count)
}
