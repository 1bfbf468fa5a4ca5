//! Operations that move elements and compute none. Each says where elements lie and leaves the moving to [`copy`].

use std::borrow::Cow;
use std::iter::zip;

use super::array::{Array, Elements, repeat};
use super::convert::convert;
use super::strided::{Strides, copy};
use super::wide::{Kind, Wide};
use super::{bug, zeroed};
use crate::program::instruction::{PaddingDimension, SliceDimension};
use crate::values::{ArrayShape, ElementType, Result};

/// The index along one dimension.
pub(super) fn iota(shape: &ArrayShape, dimension: usize) -> Result<Vec<u8>> {
    let count = shape.dimensions().get(dimension).copied();
    let count = count.ok_or_else(|| bug(format_args!("there is no dimension {dimension}")))?;
    let mut numbers = zeroed(size_of::<u64>() * count)?;
    for (i, to) in numbers.chunks_exact_mut(size_of::<u64>()).enumerate() {
        to.copy_from_slice(&(i as u64).to_le_bytes());
    }
    let numbers = Elements {
        element_type: ElementType::U64,
        bytes: &numbers,
    };
    let line = convert(numbers, shape.element_type())?;
    let line_shape = ArrayShape::new(shape.element_type(), &[count]).map_err(bug)?;
    broadcast(
        &Array {
            shape: &line_shape,
            bytes: &line,
        },
        shape,
        &[dimension],
    )
}

/// Operand dimension `i` becomes dimension `dimensions[i]`; the others repeat.
pub(super) fn broadcast(
    x: &Array<'_>,
    shape: &ArrayShape,
    dimensions: &[usize],
) -> Result<Vec<u8>> {
    if x.dimensions().is_empty() {
        return repeat(x.bytes, shape.element_count());
    }
    let dense = Strides::dense(x.dimensions(), x.width());
    let mut from = Strides {
        start: 0,
        steps: vec![0; shape.rank()],
    };
    for (&to, (&count, &step)) in zip(dimensions, zip(x.dimensions(), &dense.steps)) {
        match from.steps.get_mut(to) {
            Some(to) if count != 1 => *to = step,
            Some(_) => {}
            None => return Err(bug(format_args!("there is no dimension {to}"))),
        }
    }
    gather(x, shape.dimensions(), &from)
}

/// Dimension `i` is the operand's dimension `permutation[i]`.
pub(super) fn transpose(x: &Array<'_>, permutation: &[usize]) -> Result<Vec<u8>> {
    transposed(x, permutation).map(Cow::into_owned)
}

/// [`transpose`], without a copy if nothing moves.
pub(super) fn transposed<'a>(x: &Array<'a>, permutation: &[usize]) -> Result<Cow<'a, [u8]>> {
    if permutation.iter().copied().eq(0..x.dimensions().len()) {
        return Ok(Cow::Borrowed(x.bytes));
    }
    let dense = Strides::dense(x.dimensions(), x.width());
    let pick = |&i: &usize| Some((*x.dimensions().get(i)?, *dense.steps.get(i)?));
    let picked: Option<(Vec<_>, Vec<_>)> = permutation.iter().map(pick).collect();
    let (dimensions, steps) = picked.ok_or_else(|| bug("a permutation is out of range"))?;
    gather(x, &dimensions, &Strides { start: 0, steps }).map(Cow::Owned)
}

/// The elements of these dimensions in the opposite order.
pub(super) fn reverse(x: &Array<'_>, dimensions: &[usize]) -> Result<Vec<u8>> {
    let mut from = Strides::dense(x.dimensions(), x.width());
    for &dimension in dimensions {
        let (Some(&count), Some(step)) =
            (x.dimensions().get(dimension), from.steps.get_mut(dimension))
        else {
            return Err(bug(format_args!("there is no dimension {dimension}")));
        };
        from.start += count.saturating_sub(1) * *step as usize;
        *step = -*step;
    }
    gather(x, x.dimensions(), &from)
}

/// The part that `slices` says.
pub(super) fn slice(
    x: &Array<'_>,
    shape: &ArrayShape,
    slices: &[SliceDimension],
) -> Result<Vec<u8>> {
    let mut from = Strides::dense(x.dimensions(), x.width());
    for (step, slice) in zip(&mut from.steps, slices) {
        from.start += slice.start * *step as usize;
        *step = step.wrapping_mul(slice.stride as isize);
    }
    gather(x, shape.dimensions(), &from)
}

