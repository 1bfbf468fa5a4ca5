//! Reductions by one commutative operation, in the wide type, on several threads.
//!
//! - Short rows are folded in order, from the initial value on.
//! - Rows of [`LONG`] elements and more are folded in [`LANES`] interleaved parts of each
//!   [`SEGMENT`], and then in order. Integers and the extrema of numbers have the same result in
//!   any order, and `f64` sums of `f32` and narrower types almost always the same rounding.
//! - Columns, that is all but the last dimensions, are folded row after row in segments of
//!   [`ROWS`] rows, and then in order.

use std::borrow::Cow;
use std::iter::zip;
use std::ops::{BitAnd, BitOr, BitXor};

use num_complex::Complex;

use super::super::array::{Array, Elements, filled_within};
use super::super::binary::{maximum, minimum};
use super::super::bug;
use super::super::dot::narrowed;
use super::super::elementwise::BLOCK;
use super::super::movement::transposed_within;
use super::super::teamwork::Team;
use super::super::wide::{Kind, Wide};
use crate::instruction::BinaryOperation as B;
use callbox_core::values::{ElementType, Result};
use callbox_maths::folds::{self, Fold, LANES};

/// The elements from which a row is folded in lanes.
const LONG: usize = 64;

/// The elements of a row that one thread folds. A multiple of [`BLOCK`].
const SEGMENT: usize = 64 * BLOCK;

/// The rows and columns that one thread folds at a time. Its reads are long enough for the
/// processor to fetch ahead.
const ROWS: usize = 256;
const COLUMNS: usize = 1024;

/// The fewest columns that are folded as columns.
const FEWEST_COLUMNS: usize = 16;

/// An array as `outer` matrices, whose columns of `count` elements, `inner` apart, are reduced.
struct Source<'a> {
    bytes: Cow<'a, [u8]>,
    element_type: ElementType,
    outer: usize,
    count: usize,
    inner: usize,
}

/// Reduces these dimensions of `x`.
pub(super) fn fold(
    operation: B,
    x: &Array<'_>,
    first: &Array<'_>,
    dimensions: &[usize],
    to: ElementType,
    team: Team<'_>,
) -> Result<Vec<u8>> {
    let x = Source::of(x, dimensions, team)?;
    if let Some(fold) = x.fold_of_f32(operation) {
        return encoded(&x, first, to, team, |results| {
            let segment = |start, length| x.fold_segment_of_f32(fold, start, length);
            match fold {
                Fold::Sum => fold_rows(&x, results, team, &<f64 as Wide>::add, segment),
                Fold::Maximum => fold_rows(&x, results, team, &maximum, segment),
                Fold::Minimum => fold_rows(&x, results, team, &minimum, segment),
            }
        });
    }
    match (Kind::of(to)?, operation) {
        (Kind::Signed, _) => fold_integers::<i64>(operation, &x, first, to, team),
        (Kind::Unsigned, _) => fold_integers::<u64>(operation, &x, first, to, team),
        (Kind::Complex, B::Add) => folded(&x, first, to, team, Complex::<f64>::add),
        (Kind::Complex, B::Multiply) => product::<Complex<f64>>(&x, first, to, team),
        (Kind::Real, B::Add) => folded(&x, first, to, team, <f64 as Wide>::add),
        (Kind::Real, B::Multiply) => product::<f64>(&x, first, to, team),
        (Kind::Real, B::Maximum) => folded(&x, first, to, team, maximum),
        (Kind::Real, B::Minimum) => folded(&x, first, to, team, minimum),
        (kind, _) => Err(bug(format_args!(
            "{operation:?} of {kind:?} was not refused"
        ))),
    }
}

fn fold_integers<T: Wide + Ord + BitAnd<Output = T> + BitOr<Output = T> + BitXor<Output = T>>(
    operation: B,
    x: &Source<'_>,
    first: &Array<'_>,
    to: ElementType,
    team: Team<'_>,
) -> Result<Vec<u8>> {
    match operation {
        B::Add => folded(x, first, to, team, T::add),
        B::And => folded(x, first, to, team, T::bitand),
        B::Maximum => folded(x, first, to, team, T::max),
        B::Minimum => folded(x, first, to, team, T::min),
        B::Multiply => folded(x, first, to, team, T::multiply),
        B::Or => folded(x, first, to, team, T::bitor),
        B::Xor => folded(x, first, to, team, T::bitxor),
        _ => Err(bug(format_args!("{operation:?} does not reduce"))),
    }
}

