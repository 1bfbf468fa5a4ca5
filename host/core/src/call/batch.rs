//! Batches: one call for each element of the caller's arrays.
//!
//! This module is the layout of a batch, `calls` calls its elements, and `report` tells of
//! those that fail.

mod calls;
mod report;

use std::fmt;
use std::ops::Range;

use super::buffers::PartAt;
use super::{CallBuffers, CallSite, DeviceBuffer};
use crate::values::{ArrayShape, Result, Shape, Status};

pub use self::report::Failed;
pub(super) use self::report::{of_later_part, of_part};

/// How the elements of a batch lie in a caller's arrays.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The sizes of the batch's dimensions.
    pub sizes: Box<[usize]>,
    /// The number of elements.
    pub count: usize,
    /// The operands' leaves in preorder.
    pub operands: Box<[Leaf]>,
    /// The results' leaves in preorder.
    pub results: Box<[Leaf]>,
}

/// An array with batch dimensions.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The array's size in bytes.
    pub whole: usize,
    /// The bytes of one element.
    pub size: usize,
    /// The stride in bytes of each batch dimension, for an array that elements share along some of
    /// them. `None` if the elements are contiguous.
    pub strides: Option<Box<[usize]>>,
}

impl Batch {
    /// Splits a call site into that of one element and the places of all elements. The batch's
    /// sizes are those of the results, or of the operands if there are no results.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for arrays of fewer dimensions, of other sizes than the first result's (an
    /// operand's may be 1), or of layouts other than row-major.
    pub fn split(site: &CallSite, dimensions: usize) -> Result<(CallSite, Self)> {
        let operands: Vec<_> = site.operands.iter().flat_map(Shape::leaves).collect();
        let results = site.result.leaves();
        check_leaves("operand", &operands, dimensions)?;
        check_leaves("result", &results, dimensions)?;
        let sizes = match results.first() {
            Some(first) => first.dimensions()[..dimensions].to_vec(),
            None => sizes_of_operands(&operands, dimensions),
        };
        check_results(&results, &sizes)?;
        check_operands(&operands, &sizes)?;
        let count = sizes
            .iter()
            .try_fold(1, |count: usize, size| count.checked_mul(*size));
        let count = count.ok_or_else(|| {
            let most = usize::MAX;
            Status::invalid_argument(format!(
                "expected a batch of at most {most} elements, found the sizes {sizes:?}"
            ))
        })?;

        let mut strip = |array: &ArrayShape| {
            ArrayShape::new(array.element_type(), &array.dimensions()[dimensions..])
        };
        let own = site.operands.iter();
        let own = own.map(|shape| shape.map_arrays(&mut strip));
        let own = own.collect::<Result<_>>()?;
        let element = CallSite {
            operands: own,
            result: site.result.map_arrays(&mut strip)?,
            ..site.clone()
        };
        let operands = operands.into_iter().map(|shape| Leaf::new(shape, &sizes));
        let results = results.into_iter().map(|shape| Leaf::new(shape, &sizes));
        let batch = Self {
            operands: operands.collect(),
            results: results.collect(),
            count,
            sizes: sizes.into(),
        };
        Ok((element, batch))
    }

    /// Moves a position to the next element.
    pub fn advance(&self, position: &mut [usize]) {
        for (index, size) in std::iter::zip(position, &self.sizes).rev() {
            *index += 1;
            if *index < *size {
                return;
            }
            *index = 0;
        }
    }

    /// The position of the element with this number.
    pub fn position(&self, number: usize) -> Vec<usize> {
        let mut rest = number;
        let indices = self.sizes.iter().rev().map(|&size| {
            let index = rest % size.max(1);
            rest /= size.max(1);
            index
        });
        let mut position: Vec<_> = indices.collect();
        position.reverse();
        position
    }
}

impl Leaf {
    /// An unread result.
    pub const NONE: Self = Self {
        whole: 0,
        size: 0,
        strides: None,
    };

    /// An array whose first dimensions are these sizes or 1.
    fn new(shape: &ArrayShape, sizes: &[usize]) -> Self {
        let (batch, own) = shape.dimensions().split_at(sizes.len());
        let size = if own.contains(&0) {
            0
        } else {
            own.iter().product::<usize>() * shape.element_type().byte_width()
        };
        let strides = (batch != sizes).then(|| {
            let mut stride = size;
            let strides = batch.iter().rev().map(|&size| {
                let moved = if size == 1 { 0 } else { stride };
                stride *= size;
                moved
            });
            let mut strides: Box<[_]> = strides.collect();
            strides.reverse();
            strides
        });
        Self {
            whole: shape.byte_size(),
            size,
            strides,
        }
    }

    /// The offset of an element.
    #[inline]
    pub fn offset(&self, number: usize, position: &[usize]) -> usize {
        match &self.strides {
            None => number * self.size,
            Some(strides) => std::iter::zip(strides, position)
                .map(|(stride, index)| stride * index)
                .sum(),
        }
    }