/// The part of the shape's sizes that begins at `starts`, moved so that it is inside.
pub(super) fn dynamic_slice(
    x: &Array<'_>,
    shape: &ArrayShape,
    starts: &[Array<'_>],
) -> Result<Vec<u8>> {
    gather(x, shape.dimensions(), &part(x, shape.dimensions(), starts)?)
}

/// The operand with `update` in place of the part that begins at `starts`, moved so that it is inside.
pub(super) fn dynamic_update_slice(
    x: &Array<'_>,
    update: &Array<'_>,
    starts: &[Array<'_>],
) -> Result<Vec<u8>> {
    let mut bytes = zeroed(x.bytes.len())?;
    bytes.copy_from_slice(x.bytes);
    scatter(update, &mut bytes, &part(x, update.dimensions(), starts)?)?;
    Ok(bytes)
}

/// The operands, one behind the other along a dimension.
pub(super) fn concatenate(
    operands: &[Array<'_>],
    shape: &ArrayShape,
    dimension: usize,
) -> Result<Vec<u8>> {
    let width = shape.element_type().byte_width();
    let mut bytes = zeroed(shape.byte_size())?;
    let mut to = Strides::dense(shape.dimensions(), width);
    for operand in operands {
        scatter(operand, &mut bytes, &to)?;
        let sizes = (operand.dimensions().get(dimension), to.steps.get(dimension));
        let (Some(&count), Some(&step)) = sizes else {
            return Err(bug(format_args!("there is no dimension {dimension}")));
        };
        to.start += count * step as usize;
    }
    Ok(bytes)
}

/// The operand with `value` before, between and behind its elements, or without some of its elements.
pub(super) fn pad(
    x: &Array<'_>,
    value: &Array<'_>,
    shape: &ArrayShape,
    padding: &[PaddingDimension],
) -> Result<Vec<u8>> {
    let mut bytes = repeat(value.bytes, shape.element_count())?;
    let mut from = Strides::dense(x.dimensions(), x.width());
    let mut to = Strides::dense(shape.dimensions(), x.width());
    let mut counts = Vec::with_capacity(padding.len());
    let sizes = zip(x.dimensions(), shape.dimensions());
    for (i, (padding, (&count, &result))) in zip(padding, sizes).enumerate() {
        let kept = Kept::new(padding, count, result);
        from.start += kept.first * from.steps[i] as usize;
        to.start += kept.at * to.steps[i] as usize;
        to.steps[i] = to.steps[i].wrapping_mul(kept.distance as isize);
        counts.push(kept.count);
    }
    copy(&counts, x.width(), (x.bytes, &from), (&mut bytes, &to))?;
    Ok(bytes)
}

/// Which elements of a dimension a padding leaves, and where.
struct Kept {
    /// The first that stays.
    first: usize,
    /// How many stay.
    count: usize,
    /// Where the first comes to lie.
    at: usize,
    /// From one to the next in the result.
    distance: usize,
}

impl Kept {
    /// Of `count` elements, in `result`. In 128 bits no sum overflows.
    fn new(padding: &PaddingDimension, count: usize, result: usize) -> Self {
        let distance = i128::from(padding.interior) + 1;
        let low = i128::from(padding.low);
        let first = (-low).max(0).div_ceil_by(distance);
        let at = low + first * distance;
        let behind = (result as i128 - at).max(0).div_ceil_by(distance);
        let kept = behind.min(count as i128 - first).max(0);
        match kept {
            0 => Self {
                first: 0,
                count: 0,
                at: 0,
                distance: 1,
            },
            _ => Self {
                first: first as usize,
                count: kept as usize,
                at: at as usize,
                distance: distance as usize,
            },
        }
    }
}

trait DivCeil {
    fn div_ceil_by(self, divisor: Self) -> Self;
}

impl DivCeil for i128 {
    /// Of numbers that are not negative.
    fn div_ceil_by(self, divisor: Self) -> Self {
        (self + divisor - 1) / divisor
    }
}

/// Where the part of these sizes lies that begins at `starts`, moved so that it is inside of `x`.
fn part(x: &Array<'_>, sizes: &[usize], starts: &[Array<'_>]) -> Result<Strides> {
    let mut strides = Strides::dense(x.dimensions(), x.width());
    let starts = indices(starts)?;
    if starts.len() != sizes.len() {
        return Err(bug(format_args!(
            "expected {} starts, found {}",
            sizes.len(),
            starts.len()
        )));
    }
    let extents = zip(x.dimensions(), sizes);
    for ((&step, start), (&count, &size)) in zip(zip(&strides.steps, starts), extents) {
        let last = count.saturating_sub(size);
        let start = usize::try_from(start.max(0)).map_or(last, |start| start.min(last));
        strides.start += start * step as usize;
    }
    Ok(strides)
}

/// The integers in these arrays: one scalar for each dimension, or one array of them all.
fn indices(starts: &[Array<'_>]) -> Result<Vec<i128>> {
    let mut all = Vec::new();
    for start in starts.iter().map(Array::elements) {
        let count = start.count();
        if Kind::of(start.element_type)? == Kind::Unsigned {
            let mut indices = vec![0u64; count];
            u64::decode(start.element_type, start.bytes, &mut indices)?;
            all.extend(indices.into_iter().map(i128::from));
        } else {
            let mut indices = vec![0i64; count];
            i64::decode(start.element_type, start.bytes, &mut indices)?;
            all.extend(indices.into_iter().map(i128::from));
        }
    }
    Ok(all)
}

/// A dense array of elements that lie where `from` says.
fn gather(x: &Array<'_>, dimensions: &[usize], from: &Strides) -> Result<Vec<u8>> {
    let to = Strides::dense(dimensions, x.width());
    let count = match dimensions.contains(&0) {
        true => 0,
        false => dimensions.iter().product(),
    };
    let mut bytes = zeroed(x.width() * count)?;
    copy(dimensions, x.width(), (x.bytes, from), (&mut bytes, &to))?;
    Ok(bytes)
}

/// Puts a dense array's elements where `to` says.
fn scatter(x: &Array<'_>, bytes: &mut [u8], to: &Strides) -> Result<()> {
    let from = Strides::dense(x.dimensions(), x.width());
    copy(x.dimensions(), x.width(), (x.bytes, &from), (bytes, to))
}

#[cfg(test)]
mod tests;