impl<'a> Source<'a> {
    fn of(x: &Array<'a>, dimensions: &[usize], team: Team<'_>) -> Result<Self> {
        let sizes = x.dimensions();
        let is_reduced = |d: &usize| dimensions.contains(d);
        let product = |range: &[usize]| {
            let mut range = range.iter();
            let product = range.try_fold(1usize, |n, &d| n.checked_mul(sizes[d]));
            product.ok_or_else(|| bug("a size overflows"))
        };
        let all = Vec::from_iter(0..sizes.len());
        let start = all.iter().position(is_reduced).unwrap_or(sizes.len());
        let end = all
            .iter()
            .rposition(is_reduced)
            .map_or(start, |last| last + 1);
        let inner = product(&all[end..])?;
        let element_type = x.shape.element_type();
        if all[start..end].iter().all(is_reduced) && (inner == 1 || inner >= FEWEST_COLUMNS) {
            return Ok(Self {
                bytes: Cow::Borrowed(x.bytes),
                element_type,
                outer: product(&all[..start])?,
                count: product(&all[start..end])?,
                inner,
            });
        }
        let (kept, reduced): (Vec<_>, Vec<_>) = all.iter().partition(|d| !is_reduced(d));
        Ok(Self {
            bytes: transposed_within(x, &[&*kept, &*reduced].concat(), team.check)?,
            element_type,
            outer: product(&kept)?,
            count: product(&reduced)?,
            inner: 1,
        })
    }

    fn elements(&self) -> Elements<'_> {
        Elements {
            element_type: self.element_type,
            bytes: &self.bytes,
        }
    }

    fn decode<T: Wide>(&self, start: usize, to: &mut [T]) -> Result<()> {
        T::decode(
            self.element_type,
            self.elements().part(start, to.len())?,
            to,
        )
    }

    /// The fold of long rows of F32 that `callbox-maths` has on vectors.
    fn fold_of_f32(&self, operation: B) -> Option<Fold> {
        let is_long = self.inner == 1 && self.count >= LONG;
        match operation {
            _ if !is_long || self.element_type != ElementType::F32 => None,
            B::Add => Some(Fold::Sum),
            B::Maximum => Some(Fold::Maximum),
            B::Minimum => Some(Fold::Minimum),
            _ => None,
        }
    }

    fn fold_segment_of_f32(&self, fold: Fold, start: usize, length: usize) -> Result<Option<f64>> {
        let part = self.elements().part(start, length)?;
        Ok(Some(folds::fold_bytes(fold, part.as_chunks().0)))
    }
}

/// A product in order. In parts, it could be infinite in one and 0 in another, which makes NaN.
fn product<T: Wide>(
    x: &Source<'_>,
    first: &Array<'_>,
    to: ElementType,
    team: Team<'_>,
) -> Result<Vec<u8>> {
    encoded(x, first, to, team, |results| {
        if x.inner > 1 {
            return fold_segments(x, x.count, results, team, &T::multiply);
        }
        if x.count <= BLOCK {
            return fold_short_rows(x, results, team, &T::multiply);
        }
        let parts = results.iter_mut().enumerate();
        team.share(parts, x.outer * x.count, |(row, result)| {
            let mut block = [T::default(); BLOCK];
            for at in (0..x.count).step_by(BLOCK) {
                if at % SEGMENT == 0 {
                    team.check.check()?;
                }
                let block = &mut block[..BLOCK.min(x.count - at)];
                x.decode(row * x.count + at, block)?;
                *result = block.iter().fold(*result, |sum, &x| sum.multiply(x));
            }
            Ok(())
        })
    })
}

fn folded<T: Wide>(
    x: &Source<'_>,
    first: &Array<'_>,
    to: ElementType,
    team: Team<'_>,
    operation: impl Fn(T, T) -> T + Sync,
) -> Result<Vec<u8>> {
    encoded(x, first, to, team, |results| {
        if x.inner > 1 {
            fold_columns(x, results, team, &operation)
        } else if x.count < LONG {
            fold_short_rows(x, results, team, &operation)
        } else {
            let segment = |start, length| fold_segment(x, start, length, &operation);
            fold_rows(x, results, team, &operation, segment)
        }
    })
}

/// The results of a fold that starts with the initial value.
fn encoded<T: Wide>(
    x: &Source<'_>,
    first: &Array<'_>,
    to: ElementType,
    team: Team<'_>,
    fold: impl FnOnce(&mut [T]) -> Result<()>,
) -> Result<Vec<u8>> {
    let mut initial = [T::default()];
    T::decode(first.shape.element_type(), first.bytes, &mut initial)?;
    let [initial] = initial;
    let mut results = filled_within(initial, x.outer * x.inner, team.check)?;
    if x.count > 0 && !results.is_empty() {
        fold(&mut results)?;
    }
    narrowed(&results, to, team)
}

fn fold_columns<T: Wide>(
    x: &Source<'_>,
    results: &mut [T],
    team: Team<'_>,
    operation: &(impl Fn(T, T) -> T + Sync),
) -> Result<()> {
    let segments = x.count.div_ceil(ROWS);
    if segments == 1 {
        return fold_segments(x, x.count, results, team, operation);
    }
    let mut partial = filled_within(T::default(), segments * results.len(), team.check)?;
    fold_segments(x, ROWS, &mut partial, team, operation)?;
    let partial = partial.chunks(segments * x.inner);
    for (results, partial) in zip(results.chunks_mut(x.inner), partial) {
        for sums in partial.chunks(x.inner) {
            for (results, sums) in zip(results.chunks_mut(SEGMENT), sums.chunks(SEGMENT)) {
                team.check.check()?;
                for (result, &sum) in zip(results, sums) {
                    *result = operation(*result, sum);
                }
            }
        }
    }
    Ok(())
}

