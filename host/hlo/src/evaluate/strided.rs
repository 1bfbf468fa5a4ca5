//! The one loop that moves elements, from one strided array to another.
//!
//! Slices, transposes, broadcasts, reversals, concatenations and paddings differ only in their
//! strides.

use std::iter::zip;
use std::ops::Range;

use super::array::Array;
use super::{Check, bug};
use callbox_core::values::Result;

/// The positions of an array's elements, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Strides {
    /// The position of the first element.
    pub(super) start: usize,
    /// For each dimension, the distance from an element to the next; may be 0 or negative.
    pub(super) steps: Vec<isize>,
}

/// Memory with the positions of an array's elements in it.
pub(super) struct Strided<B> {
    bytes: B,
    strides: Strides,
}

impl Strides {
    /// The strides of a dense row-major array whose elements have `width` bytes.
    pub(super) fn dense(dimensions: &[usize], width: usize) -> Self {
        let mut step = width as isize;
        let mut steps = vec![0; dimensions.len()];
        for (to, &dimension) in zip(&mut steps, dimensions).rev() {
            *to = step;
            // A shape's constructor checked this product, over the dimensions other than 0.
            step *= dimension.max(1) as isize;
        }
        Self { start: 0, steps }
    }

    /// The strides of an array, dense and row-major, as an array of another rank: its dimension `i`
    /// becomes dimension `to[i]`, and the others repeat.
    pub(super) fn broadcast(x: &Array<'_>, to: &[usize], rank: usize) -> Result<Self> {
        let mut steps = vec![0; rank];
        let dense = Self::dense(x.dimensions(), x.width());
        for (&dimension, (&count, step)) in zip(to, zip(x.dimensions(), dense.steps)) {
            let to = steps.get_mut(dimension);
            let to = to.ok_or_else(|| bug(format_args!("there is no dimension {dimension}")))?;
            *to = if count == 1 { 0 } else { step };
        }
        Ok(Self { start: 0, steps })
    }

    /// The positions from another element on: the one with this number along a dimension.
    pub(super) fn moved(&self, dimension: usize, number: usize) -> Self {
        let step = self.steps.get(dimension).copied().unwrap_or_default();
        Self {
            start: self.start.wrapping_add(number.wrapping_mul(step as usize)),
            steps: self.steps.clone(),
        }
    }

    /// These positions in this memory.
    pub(super) fn of<B>(self, bytes: B) -> Strided<B> {
        Strided {
            bytes,
            strides: self,
        }
    }
}

/// Copies an array of these dimensions, whose elements have `width` bytes.
///
/// # Errors
/// INTERNAL if an element is out of bounds.
pub(super) fn copy(
    dimensions: &[usize],
    width: usize,
    from: Strided<&[u8]>,
    to: Strided<&mut [u8]>,
) -> Result<()> {
    if dimensions.contains(&0) || width == 0 {
        return Ok(());
    }
    let (run, loops) = nest(dimensions, width, &from.strides, &to.strides);
    let start = Position {
        from: from.strides.start as isize,
        to: to.strides.start as isize,
    };
    let (from, to) = (from.bytes, to.bytes);
    let copied = match run {
        1 => walk(&loops, start, &mut |at| copy_run::<1>(from, to, at)),
        2 => walk(&loops, start, &mut |at| copy_run::<2>(from, to, at)),
        4 => walk(&loops, start, &mut |at| copy_run::<4>(from, to, at)),
        8 => walk(&loops, start, &mut |at| copy_run::<8>(from, to, at)),
        16 => walk(&loops, start, &mut |at| copy_run::<16>(from, to, at)),
        _ => walk(&loops, start, &mut |at| {
            let from = from.get(range(at.from, run)?)?;
            to.get_mut(range(at.to, run)?)?.copy_from_slice(from);
            Some(())
        }),
    };
    copied.ok_or_else(|| bug("an element is out of its array's bounds"))
}

