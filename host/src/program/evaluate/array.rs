//! Arrays as this module reads and makes them.

use super::{bug, zeroed};
use crate::values::{ArrayShape, ElementType, Literal, Result, Shape};

/// An array that someone else holds.
#[derive(Clone, Copy)]
pub(super) struct Array<'a> {
    pub(super) shape: &'a ArrayShape,
    /// Dense, row-major.
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

    /// How many bytes an element takes.
    pub(super) fn width(&self) -> usize {
        self.shape.element_type().byte_width()
    }
}

impl<'a> Elements<'a> {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.bytes
            .len()
            .checked_div(self.element_type.byte_width())
            .unwrap_or(0)
    }

    /// The bytes of `count` of them from the one of number `start`.
    pub(super) fn part(&self, start: usize, count: usize) -> Result<&'a [u8]> {
        let width = self.element_type.byte_width();
        let part = self.bytes.get(start * width..(start + count) * width);
        part.ok_or_else(|| bug(format_args!("expected {count} elements from {start} on")))
    }
}

/// A literal's array.
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

/// One element, again and again.
pub(super) fn repeat(element: &[u8], count: usize) -> Result<Vec<u8>> {
    let size = element
        .len()
        .checked_mul(count)
        .ok_or_else(|| bug("a size overflows"))?;
    let mut bytes = zeroed(size)?;
    match element {
        [] => {}
        [byte] => bytes.fill(*byte),
        _ => bytes
            .chunks_exact_mut(element.len())
            .for_each(|to| to.copy_from_slice(element)),
    }
    Ok(bytes)
}
