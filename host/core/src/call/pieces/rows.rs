//! Rows: the parts of arrays of which pieces are made.

use crate::call::batch::Batch;
use crate::call::buffers::PartAt;
use crate::call::signature::dimensions::{ELEMENTWISE, has_rows};
use crate::call::{BufferSignature, CallSite, Signature};
use crate::values::{ArrayShape, Result, Shape};

/// The number of elements in a piece of an elementwise target is a multiple of this, so that
/// unrolled and vectorised loops of kernels leave no remainder.
const MULTIPLE: usize = 64;

/// The part of an array that a piece takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// As many rows as the piece has.
    Rows(Row),
    /// The whole array, of this many bytes.
    Whole(usize),
}

/// A row of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The number of the array's last dimensions that are the row's.
    pub(super) own: usize,
    /// The bytes that are copied of each row.
    width: usize,
}

/// The rows of a piece.
pub(super) struct Rows {
    pub(super) first: usize,
    pub(super) count: usize,
}

impl PartAt<Rows> for Part {
    #[inline]
    fn size_at(&self, rows: &Rows) -> usize {
        match self {
            Self::Rows(row) => rows.count * row.width,
            Self::Whole(size) => *size,
        }
    }

    #[inline]
    fn offset_at(&self, rows: &Rows) -> usize {
        match self {
            Self::Rows(row) => rows.first * row.width,
            Self::Whole(_) => 0,
        }
    }
}

impl Row {
    /// The row of an array in a piece of arrays with these dimensions before their rows. `None` if
    /// the target cannot take pieces of this array.
    fn of(
        cut: &Cut<'_>,
        declared: Option<&BufferSignature>,
        shape: &ArrayShape,
        before: &[usize],
    ) -> Option<Self> {
        let own = cut.own(declared)?;
        let (found, row) = split(shape, own)?;
        let takes_any = declared.is_some_and(has_rows);
        let is_cut = found == before && (!before.is_empty() || takes_any);
        is_cut.then(|| Self {
            own,
            width: row.iter().product::<usize>() * shape.element_type().byte_width(),
        })
    }
}

/// A target whose arrays are cut.
pub(super) struct Cut<'a> {
    target: &'a Signature,
    pub(super) is_elementwise: bool,
}

impl<'a> Cut<'a> {
    pub(super) fn of(target: &'a Signature) -> Self {
        Self {
            target,
            is_elementwise: target.has_trait(ELEMENTWISE),
        }
    }

    /// The plural of a row, for messages.
    pub(super) fn rows_name(&self) -> &'static str {
        if self.is_elementwise {
            "elements"
        } else {
            "rows"
        }
    }

    /// The number of dimensions of an array's row. `None` if the array has no rows.
    pub(super) fn own(&self, declared: Option<&BufferSignature>) -> Option<usize> {
        if self.is_elementwise {
            return Some(0);
        }
        let declared = declared.filter(|buffer| has_rows(buffer))?;
        Some(declared.dimensions.as_deref()?.len().saturating_sub(1))
    }

    pub(super) fn operand(&self, number: usize) -> Option<&BufferSignature> {
        self.target.operands.as_deref()?.get(number)
    }

    pub(super) fn result(&self, number: usize) -> Option<&BufferSignature> {
        self.target.results.as_deref()?.get(number)
    }

    /// The rows in a piece of at most `bytes`, if the widest row has `widest`.
    pub(super) fn rows_within(&self, bytes: usize, widest: usize) -> usize {
        let rows = bytes / widest.max(1);
        if self.is_elementwise {
            (rows / MULTIPLE * MULTIPLE).max(MULTIPLE)
        } else {
            rows.max(1)
        }
    }

    /// The part of each operand, in preorder.
    pub(super) fn operands(
        &self,
        site: &CallSite,
        batch: &Batch,
        before: &[usize],
    ) -> Option<Box<[Part]>> {
        let shapes = site.operands.iter().flat_map(Shape::leaves);
        let leaves = std::iter::zip(shapes, &batch.operands).enumerate();
        let parts = leaves.map(|(i, (shape, leaf))| {
            let declared = self.operand(i);
            let row = Row::of(self, declared, shape, before);
            match row.filter(|_| leaf.strides.is_none()) {
                Some(row) => Some(Part::Rows(row)),
                // An elementwise target takes scalars as a whole, another one arrays without rows.
                None if self.own(declared).is_none()
                    || self.is_elementwise && shape.rank() == 0 =>
                {
                    (leaf.whole == leaf.size).then_some(Part::Whole(leaf.size))
                }
                None => None,
            }
        });
        parts.collect()
    }

    /// The part of each result, in preorder.
    pub(super) fn results(&self, site: &CallSite, before: &[usize]) -> Option<Box<[Part]>> {
        let parts = site.result.leaves().into_iter().enumerate();
        let parts = parts.map(|(i, shape)| {
            let mut row = Row::of(self, self.result(i), shape, before)?;
            if site.is_scratch(i) {
                row.width = 0;
            }
            Some(Part::Rows(row))
        });
        parts.collect()
    }
}

/// An array's dimensions before its row, and those of its row.
pub(super) fn split(shape: &ArrayShape, own: usize) -> Option<(&[usize], &[usize])> {
    let before = shape.rank().checked_sub(own)?;
    Some(shape.dimensions().split_at(before))
}

impl Signature {
    /// Whether a call on pieces may write this result to the memory of this operand, if the two
    /// have one shape: each piece then writes only what it has read itself.
    #[must_use]
    pub fn shares_rows(&self, operand: usize, result: usize) -> bool {
        let cut = Cut::of(self);
        let (from, to) = (cut.own(cut.operand(operand)), cut.own(cut.result(result)));
        from.is_some() && from == to
    }
}

/// The shape of a piece: `[1, ..., rows]` and the dimensions of a row.
pub(super) fn cut_array(array: &ArrayShape, row: Row, rows: usize) -> Result<ArrayShape> {
    let before = array.rank().saturating_sub(row.own);
    let mut dimensions = vec![1; before.saturating_sub(1)];
    dimensions.push(rows);
    dimensions.extend_from_slice(&array.dimensions()[before..]);
    ArrayShape::new(array.element_type(), &dimensions)
}
