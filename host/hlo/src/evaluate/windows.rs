//! Operations that slide a window over an array.
//!
//! Each element of the window is a strided slice of the padded array, with an element for each
//! position of the window: as many steps as the window has elements, each for all positions.

use std::iter::zip;
use std::rc::Rc;

use super::apply::{apply, line};
use super::array::{Array, array, once_for_each, repeat};
use super::elementwise::chosen;
use super::indexing::combine;
use super::movement::pad;
use super::{Callee, bug, with_capacity, zeroed};
use crate::instruction::{ComputationId, PaddingDimension, SliceDimension, WindowDimension};
use callbox_core::values::{
    ArrayShape, Blame, ElementType, Literal, Result, Shape, Status, StatusCode,
};

/// Reduces each position of the window, in row-major order of its elements. Padding is left out, as
/// XLA's backends do.
pub(super) fn reduce_window(
    shape: &Shape,
    operands: &[Literal],
    window: &[WindowDimension],
    computation: ComputationId,
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let (inputs, initial) = operands.split_at(operands.len() / 2);
    let leaves = shape.leaves();
    let result = leaves
        .first()
        .ok_or_else(|| bug("a reduction has no result"))?;
    let count = result.element_count();
    if count == 0 {
        let leaves = vec![Vec::new(); leaves.len()];
        return Literal::from_leaves(shape.clone(), leaves).map_err(bug);
    }
    let mut few = FEW_PADDED;
    let check = callee.team().check;
    let make = |number: usize| {
        let (x, initial) = (array(&inputs[number])?, array(&initial[number])?);
        Ok(Rc::new(Padded::new(&x, &initial, window, &mut few)?))
    };
    // What is computed of padding is left out, so that any initial value does for it.
    let padded = once_for_each(inputs, make, check)?;
    let sums = initial.iter().map(|initial| {
        check.check()?;
        let initial = array(initial)?;
        line(initial.shape.element_type(), repeat(initial.bytes, count)?)
    });
    let mut sums = sums.collect::<Result<Vec<_>>>()?;
    let inside = match inputs.first() {
        Some(x) if has_padding(window) => Some(inside(&array(x)?, window, &mut few)?),
        _ => None,
    };
    for offset in Offsets::of(window) {
        let mut arguments = sums.clone();
        for x in &padded {
            arguments.push(x.part(window, &offset, result.dimensions())?);
        }
        let combined = apply(computation, &arguments, count, callee)?;
        sums = match &inside {
            Some(inside) => {
                let inside = inside.part(window, &offset, result.dimensions())?;
                let pairs = zip(&combined, &sums);
                let kept = pairs.map(|(new, old)| replaced(&inside, new, old));
                kept.collect::<Result<_>>()?
            }
            None => combined,
        };
    }
    let leaves = sums.iter().map(|sum| Ok(array(sum)?.bytes.to_vec()));
    Literal::from_leaves(shape.clone(), leaves.collect::<Result<_>>()?).map_err(bug)
}

/// Whether a position of the window can have elements that are not of the array.
fn has_padding(window: &[WindowDimension]) -> bool {
    let mut dimensions = window.iter();
    dimensions.any(|d| d.low > 0 || d.high > 0 || d.base_dilation > 1)
}

/// True for each element of `x`, and false for the padding.
fn inside(x: &Array<'_>, window: &[WindowDimension], few: &mut usize) -> Result<Padded> {
    let of = |sizes: &[usize]| ArrayShape::new(ElementType::Pred, sizes).map_err(bug);
    let trues = Array {
        shape: &of(x.dimensions())?,
        bytes: &repeat(&[1], x.shape.element_count())?,
    };
    let padding = Array {
        shape: &of(&[])?,
        bytes: &[0],
    };
    Padded::new(&trues, &padding, window, few)
}

/// The elements of `new` where `which` is true, and of `old` elsewhere.
fn replaced(which: &Literal, new: &Literal, old: &Literal) -> Result<Literal> {
    let (which, new, old) = (array(which)?, array(new)?, array(old)?);
    let bytes = chosen(which.bytes, new.bytes, old.bytes, new.width())?;
    line(new.shape.element_type(), bytes)
}

/// An array of the initial value, with each element of the source combined where the window at
/// its position selects an element of the operand.
pub(super) fn select_and_scatter(
    shape: &Shape,
    operands: &[Literal],
    window: &[WindowDimension],
    [select, combination]: [ComputationId; 2],
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let [x, source, initial] = operands else {
        return Err(bug("select-and-scatter lacks operands"));
    };
    let (x, source, initial) = (array(x)?, array(source)?, array(initial)?);
    let mut result = vec![repeat(initial.bytes, x.shape.element_count())?];
    let selected = selected([&x, &source, &initial], window, select, callee)?;
    let targets = selected.iter().enumerate();
    let targets = targets.filter(|(_, number)| **number != 0);
    let targets = targets.map(|(from, &number)| (number as usize - 1, from));
    combine(
        &mut result,
        &[source],
        targets.collect(),
        combination,
        callee,
    )?;
    Literal::from_leaves(shape.clone(), result).map_err(bug)
}