    /// The byte range of an element.
    pub fn range(&self, number: usize, position: &[usize]) -> Range<usize> {
        let start = self.offset(number, position);
        start..start + self.size
    }
}

/// An element of a batch: its number and its position.
struct Element<'a> {
    number: usize,
    position: &'a [usize],
}

impl PartAt<Element<'_>> for Leaf {
    #[inline]
    fn size_at(&self, _: &Element<'_>) -> usize {
        self.size
    }

    #[inline]
    fn offset_at(&self, at: &Element<'_>) -> usize {
        self.offset(at.number, at.position)
    }
}

/// Displays an element's position in a batch: its number, if there is one dimension.
#[derive(Debug)]
pub struct At<'a>(pub &'a [usize]);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [index] => index.fmt(f),
            indices => {
                let indices: Vec<_> = indices.iter().map(usize::to_string).collect();
                write!(f, "({})", indices.join(", "))
            }
        }
    }
}

/// For each batch dimension, the operands' size that is not 1, or else 1.
fn sizes_of_operands(operands: &[&ArrayShape], dimensions: usize) -> Vec<usize> {
    let size = |dimension: usize| {
        let mut sizes = operands.iter().map(|shape| shape.dimensions()[dimension]);
        sizes.find(|size| *size != 1).unwrap_or(1)
    };
    (0..dimensions).map(size).collect()
}

/// Checks that arrays can have a batch of so many dimensions.
fn check_leaves(what: &str, leaves: &[&ArrayShape], dimensions: usize) -> Result<()> {
    for (i, shape) in leaves.iter().enumerate() {
        if !shape.is_row_major() {
            return Err(Status::invalid_argument(format!(
                "{what} {i}: expected a row-major layout for a call that is mapped, found {shape}"
            )));
        }
        if shape.rank() < dimensions {
            return Err(Status::invalid_argument(format!(
                "{what} {i}: expected a batch of {dimensions} dimensions before its own, found {shape}"
            )));
        }
    }
    Ok(())
}

fn check_results(results: &[&ArrayShape], sizes: &[usize]) -> Result<()> {
    for (i, shape) in results.iter().enumerate() {
        if shape.dimensions()[..sizes.len()] != *sizes {
            return Err(Status::invalid_argument(format!(
                "result {i}: expected the batch sizes {sizes:?}, which result 0 has, found {shape}"
            )));
        }
    }
    Ok(())
}

fn check_operands(operands: &[&ArrayShape], sizes: &[usize]) -> Result<()> {
    for (i, shape) in operands.iter().enumerate() {
        let pairs = std::iter::zip(shape.dimensions(), sizes).enumerate();
        for (dimension, (found, size)) in pairs {
            if found != size && *found != 1 {
                return Err(Status::invalid_argument(format!(
                    "operand {i}: expected a batch dimension {dimension} of size {size} or 1, found {shape}"
                )));
            }
        }
    }
    Ok(())
}

impl Batch {
    /// Checks the number and the sizes of the caller's buffers.
    pub(super) fn check<B: CallBuffers>(&self, buffers: &B) -> Result<()> {
        let operands = self.operands.iter().map(|leaf| leaf.whole);
        check_sizes("operand", operands, buffers.operands(), |i| {
            buffers.operand_size(i)
        })?;
        let results = self.results.iter().map(|leaf| leaf.whole);
        check_sizes("result", results, buffers.results(), |i| {
            buffers.result_size(i)
        })
    }

    /// Checks the number and the sizes of the caller's arrays on a device.
    pub(super) fn check_device(
        &self,
        operands: &[DeviceBuffer],
        results: &[DeviceBuffer],
    ) -> Result<()> {
        let sizes = self.operands.iter().map(|leaf| leaf.whole);
        check_sizes("operand", sizes, operands.len(), |i| operands[i].size())?;
        let sizes = self.results.iter().map(|leaf| leaf.whole);
        check_sizes("result", sizes, results.len(), |i| results[i].size())
    }
}

/// Checks the number and the sizes in bytes of a caller's buffers.
///
/// # Errors
/// INVALID_ARGUMENT if they differ from `sizes`.
#[inline]
pub fn check_sizes(
    what: &str,
    sizes: impl ExactSizeIterator<Item = usize>,
    count: usize,
    length: impl Fn(usize) -> usize,
) -> Result<()> {
    if sizes.len() != count {
        return Err(wrong_buffers(format!(
            "expected {} {what} buffers, found {count}",
            sizes.len()
        )));
    }
    for (i, size) in sizes.enumerate() {
        let length = length(i);
        if size != length {
            return Err(wrong_buffers(format!(
                "{what} {i}: expected {size} bytes, found {length}"
            )));
        }
    }
    Ok(())
}

#[cold]
fn wrong_buffers(message: String) -> Status {
    Status::invalid_argument(message)
}
