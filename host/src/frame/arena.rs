//! Places a call site's frame and buffers in the arena.

use std::collections::{HashMap, HashSet};

use super::block::{ARENA_ALIGNMENT, Block, FrameImage};
use super::pointers::{self, Pointers};
use super::records::{self, BufferPlace, leaf_records};
use crate::call::{Alias, ApiVersion, CallSite};
use crate::values::{
    ArrayShape, Blame, ElementType, Result, Shape, ShapeIndex, Status, StatusCode,
};

/// Which of a call site's two frames: the one of the stage `instantiate` has attributes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// For the stage `instantiate`.
    Attributes,
    /// For the stages after it: the pointer arrays, for a convention that has no frame.
    Whole,
}

/// How a call site lies in the arena: the buffers first, whose places follow from the shapes alone, then the frame's records.
/// Offsets are relative to the arena's start.
#[derive(Debug)]
pub struct ArenaLayout {
    operands: Box<[BufferPlace]>,
    results: Box<[BufferPlace]>,
    whole: Block,
    /// Typed FFI's alone.
    attributes: Option<Block>,
    /// The older conventions'.
    pointers: Pointers,
    size: usize,
}

impl ArenaLayout {
    /// Lays out a call site.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT if the aliasing names what is not there, twice, or of another shape.
    /// - RESOURCE_EXHAUSTED if the arena would have more than `limit` bytes.
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

        let (whole, attributes, pointers) = match site.api_version {
            ApiVersion::TypedFfi => {
                let written: HashSet<usize> = aliases.iter().flatten().copied().collect();
                let operand_records = leaf_records(&operand_shapes, &operands, |leaf| {
                    (!written.contains(&leaf), None)
                });
                let result_records =
                    leaf_records(&result_shapes, &results, |leaf| (false, aliases[leaf]));
                let whole = records::write(base, &operand_records, &result_records, site)?;
                let attributes = records::write(base, &[], &[], site)?;
                (whole, Some(attributes), Pointers::default())
            }
            _ => {
                let (block, pointers) = pointers::write(base, &operands, &results, site);
                (block, None, pointers)
            }
        };
        end.at = base.saturating_add(whole.size());
        Ok(Self {
            operands: operands.into(),
            results: results.into(),
            whole,
            attributes,
            pointers,
            size: end.align()?,
        })
    }

    /// The arena's size in bytes: a multiple of [`ARENA_ALIGNMENT`].
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where the frame lies: a multiple of [`ARENA_ALIGNMENT`].
    #[must_use]
    pub fn frame(&self) -> usize {
        self.whole.base()
    }

    /// Where the operands' leaves lie.
    #[must_use]
    pub fn operands(&self) -> &[BufferPlace] {
        &self.operands
    }

    /// Where the results' leaves lie.
    #[must_use]
    pub fn results(&self) -> &[BufferPlace] {
        &self.results
    }

    /// What a function of an older convention is called with.
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

/// For each result leaf the operand leaf that it shares memory with, both by number in preorder.
///
/// # Errors
/// INVALID_ARGUMENT if the aliasing names what is not there, twice, or of another shape.
pub(crate) fn resolve_aliases(site: &CallSite, result_leaves: usize) -> Result<Vec<Option<usize>>> {
    let mut aliases = vec![None; result_leaves];
    if site.aliasing.is_empty() {
        return Ok(aliases);
    }
    let results = leaves_by_index(std::slice::from_ref(&site.result));
    let operands = leaves_by_index(&site.operands);
    let mut taken = HashSet::new();
    for alias in &site.aliasing {
        let &(result, result_shape) = results
            .get(&(0, alias.result_index.clone()))
            .ok_or_else(|| wrong_alias(alias, "an index of an array in the result"))?;
        let &(operand, operand_shape) = operands
            .get(&(alias.operand, alias.operand_index.clone()))
            .ok_or_else(|| wrong_alias(alias, "an index of an array in an operand"))?;
        if !result_shape.is_compatible(operand_shape)
            || result_shape.layout_or_default() != operand_shape.layout_or_default()
        {
            let what = format!(
                "a result and an operand of one shape, not {result_shape} and {operand_shape}"
            );
            return Err(wrong_alias(alias, &what));
        }
        if aliases[result].is_some() || !taken.insert(operand) {
            return Err(wrong_alias(alias, "each result and each operand once"));
        }
        aliases[result] = Some(operand);
    }
    Ok(aliases)
}

/// Leaves by where they are: their numbers among all leaves in preorder, and their shapes.
type Leaves<'a> = HashMap<(usize, ShapeIndex), (usize, &'a ArrayShape)>;

fn leaves_by_index(shapes: &[Shape]) -> Leaves<'_> {
    let mut leaves = Leaves::new();
    let mut pending: Vec<_> = shapes
        .iter()
        .enumerate()
        .rev()
        .map(|(position, shape)| (position, ShapeIndex::new(), shape))
        .collect();
    while let Some((position, index, shape)) = pending.pop() {
        match shape {
            Shape::Array(array) => {
                let number = leaves.len();
                leaves.insert((position, index), (number, array));
            }
            Shape::Tuple(tuple) => {
                for (i, element) in tuple.elements().iter().enumerate().rev() {
                    pending.push((position, [index.as_slice(), &[i]].concat(), element));
                }
            }
        }
    }
    leaves
}

fn wrong_alias(alias: &Alias, expected: &str) -> Status {
    let path = |index: &[usize]| {
        let numbers: Vec<_> = index.iter().map(usize::to_string).collect();
        format!("{{{}}}", numbers.join(","))
    };
    Status::invalid_argument(format!(
        "expected output_to_operand_aliasing to name {expected}, found {}: ({}, {})",
        path(&alias.result_index),
        alias.operand,
        path(&alias.operand_index)
    ))
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
        match self.at <= self.limit {
            true => Ok(()),
            false => Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Caller,
                format!(
                    "expected operands, results and attributes of at most {} bytes in all, found {} or more",
                    self.limit, self.at
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests;
