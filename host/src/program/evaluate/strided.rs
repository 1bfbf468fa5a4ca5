//! The one loop that moves elements: from an array with steps between its elements to another. Slices, transposes, broadcasts,
//! reversals, concatenations and paddings differ in their steps alone.

use std::iter::zip;

use super::bug;
use crate::values::Result;

/// Where an array's elements lie, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Strides {
    /// Where the first lies.
    pub(super) start: usize,
    /// For each dimension, from an element to the next. It may be 0 or negative.
    pub(super) steps: Vec<isize>,
}

impl Strides {
    /// Those of a dense row-major array whose elements take `width` bytes.
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
}

/// Copies an array of these dimensions, whose elements take `width` bytes, from where it lies to where it is to lie.
///
/// # Errors
/// INTERNAL if an element lies outside of the bytes.
pub(super) fn copy(
    dimensions: &[usize],
    width: usize,
    (from, from_strides): (&[u8], &Strides),
    (to, to_strides): (&mut [u8], &Strides),
) -> Result<()> {
    if dimensions.contains(&0) || width == 0 {
        return Ok(());
    }
    let (run, loops) = nest(dimensions, width, from_strides, to_strides);
    let start = Position {
        from: from_strides.start as isize,
        to: to_strides.start as isize,
    };
    let copied = match run {
        1 => walk(&loops, start, |at| element::<1>(from, to, at)),
        2 => walk(&loops, start, |at| element::<2>(from, to, at)),
        4 => walk(&loops, start, |at| element::<4>(from, to, at)),
        8 => walk(&loops, start, |at| element::<8>(from, to, at)),
        16 => walk(&loops, start, |at| element::<16>(from, to, at)),
        _ => walk(&loops, start, |at| {
            to.get_mut(range(at.to, run)?)?
                .copy_from_slice(from.get(range(at.from, run)?)?);
            Some(())
        }),
    };
    copied.ok_or_else(|| bug("an element lies outside of its array"))
}

/// One loop: how often, and how far each time.
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

impl Position {
    fn forward(self, step: Position) -> Self {
        Self {
            from: self.from.wrapping_add(step.from),
            to: self.to.wrapping_add(step.to),
        }
    }

    fn back(self, step: Position, count: usize) -> Self {
        let count = count as isize;
        Self {
            from: self.from.wrapping_sub(step.from.wrapping_mul(count)),
            to: self.to.wrapping_sub(step.to.wrapping_mul(count)),
        }
    }
}

/// The bytes that lie together in both arrays, and the loops around them, from the outermost: as few as there can be.
fn nest(dimensions: &[usize], width: usize, from: &Strides, to: &Strides) -> (usize, Vec<Loop>) {
    let mut loops: Vec<Loop> = Vec::with_capacity(dimensions.len());
    for (&count, (&from, &to)) in zip(dimensions, zip(&from.steps, &to.steps)) {
        let spans = |step: isize, outer: isize| step.wrapping_mul(count as isize) == outer;
        match loops.last_mut() {
            _ if count == 1 => {}
            Some(outer) if spans(from, outer.step.from) && spans(to, outer.step.to) => {
                outer.count *= count;
                outer.step = Position { from, to };
            }
            _ => loops.push(Loop {
                count,
                step: Position { from, to },
            }),
        }
    }
    let width_step = width as isize;
    match loops.pop_if(|inner| inner.step.from == width_step && inner.step.to == width_step) {
        Some(inner) => (inner.count * width, loops),
        None => (width, loops),
    }
}

/// Calls `visit` at each position, from the first to the last.
fn walk(
    loops: &[Loop],
    start: Position,
    mut visit: impl FnMut(Position) -> Option<()>,
) -> Option<()> {
    let Some((inner, outer)) = loops.split_last() else {
        return visit(start);
    };
    let mut at = start;
    let mut indices = vec![0; outer.len()];
    loop {
        let mut inside = at;
        for _ in 0..inner.count {
            visit(inside)?;
            inside = inside.forward(inner.step);
        }
        let mut carried = zip(&mut indices, outer).rev();
        loop {
            let Some((index, outer)) = carried.next() else {
                return Some(());
            };
            *index += 1;
            at = at.forward(outer.step);
            if *index < outer.count {
                break;
            }
            *index = 0;
            at = at.back(outer.step, outer.count);
        }
    }
}

fn element<const WIDTH: usize>(from: &[u8], to: &mut [u8], at: Position) -> Option<()> {
    let from: &[u8; WIDTH] = from.get(range(at.from, WIDTH)?)?.try_into().ok()?;
    let to: &mut [u8; WIDTH] = to.get_mut(range(at.to, WIDTH)?)?.try_into().ok()?;
    *to = *from;
    Some(())
}

fn range(start: isize, length: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(start).ok()?;
    Some(start..start.checked_add(length)?)
}

#[cfg(test)]
mod tests;
