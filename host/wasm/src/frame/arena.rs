//! Places a call site's frame and buffers in the arena.

use std::collections::HashSet;
use std::sync::Arc;

use crate::failure::caller_exhausted;

use super::block::{ARENA_ALIGNMENT, Block, FrameImage, Mark};
use super::pointers::{self, Pointers};
use super::records::{self, BufferPlace, leaf_records};
use callbox_core::call::{ApiVersion, CallSite, resolve_aliases};
use callbox_core::values::{ArrayShape, Dictionary, ElementType, Result, Shape};

/// One of a call site's two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The frame of the stage `instantiate`, with attributes only.
    Attributes,
    /// The frame of all other stages, or an older convention's pointer arrays.
    Whole,
}

/// The layout of a call site in the arena. Offsets are relative to the arena's start.
#[derive(Debug)]
pub struct ArenaLayout {
    operands: Arc<[BufferPlace]>,
    results: Arc<[BufferPlace]>,
    whole: Block,
    /// The end of the buffers' records in a frame of typed FFI.
    buffers: Mark,
    /// For typed FFI only.
    attributes: Option<Block>,
    /// For the older conventions.
    pointers: Pointers,
    size: usize,
}

impl ArenaLayout {
    /// Lays out a call site.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT if an alias names a missing buffer, the same one twice, or one of another
    ///   shape.
    /// - RESOURCE_EXHAUSTED if the arena would exceed `limit` bytes.
    pub fn new(site: &CallSite, limit: usize) -> Result<Self> {
        let operand_shapes: Vec<_> = site.operands.iter().flat_map(Shape::leaves).collect();
        let result_shapes = site.result.leaves();
        let aliases = resolve_aliases(site, result_shapes.len())?;

        let mut end = Cursor {
            at: 0,
            limit: limit.min(u32::MAX as usize),
        };
        let operands = end.place_all(&operand_shapes)?;
        let mut results = Vec::with_capacity(result_shapes.len());
        for (shape, alias) in std::iter::zip(&result_shapes, &aliases) {
            results.push(match alias {
                Some(operand) => operands[*operand],
                None => end.place(shape)?,
            });
        }
        let base = end.align()?;

        let (whole, buffers, attributes, pointers) = match site.api_version {
            ApiVersion::TypedFfi => {
                let written: HashSet<usize> = aliases.iter().flatten().copied().collect();
                let operand_records = leaf_records(&operand_shapes, &operands, |leaf| {
                    (!written.contains(&leaf), None)
                });
                let result_records =
                    leaf_records(&result_shapes, &results, |leaf| (false, aliases[leaf]));
                let (whole, buffers) =
                    records::write(base, &operand_records, &result_records, site)?;
                let (attributes, _) = records::write(base, &[], &[], site)?;
                (whole, buffers, Some(attributes), Pointers::default())
            }
            _ => {
                let (block, pointers) = pointers::write(base, &operands, &results, site);
                (block, Mark::default(), None, pointers)
            }
        };
        end.at = base.saturating_add(whole.size());
        Ok(Self {
            operands: operands.into(),
            results: results.into(),
            whole,
            buffers,
            attributes,
            pointers,
            size: end.align()?,
        })
    }

    /// Lays out a call site that differs from `site`, the one of this layout, in its attributes
    /// alone. Both are of typed FFI and have no stage `instantiate`.
    ///
    /// # Errors
    /// As for [`ArenaLayout::new`].
    pub fn with_attributes(
        &self,
        site: &CallSite,
        attributes: &Dictionary,
        limit: usize,
    ) -> Result<Self> {
        let whole = records::write_attributes(&self.whole, self.buffers, attributes, site)?;
        let mut end = Cursor {
            at: whole.base().saturating_add(whole.size()),
            limit: limit.min(u32::MAX as usize),
        };
        Ok(Self {
            operands: Arc::clone(&self.operands),
            results: Arc::clone(&self.results),
            whole,
            buffers: self.buffers,
            attributes: None,
            pointers: self.pointers,
            size: end.align()?,
        })
    }

    /// The arena's size in bytes: a multiple of [`ARENA_ALIGNMENT`].
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The frame's offset: a multiple of [`ARENA_ALIGNMENT`].
    #[must_use]
    pub fn frame(&self) -> usize {
        self.whole.base()
    }

    /// The places of the operands' leaves.
    #[must_use]
    pub fn operands(&self) -> &[BufferPlace] {
        &self.operands
    }

    /// The places of the results' leaves.
    #[must_use]
    pub fn results(&self) -> &[BufferPlace] {
        &self.results
    }

    /// The parameters of a function of an older convention.
    #[must_use]
    pub fn pointers(&self) -> Pointers {
        self.pointers
    }

    /// The frame for an arena at offset `base` of linear memory, with the stage `execute`.
    #[must_use]
    pub fn image(&self, frame: Frame, base: u32) -> FrameImage {
        match (frame, &self.attributes) {
            (Frame::Attributes, Some(attributes)) => attributes.at(base),
            _ => self.whole.at(base),
        }
    }
}

/// The next free byte of an arena.
struct Cursor {
    at: usize,
    limit: usize,
}

impl Cursor {
    fn place_all(&mut self, shapes: &[&ArrayShape]) -> Result<Vec<BufferPlace>> {
        shapes.iter().map(|shape| self.place(shape)).collect()
    }

    fn place(&mut self, shape: &ArrayShape) -> Result<BufferPlace> {
        if shape.element_type() == ElementType::Token {
            return Ok(BufferPlace { offset: 0, size: 0 });
        }
        let (offset, size) = (self.align()?, shape.byte_size());
        self.at = offset.saturating_add(size);
        self.check()?;
        Ok(BufferPlace { offset, size })
    }

    fn align(&mut self) -> Result<usize> {
        self.at = self
            .at
            .checked_next_multiple_of(ARENA_ALIGNMENT)
            .unwrap_or(usize::MAX);
        self.check()?;
        Ok(self.at)
    }

    fn check(&self) -> Result<()> {
        if self.at > self.limit {
            return Err(caller_exhausted(format!(
                "expected operands, results and attributes of at most {} bytes in all, found {} or more",
                self.limit, self.at
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