/// The elements that are moved between two looks at the deadline: some milliseconds.
const BETWEEN_CHECKS: usize = 1 << 18;

/// [`copy`] as a part of a longer operation, which looks at the deadline in between.
///
/// # Errors
/// As for [`copy`], or the error of the check.
pub(super) fn copy_within(
    dimensions: &[usize],
    width: usize,
    from: Strided<&[u8]>,
    to: Strided<&mut [u8]>,
    check: &dyn Check,
) -> Result<()> {
    if dimensions.contains(&0) {
        return Ok(());
    }
    let Some((&first, rest)) = dimensions.split_first() else {
        return copy(dimensions, width, from, to);
    };
    let of_one = rest.iter().product::<usize>();
    let several = (BETWEEN_CHECKS / of_one).clamp(1, first);
    for number in (0..first).step_by(several) {
        let mut source = from.strides.moved(0, number);
        let mut target = to.strides.moved(0, number);
        if of_one > BETWEEN_CHECKS {
            source.steps.remove(0);
            target.steps.remove(0);
            let (source, target) = (source.of(from.bytes), target.of(&mut *to.bytes));
            copy_within(rest, width, source, target, check)?;
            continue;
        }
        check.check()?;
        let part = [&[several.min(first - number)], rest].concat();
        copy(
            &part,
            width,
            source.of(from.bytes),
            target.of(&mut *to.bytes),
        )?;
    }
    Ok(())
}

/// One loop: its count and its step.
#[derive(Clone, Copy)]
struct Loop {
    count: usize,
    step: Position,
}

#[derive(Clone, Copy)]
struct Position {
    from: isize,
    to: isize,
}

/// The bytes that are contiguous in both arrays, and the loops around them, outermost first.
/// Adjacent dimensions become one loop where both arrays allow it.
fn nest(dimensions: &[usize], width: usize, from: &Strides, to: &Strides) -> (usize, Vec<Loop>) {
    let mut loops: Vec<Loop> = Vec::with_capacity(dimensions.len());
    for (&count, (&from, &to)) in zip(dimensions, zip(&from.steps, &to.steps)) {
        let step = Position { from, to };
        let spans = |step: isize, outer: isize| step.wrapping_mul(count as isize) == outer;
        match loops.last_mut() {
            _ if count == 1 => {}
            Some(outer) if spans(from, outer.step.from) && spans(to, outer.step.to) => {
                outer.count *= count;
                outer.step = step;
            }
            _ => loops.push(Loop { count, step }),
        }
    }
    let width_step = width as isize;
    match loops.pop_if(|inner| inner.step.from == width_step && inner.step.to == width_step) {
        Some(inner) => (inner.count * width, loops),
        None => (width, loops),
    }
}

/// Calls `visit` at each position, in order. Each loop at least doubles the number of elements, so
/// that the recursion is shallow.
fn walk(
    loops: &[Loop],
    mut at: Position,
    visit: &mut impl FnMut(Position) -> Option<()>,
) -> Option<()> {
    let Some((outer, inner)) = loops.split_first() else {
        return visit(at);
    };
    for _ in 0..outer.count {
        if inner.is_empty() {
            visit(at)?;
        } else {
            walk(inner, at, visit)?;
        }
        at.from = at.from.wrapping_add(outer.step.from);
        at.to = at.to.wrapping_add(outer.step.to);
    }
    Some(())
}

fn copy_run<const WIDTH: usize>(from: &[u8], to: &mut [u8], at: Position) -> Option<()> {
    let from: &[u8; WIDTH] = from.get(range(at.from, WIDTH)?)?.try_into().ok()?;
    let to: &mut [u8; WIDTH] = to.get_mut(range(at.to, WIDTH)?)?.try_into().ok()?;
    *to = *from;
    Some(())
}

fn range(start: isize, length: usize) -> Option<Range<usize>> {
    let start = usize::try_from(start).ok()?;
    Some(start..start.checked_add(length)?)
}

#[cfg(test)]
mod tests;
