//! Borrowed arrays, and literals made from bytes.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Check, bug, with_capacity, zeroed};
use callbox_core::values::{ArrayShape, ElementType, Literal, Result, Shape};

/// A borrowed array.
#[derive(Clone, Copy)]
pub(super) struct Array<'a> {
    pub(super) shape: &'a ArrayShape,
    /// Dense and row-major.
    pub(super) bytes: &'a [u8],
}

/// An array's elements without its dimensions.
#[derive(Clone, Copy)]
pub(super) struct Elements<'a> {
    pub(super) element_type: ElementType,
    pub(super) bytes: &'a [u8],
}

impl<'a> Array<'a> {
    pub(super) fn elements(&self) -> Elements<'a> {
        Elements {
            element_type: self.shape.element_type(),
            bytes: self.bytes,
        }
    }

    pub(super) fn dimensions(&self) -> &'a [usize] {
        self.shape.dimensions()
    }

    /// The size of an element in bytes.
    pub(super) fn width(&self) -> usize {
        self.shape.element_type().byte_width()
    }
}

impl<'a> Elements<'a> {
    /// The number of elements.
    pub(super) fn count(&self) -> usize {
        self.bytes
            .len()
            .checked_div(self.element_type.byte_width())
            .unwrap_or(0)
    }

    /// The bytes of `count` elements, starting with element `start`.
    pub(super) fn part(&self, start: usize, count: usize) -> Result<&'a [u8]> {
        let width = self.element_type.byte_width();
        let part = self.bytes.get(start * width..(start + count) * width);
        part.ok_or_else(|| bug(format_args!("expected {count} elements from {start} on")))
    }
}

/// The array of a literal that is no tuple.
pub(super) fn array(literal: &Literal) -> Result<Array<'_>> {
    match (literal.shape(), literal.bytes()) {
        (Shape::Array(shape), Some(bytes)) => Ok(Array { shape, bytes }),
        (shape, _) => Err(bug(format_args!("expected an array, found {shape}"))),
    }
}

/// A literal of one array.
pub(super) fn leaf(shape: &Shape, bytes: Vec<u8>) -> Result<Literal> {
    Literal::from_leaves(shape.clone(), vec![bytes]).map_err(bug)
}

/// `count` copies of one element.
pub(super) fn repeat(element: &[u8], count: usize) -> Result<Vec<u8>> {
    let size = element
        .len()
        .checked_mul(count)
        .ok_or_else(|| bug("a size overflows"))?;
    let mut bytes = zeroed(size)?;
    fill(element, &mut bytes);
    Ok(bytes)
}

/// The elements that are filled between two looks at the deadline: some milliseconds.
const BETWEEN_CHECKS: usize = 1 << 18;

/// `count` copies of a value as a part of a longer operation, which looks at the deadline in
/// between: memory that is accessed for the first time takes time, too.
pub(super) fn filled_within<T: Clone>(value: T, count: usize, check: &dyn Check) -> Result<Vec<T>> {
    let mut values = with_capacity(count)?;
    while values.len() < count {
        check.check()?;
        let more = BETWEEN_CHECKS.min(count - values.len());
        values.resize(values.len() + more, value.clone());
    }
    Ok(values)
}

/// [`repeat`] as a part of a longer operation, as [`filled_within`].
pub(super) fn repeat_within(element: &[u8], count: usize, check: &dyn Check) -> Result<Vec<u8>> {
    let size = element.len().checked_mul(count);
    let size = size.ok_or_else(|| bug("a size overflows"))?;
    let part = repeat(element, count.min(BETWEEN_CHECKS))?;
    let mut bytes = with_capacity(size)?;
    while bytes.len() < size {
        check.check()?;
        let more = part.len().min(size - bytes.len());
        bytes.extend_from_slice(&part[..more]);
    }
    Ok(bytes)
}

/// The results of `make` for arrays by their numbers. Arrays that are one in memory share a result.
pub(super) fn once_for_each<T: Clone>(
    arrays: &[Literal],
    mut make: impl FnMut(usize) -> Result<T>,
    check: &dyn Check,
) -> Result<Vec<T>> {
    /// The arrays that one is compared with, of those that lie in its memory.
    const MOST: usize = 16;
    let mut known: HashMap<*const Vec<u8>, Vec<usize>> = HashMap::new();
    let mut made: Vec<T> = with_capacity(arrays.len())?;
    for (number, x) in arrays.iter().enumerate() {
        check.check()?;
        let memory = x.shared_leaves().first().map(Arc::as_ptr);
        let others = known.entry(memory.unwrap_or_default()).or_default();
        let mut last = others.iter().rev().take(MOST);
        let same = last.find(|&&other| arrays[other].shape() == x.shape());
        made.push(match same {
            Some(&same) => made[same].clone(),
            None => {
                others.push(number);
                make(number)?
            }
        });
    }
    Ok(made)
}

/// Fills the bytes with copies of one element.
pub(super) fn fill(element: &[u8], bytes: &mut [u8]) {
    let size = bytes.len();
    if size > 0 {
        bytes[..element.len()].copy_from_slice(element);
    }
    // Copying element by element takes ten times as long. A part of this size stays in the cache,
    // and has a whole number of elements of every type.
    const PART: usize = 1 << 16;
    let mut done = element.len();
    while done < size {
        let more = done.min(size - done).min(PART);
        bytes.copy_within(..more, done);
        done += more;
    }
}
