//! Operations that move elements and compute none. Each says where elements are and leaves the
//! moving to [`copy`].

use std::borrow::Cow;
use std::iter::zip;

use super::array::{Array, Elements, filled_within, repeat};
use super::convert::convert;
use super::strided::{Strides, copy, copy_within};
use super::wide::{Kind, Wide};
use super::{Check, bug, collected, with_capacity, zeroed};
use crate::instruction::{PaddingDimension, SliceDimension};
use callbox_core::values::{ArrayShape, ElementType, Result, Status};

/// The numbers that are converted at a time.
const NUMBERS: usize = 1 << 12;

/// The index along one dimension.
pub(super) fn iota(shape: &ArrayShape, dimension: usize) -> Result<Vec<u8>> {
    let count = shape.dimensions().get(dimension).copied();
    let count = count.ok_or_else(|| no_dimension(dimension))?;
    let line_shape = ArrayShape::new(shape.element_type(), &[count]).map_err(bug)?;
    let mut bytes = with_capacity(line_shape.byte_size())?;
    for start in (0..count).step_by(NUMBERS) {
        let numbers = start..count.min(start + NUMBERS);
        let numbers: Vec<u8> = numbers.flat_map(|i| (i as u64).to_le_bytes()).collect();
        let numbers = Elements {
            element_type: ElementType::U64,
            bytes: &numbers,
        };
        bytes.extend(convert(numbers, shape.element_type())?);
    }
    let line = Array {
        shape: &line_shape,
        bytes: &bytes,
    };
    broadcast(&line, shape, &[dimension])
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
    gather(
        x,
        shape.dimensions(),
        Strides::broadcast(x, dimensions, shape.rank())?,
    )
}

/// Dimension `i` is the operand's dimension `permutation[i]`.
pub(super) fn transpose(x: &Array<'_>, permutation: &[usize]) -> Result<Vec<u8>> {
    transposed(x, permutation).map(Cow::into_owned)
}

/// [`transpose`], borrowed if nothing moves.
pub(super) fn transposed<'a>(x: &Array<'a>, permutation: &[usize]) -> Result<Cow<'a, [u8]>> {
    match moved(x, permutation)? {
        None => Ok(Cow::Borrowed(x.bytes)),
        Some((dimensions, from)) => gather(x, &dimensions, from).map(Cow::Owned),
    }
}

/// [`transpose`] as a part of a longer operation, which looks at the deadline in between. Borrowed
/// if nothing moves.
pub(super) fn transposed_within<'a>(
    x: &Array<'a>,
    permutation: &[usize],
    check: &dyn Check,
) -> Result<Cow<'a, [u8]>> {
    let Some((dimensions, from)) = moved(x, permutation)? else {
        return Ok(Cow::Borrowed(x.bytes));
    };
    let mut bytes = filled_within(0_u8, x.bytes.len(), check)?;
    let to = Strides::dense(&dimensions, x.width());
    copy_within(
        &dimensions,
        x.width(),
        from.of(x.bytes),
        to.of(&mut bytes),
        check,
    )?;
    Ok(Cow::Owned(bytes))
}

/// The dimensions of a transposed array, and where its elements are. `None` if nothing moves.
fn moved(x: &Array<'_>, permutation: &[usize]) -> Result<Option<(Vec<usize>, Strides)>> {
    if permutation.iter().copied().eq(0..x.dimensions().len()) {
        return Ok(None);
    }
    let dense = Strides::dense(x.dimensions(), x.width());
    let pick = |&i: &usize| Some((*x.dimensions().get(i)?, *dense.steps.get(i)?));
    let picked: Option<(Vec<_>, Vec<_>)> = permutation.iter().map(pick).collect();
    let (dimensions, steps) = picked.ok_or_else(|| bug("a permutation is out of range"))?;
    Ok(Some((dimensions, Strides { start: 0, steps })))
}

/// The elements with these dimensions reversed.
pub(super) fn reverse(x: &Array<'_>, dimensions: &[usize]) -> Result<Vec<u8>> {
    let mut from = Strides::dense(x.dimensions(), x.width());
    for &dimension in dimensions {
        let count = x.dimensions().get(dimension);
        let step = from.steps.get_mut(dimension);
        let (count, step) = count.zip(step).ok_or_else(|| no_dimension(dimension))?;
        from.start += count.saturating_sub(1) * *step as usize;
        *step = -*step;
    }
    gather(x, x.dimensions(), from)
}

/// A part of these sizes.
pub(super) fn slice(x: &Array<'_>, sizes: &[usize], slices: &[SliceDimension]) -> Result<Vec<u8>> {
    let mut from = Strides::dense(x.dimensions(), x.width());
    for (step, slice) in zip(&mut from.steps, slices) {
        from.start += slice.start * *step as usize;
        *step = step.wrapping_mul(slice.stride as isize);
    }
    gather(x, sizes, from)
}