/// Folds the columns of each segment of so many rows. One of several segments begins with its first
/// row; the only one begins with the values in `sums`.
fn fold_segments<T: Wide>(
    x: &Source<'_>,
    rows: usize,
    sums: &mut [T],
    team: Team<'_>,
    operation: &(impl Fn(T, T) -> T + Sync),
) -> Result<()> {
    let segments = x.count.div_ceil(rows);
    let parts = sums.chunks_mut(x.inner).enumerate();
    let parts = parts.flat_map(|(number, sums)| {
        let start = number % segments * rows;
        let rows = rows.min(x.count - start);
        let first = (number / segments * x.count + start) * x.inner;
        let columns = sums.chunks_mut(COLUMNS).enumerate();
        columns.map(move |(number, sums)| (first + number * COLUMNS, rows, sums))
    });
    let steps = x.outer * x.count * x.inner;
    team.share(parts, steps, |(first, rows, sums)| {
        let mut row = [T::default(); COLUMNS];
        let row = &mut row[..sums.len()];
        for number in 0..rows {
            if number % ROWS == 0 {
                team.check.check()?;
            }
            x.decode(first + number * x.inner, row)?;
            if segments > 1 && number == 0 {
                sums.copy_from_slice(row);
                continue;
            }
            for (sum, &x) in zip(&mut *sums, &*row) {
                *sum = operation(*sum, x);
            }
        }
        Ok(())
    })
}

fn fold_short_rows<T: Wide>(
    x: &Source<'_>,
    results: &mut [T],
    team: Team<'_>,
    operation: &(impl Fn(T, T) -> T + Sync),
) -> Result<()> {
    let rows = BLOCK / x.count;
    let parts = results.chunks_mut(rows).enumerate();
    team.share(parts, x.outer * x.count, |(number, results)| {
        let mut block = [T::default(); BLOCK];
        let block = &mut block[..results.len() * x.count];
        x.decode(number * rows * x.count, block)?;
        for (result, row) in zip(results, block.chunks_exact(x.count)) {
            *result = row.iter().fold(*result, |sum, &x| operation(sum, x));
        }
        Ok(())
    })
}

/// Folds long rows. `fold` gives the fold of so many elements from a start on.
fn fold_rows<T: Wide>(
    x: &Source<'_>,
    results: &mut [T],
    team: Team<'_>,
    operation: &(impl Fn(T, T) -> T + Sync),
    fold: impl Fn(usize, usize) -> Result<Option<T>> + Sync,
) -> Result<()> {
    let segments = x.count.div_ceil(SEGMENT);
    let mut partial = filled_within(T::default(), x.outer * segments, team.check)?;
    // The rows of a part, so that threads seldom wait for the next one.
    let several = (SEGMENT / x.count).max(1);
    let parts = partial.chunks_mut(several).enumerate();
    team.share(parts, x.outer * x.count, |(part, results)| {
        for (number, result) in (part * several..).zip(results) {
            let (row, start) = (number / segments, number % segments * SEGMENT);
            let length = SEGMENT.min(x.count - start);
            if let Some(sum) = fold(row * x.count + start, length)? {
                *result = sum;
            }
        }
        Ok(())
    })?;
    for (row, (result, partial)) in zip(results, partial.chunks(segments)).enumerate() {
        if row % BLOCK == 0 || segments >= BLOCK {
            team.check.check()?;
        }
        *result = partial.iter().fold(*result, |sum, &x| operation(sum, x));
    }
    Ok(())
}

/// Folds so many elements in lanes, and the lanes in order.
fn fold_segment<T: Wide>(
    x: &Source<'_>,
    start: usize,
    length: usize,
    operation: &impl Fn(T, T) -> T,
) -> Result<Option<T>> {
    // A segment of fewer elements than lanes has none.
    let (mut lanes, mut has_lanes) = ([T::default(); LANES], false);
    let mut rest = None;
    let mut block = [T::default(); BLOCK];
    for at in (0..length).step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(length - at)];
        x.decode(start + at, block)?;
        let (mut chunks, last) = block.as_chunks::<LANES>();
        if let (false, [first, others @ ..]) = (has_lanes, chunks) {
            (lanes, has_lanes, chunks) = (*first, true, others);
        }
        for chunk in chunks {
            for (lane, &x) in zip(&mut lanes, chunk) {
                *lane = operation(*lane, x);
            }
        }
        // Only the last block has elements left.
        rest = last.iter().copied().reduce(operation);
    }
    let lanes = lanes.into_iter().filter(|_| has_lanes);
    Ok(lanes.chain(rest).reduce(operation))
}