/// For each element of the source, the number of the element of `x` that its window selects,
/// counted from 1, and 0 if the window has only padding.
fn selected(
    [x, source, initial]: [&Array<'_>; 3],
    window: &[WindowDimension],
    select: ComputationId,
    callee: &mut dyn Callee,
) -> Result<Vec<u64>> {
    let count = source.shape.element_count();
    let mut few = FEW_PADDED;
    let values = Padded::new(x, initial, window, &mut few)?;
    // The number of each element, and 0 for the padding.
    let mut numbers = with_capacity(8 * x.shape.element_count())?;
    numbers.extend((1..=x.shape.element_count() as u64).flat_map(u64::to_le_bytes));
    let numbered = ArrayShape::new(ElementType::U64, x.dimensions()).map_err(bug)?;
    let numbers = Padded::new(
        &Array {
            shape: &numbered,
            bytes: &numbers,
        },
        &Array {
            shape: &ArrayShape::new(ElementType::U64, &[]).map_err(bug)?,
            bytes: &[0; 8],
        },
        window,
        &mut few,
    )?;
    let mut selected = zeroed::<u64>(count)?;
    let mut best = line(x.shape.element_type(), repeat(initial.bytes, count)?)?;
    if count == 0 {
        return Ok(selected);
    }
    for offset in Offsets::of(window) {
        let candidate = values.part(window, &offset, source.dimensions())?;
        let number = numbers.part(window, &offset, source.dimensions())?;
        let number = number.to_vec::<u64>()?;
        let keeps = apply(select, &[best.clone(), candidate.clone()], count, callee)?;
        let keeps = keeps
            .first()
            .ok_or_else(|| bug("a selection has no result"))?;
        let mut bytes = array(&best)?.bytes.to_vec();
        let taken = zip(
            bytes.chunks_exact_mut(x.width()),
            array(&candidate)?.bytes.chunks_exact(x.width()),
        );
        let choices = zip(zip(&mut selected, number), array(keeps)?.bytes);
        for ((to, from), ((selected, number), &keeps)) in zip(taken, choices) {
            if number != 0 && (*selected == 0 || keeps == 0) {
                to.copy_from_slice(from);
                *selected = number;
            }
        }
        best = line(x.shape.element_type(), bytes)?;
    }
    Ok(selected)
}

/// The most elements that padding and dilation may make of each: the first number if the padded
/// array is not large, and otherwise the second.
const MOST_PADDED: [usize; 2] = [64, 8];
const LARGE_PADDED: usize = 1 << 26;
/// The elements that they may make of all arrays of an instruction beyond that.
pub(super) const FEW_PADDED: usize = 1 << 22;

/// An array with the padding and the base dilation of a window.
pub(super) struct Padded {
    pub(super) shape: ArrayShape,
    bytes: Vec<u8>,
}

impl Padded {
    /// Takes the elements beyond [`MOST_PADDED`] for each one of `x` off `few`.
    pub(super) fn new(
        x: &Array<'_>,
        value: &Array<'_>,
        window: &[WindowDimension],
        few: &mut usize,
    ) -> Result<Self> {
        let padding = window.iter().map(|dimension| PaddingDimension {
            low: dimension.low,
            high: dimension.high,
            // A dilation that is no such number has no two elements to part.
            interior: i64::try_from(dimension.base_dilation).unwrap_or(i64::MAX) - 1,
        });
        let padding = Vec::from_iter(padding);
        let sizes = zip(&padding, x.dimensions()).map(|(padding, &size)| {
            let between = size.saturating_sub(1) as i128 * i128::from(padding.interior);
            let size = size as i128 + between + i128::from(padding.low) + i128::from(padding.high);
            size.max(0).unsigned_abs()
        });
        let sizes = Vec::from_iter(sizes);
        let count = sizes.iter().copied().fold(1, u128::saturating_mul);
        let [most, least] = MOST_PADDED.map(|each| x.shape.element_count().saturating_mul(each));
        let usual = most.min(LARGE_PADDED).max(least);
        let most = usual.saturating_add(*few);
        if count > most as u128 {
            return Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Caller,
                format!(
                    "expected a window for which {} is padded and dilated to at most {most} elements, found {count}",
                    x.shape
                ),
            ));
        }
        *few -= (count as usize).saturating_sub(usual);
        // Beside a dimension of 0, another can be of any size.
        let sizes = sizes.into_iter();
        let sizes = sizes.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        let shape = ArrayShape::new(x.shape.element_type(), &Vec::from_iter(sizes))?;
        let bytes = pad(x, value, &shape, &padding)?;
        Ok(Self { shape, bytes })
    }

    pub(super) fn array(&self) -> Array<'_> {
        Array {
            shape: &self.shape,
            bytes: &self.bytes,
        }
    }

    /// The element of the window at `offset`, for each of the window's positions.
    fn part(
        &self,
        window: &[WindowDimension],
        offset: &[usize],
        positions: &[usize],
    ) -> Result<Literal> {
        let slices = zip(window, offset).map(|(dimension, &offset)| SliceDimension {
            start: offset * dimension.window_dilation,
            limit: 0,
            stride: dimension.stride,
        });
        let bytes = super::movement::slice(&self.array(), positions, &Vec::from_iter(slices))?;
        line(self.shape.element_type(), bytes)
    }
}

/// The elements of a window, in row-major order.
struct Offsets {
    sizes: Vec<usize>,
    next: Option<Vec<usize>>,
}

impl Offsets {
    fn of(window: &[WindowDimension]) -> Self {
        let sizes = Vec::from_iter(window.iter().map(|dimension| dimension.size));
        let next = Some(vec![0; sizes.len()]);
        Self { sizes, next }
    }
}

impl Iterator for Offsets {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let current = self.next.take()?;
        let mut following = current.clone();
        for (offset, &size) in zip(&mut following, &self.sizes).rev() {
            *offset += 1;
            if *offset < size {
                self.next = Some(following);
                return Some(current);
            }
            *offset = 0;
        }
        Some(current)
    }
}
