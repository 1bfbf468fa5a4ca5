//! A batch: the elements of the arrays that a caller has, each of them a call.

use std::fmt;
use std::ops::Range;

use crate::call::CallSite;
use crate::values::{ArrayShape, Result, Shape, Status};

/// How the elements of a batch lie in a caller's arrays.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// The sizes of the batch's dimensions.
    sizes: Vec<usize>,
    /// How many elements it has.
    pub(super) count: usize,
    pub(super) operands: Vec<Leaf>,
    pub(super) results: Vec<Leaf>,
}

/// An array with a batch.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// Its size in bytes.
    pub(super) whole: usize,
    /// How many bytes an element takes.
    size: usize,
    /// By how many bytes an index in each of the batch's dimensions moves on: by none where the array is the same along one.
    strides: Vec<usize>,
}

impl Batch {
    /// The call site of one element, and where the elements lie. The batch's sizes are those of the results, or of the operands if there are none.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for arrays without so many dimensions, of other sizes than the first result's (an operand may be of size 1), or of layouts other
    /// than row-major.
    pub(super) fn split(site: &CallSite, dimensions: usize) -> Result<(CallSite, Self)> {
        let operands: Vec<_> = site.operands.iter().flat_map(Shape::leaves).collect();
        let results = site.result.leaves();
        let all = || {
            let operands = operands.iter().enumerate().map(|leaf| ("operand", leaf));
            operands.chain(results.iter().enumerate().map(|leaf| ("result", leaf)))
        };
        for (what, (i, shape)) in all() {
            if shape.rank() < dimensions || !shape.is_row_major() {
                return Err(Status::invalid_argument(format!(
                    "{what} {i}: expected a batch of {dimensions} dimensions before its own, row-major, found {shape}"
                )));
            }
        }
        let size = |dimension: usize| match results.first() {
            Some(first) => first.dimensions()[dimension],
            None => {
                let mut sizes = operands.iter().map(|shape| shape.dimensions()[dimension]);
                sizes.find(|size| *size != 1).unwrap_or(1)
            }
        };
        let sizes: Vec<usize> = (0..dimensions).map(size).collect();
        for (what, (i, shape)) in all() {
            let fits = |(found, size): (&usize, &usize)| {
                found == size || (what == "operand" && *found == 1)
            };
            if !std::iter::zip(shape.dimensions(), &sizes).all(fits) {
                return Err(Status::invalid_argument(format!(
                    "{what} {i}: expected the batch sizes {sizes:?}, found {shape}"
                )));
            }
        }
        let count = sizes
            .iter()
            .try_fold(1, |count: usize, size| count.checked_mul(*size));
        let count = count.ok_or_else(|| {
            Status::invalid_argument(format!(
                "expected a batch of at most {} elements, found the sizes {sizes:?}",
                usize::MAX
            ))
        })?;
        let element = CallSite {
            operands: without(&site.operands, dimensions)?,
            result: strip(&site.result, dimensions)?,
            ..site.clone()
        };
        let leaf = |shape: &ArrayShape| Leaf::new(shape, dimensions);
        let batch = Self {
            operands: operands.into_iter().map(leaf).collect(),
            results: results.into_iter().map(leaf).collect(),
            count,
            sizes,
        };
        Ok((element, batch))
    }

    /// The position of the element with this number, in row-major order.
    pub(super) fn position(&self, number: usize) -> Position {
        let mut rest = number;
        let indices = self.sizes.iter().rev().map(|&size| {
            let index = rest % size.max(1);
            rest /= size.max(1);
            index
        });
        let mut indices: Vec<_> = indices.collect();
        indices.reverse();
        Position(indices)
    }
}

impl Leaf {
    fn new(shape: &ArrayShape, dimensions: usize) -> Self {
        let (batch, own) = shape.dimensions().split_at(dimensions);
        let size = match own.contains(&0) {
            true => 0,
            false => own.iter().product::<usize>() * shape.element_type().byte_width(),
        };
        let mut stride = size;
        let strides = batch.iter().rev().map(|&size| {
            let moved = if size == 1 { 0 } else { stride };
            stride *= size;
            moved
        });
        let mut strides: Vec<_> = strides.collect();
        strides.reverse();
        Self {
            whole: shape.byte_size(),
            size,
            strides,
        }
    }

    /// Where an element lies.
    pub(super) fn range(&self, position: &Position) -> Range<usize> {
        let pairs = std::iter::zip(&self.strides, &position.0);
        let start = pairs.map(|(stride, index)| stride * index).sum();
        start..start + self.size
    }
}

/// An element's position in a batch, printed as its number if there is one dimension.
#[derive(Clone, Debug)]
pub(super) struct Position(Vec<usize>);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [index] => index.fmt(f),
            indices => {
                let indices: Vec<_> = indices.iter().map(usize::to_string).collect();
                write!(f, "({})", indices.join(", "))
            }
        }
    }
}

/// Shapes without their first dimensions.
fn without(shapes: &[Shape], dimensions: usize) -> Result<Vec<Shape>> {
    shapes
        .iter()
        .map(|shape| strip(shape, dimensions))
        .collect()
}

/// A shape without the first dimensions of its arrays, of which each has as many. A shape has at most 64 tuples one in the other.
fn strip(shape: &Shape, dimensions: usize) -> Result<Shape> {
    match shape {
        Shape::Array(array) => {
            Shape::array(array.element_type(), &array.dimensions()[dimensions..])
        }
        Shape::Tuple(tuple) => Shape::tuple(without(tuple.elements(), dimensions)?),
    }
}