/// The part of these sizes that begins at `starts`, clamped to be in bounds.
pub(super) fn dynamic_slice(
    x: &Array<'_>,
    sizes: &[usize],
    starts: &[Array<'_>],
) -> Result<Vec<u8>> {
    gather(x, sizes, part(x, sizes, starts)?)
}

/// The operand, with `update` in place of the part that begins at `starts`, clamped to be in
/// bounds.
pub(super) fn dynamic_update_slice(
    x: &Array<'_>,
    update: &Array<'_>,
    starts: &[Array<'_>],
) -> Result<Vec<u8>> {
    let mut bytes = zeroed(x.bytes.len())?;
    bytes.copy_from_slice(x.bytes);
    scatter(update, &mut bytes, part(x, update.dimensions(), starts)?)?;
    Ok(bytes)
}

/// The operands, joined along a dimension.
pub(super) fn concatenate(
    operands: &[Array<'_>],
    shape: &ArrayShape,
    dimension: usize,
) -> Result<Vec<u8>> {
    let mut bytes = zeroed(shape.byte_size())?;
    let mut to = Strides::dense(shape.dimensions(), shape.element_type().byte_width());
    let step = to.steps.get(dimension).copied();
    let step = step.ok_or_else(|| no_dimension(dimension))?;
    for operand in operands {
        scatter(operand, &mut bytes, to.clone())?;
        let count = operand.dimensions().get(dimension);
        to.start += count.ok_or_else(|| no_dimension(dimension))? * step as usize;
    }
    Ok(bytes)
}

/// The operand with `value` inserted before, between and after its elements, or with elements
/// removed.
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
        to.start += kept.position * to.steps[i] as usize;
        to.steps[i] = to.steps[i].wrapping_mul(kept.distance as isize);
        counts.push(kept.count);
    }
    copy(&counts, x.width(), from.of(x.bytes), to.of(&mut bytes))?;
    Ok(bytes)
}

/// The elements of one dimension that remain when it is padded. All fields are 0 if none does.
#[derive(Default)]
struct Kept {
    /// The first element that remains.
    first: usize,
    /// The number of elements that remain.
    count: usize,
    /// The first one's position in the result.
    position: usize,
    /// The distance from one to the next in the result.
    distance: usize,
}

impl Kept {
    /// Pads `count` elements, which gives `result`. No sum overflows 128 bits.
    fn new(padding: &PaddingDimension, count: usize, result: usize) -> Self {
        let distance = padding.interior.unsigned_abs() as u128 + 1;
        let low = i128::from(padding.low);
        // Element `i` has the position `low + i * distance`.
        let elements_before = |position: i128| (position - low).max(0) as u128;
        let first = elements_before(0).div_ceil(distance);
        let end = elements_before(result as i128)
            .div_ceil(distance)
            .min(count as u128);
        if first >= end {
            return Self::default();
        }
        Self {
            first: first as usize,
            count: (end - first) as usize,
            position: (low + (first * distance) as i128) as usize,
            distance: distance as usize,
        }
    }
}

/// The positions of the part of these sizes that begins at `starts`, clamped to be in bounds.
fn part(x: &Array<'_>, sizes: &[usize], starts: &[Array<'_>]) -> Result<Strides> {
    let mut strides = Strides::dense(x.dimensions(), x.width());
    let starts = indices(starts)?;
    if starts.len() != sizes.len() {
        let (expected, found) = (sizes.len(), starts.len());
        return Err(bug(format_args!(
            "expected {expected} starts, found {found}"
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

/// The integers in these arrays: a scalar for each dimension, or one array of all.
pub(super) fn indices(starts: &[Array<'_>]) -> Result<Vec<i128>> {
    fn decoded<T: Wide + Into<i128>>(x: Elements<'_>) -> Result<Vec<i128>> {
        let mut integers = zeroed(x.count())?;
        T::decode(x.element_type, x.bytes, &mut integers)?;
        collected(integers.into_iter().map(T::into))
    }
    let decoded = |x: Elements<'_>| match Kind::of(x.element_type)? {
        Kind::Unsigned => decoded::<u64>(x),
        _ => decoded::<i64>(x),
    };
    if let [all] = starts {
        return decoded(all.elements());
    }
    let starts = starts.iter().map(|start| decoded(start.elements()));
    Ok(starts.collect::<Result<Vec<_>>>()?.concat())
}

/// A dense array of the elements at `from`.
pub(super) fn gather(x: &Array<'_>, dimensions: &[usize], from: Strides) -> Result<Vec<u8>> {
    // The product of the other dimensions may overflow.
    if dimensions.contains(&0) {
        return Ok(Vec::new());
    }
    let count = dimensions.iter().product::<usize>();
    let mut bytes = zeroed(x.width() * count)?;
    let to = Strides::dense(dimensions, x.width());
    copy(dimensions, x.width(), from.of(x.bytes), to.of(&mut bytes))?;
    Ok(bytes)
}

/// Copies a dense array's elements to the positions `to`.
pub(super) fn scatter(x: &Array<'_>, bytes: &mut [u8], to: Strides) -> Result<()> {
    let from = Strides::dense(x.dimensions(), x.width());
    copy(x.dimensions(), x.width(), from.of(x.bytes), to.of(bytes))
}

fn no_dimension(dimension: usize) -> Status {
    bug(format_args!("there is no dimension {dimension}"))
}

#[cfg(test)]
mod tests;
