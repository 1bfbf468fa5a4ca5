//! Pieces: runs of elements of the arrays that a caller has, each of them a call of a target that takes elements one by one.

use std::ops::Range;
use std::sync::Arc;

use super::batch::{At, Batch, Failed};
use super::{begin, map_arrays, together};
use crate::call::{
    ApiVersion, BufferSignature, CallBuffers, CallOptions, CallSite, Deadline, Dimension, Stage,
};
use crate::policy::{Isolation, Policy};
use crate::values::{ArrayShape, Result, Shape, Status};
use crate::wasm::execution::WasmExecution;
use crate::wasm::module::Module;
use crate::wasm::prepared::Sites;

/// The trait by which a module declares it.
const ELEMENTWISE: &str = "elementwise";

/// What the number of a piece's elements is a multiple of: a kernel's loops have no rest to do then.
const MULTIPLE: usize = 64;

/// How a caller's arrays are cut. The call site 0 is that of a piece.
#[derive(Debug)]
pub(super) struct Pieces {
    batch: Batch,
    operands: Box<[Part]>,
    results: Box<[Part]>,
    /// How many elements a piece has.
    piece: usize,
    /// How many elements of arrays an element of the batch has.
    inner: usize,
    /// The call site of what is left of all, if something is.
    rest: Option<usize>,
    /// The call site of what is left of an element of the batch, if something is.
    inner_rest: Option<usize>,
}

/// What a piece has of an array.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// As many elements, of this many bytes.
    Run(usize),
    /// All of its bytes.
    Whole(usize),
}

impl Part {
    #[inline]
    fn size(self, elements: usize) -> usize {
        match self {
            Self::Run(width) => elements * width,
            Self::Whole(size) => size,
        }
    }

    #[inline]
    fn offset(self, first: usize) -> usize {
        match self {
            Self::Run(width) => first * width,
            Self::Whole(_) => 0,
        }
    }
}

impl Pieces {
    /// How to cut the arrays of a batch of calls like `element`, and the call sites for that, if they can be cut and are worth it.
    pub(super) fn plan(
        module: &Arc<Module>,
        element: &CallSite,
        batch: &Batch,
        piece_bytes: usize,
    ) -> Option<(Vec<CallSite>, Self)> {
        if !can_be_cut(&module.shared.policy, module, element) {
            return None;
        }
        let target = module.target(&element.target).ok()?;
        let results = element.result.leaves();
        let dimensions = results.first()?.dimensions();
        let operands: Vec<_> = element.operands.iter().flat_map(Shape::leaves).collect();
        let operand_parts = operands.iter().enumerate().map(|(i, shape)| {
            let leaf = &batch.operands[i];
            // A scalar becomes an array only where the target takes one.
            if shape.rank() == 0 && !(dimensions.is_empty() && takes_any(&target.operands, i)) {
                return (leaf.whole == leaf.size).then_some(Part::Whole(leaf.size));
            }
            let is_cut = shape.dimensions() == dimensions && leaf.strides.is_none();
            is_cut.then(|| Part::Run(shape.element_type().byte_width()))
        });
        let operand_parts = operand_parts.collect::<Option<Box<[_]>>>()?;
        let result_parts = results.iter().enumerate().map(|(i, shape)| {
            let is_cut = shape.dimensions() == dimensions
                && (!dimensions.is_empty() || takes_any(&target.results, i));
            let width = match element.scratch.contains(&i) {
                true => 0,
                false => shape.element_type().byte_width(),
            };
            is_cut.then_some(Part::Run(width))
        });
        let result_parts = result_parts.collect::<Option<Box<[_]>>>()?;

        let arrays = std::iter::zip(&operands, &operand_parts)
            .filter(|(_, part)| matches!(part, Part::Run(_)))
            .map(|(shape, _)| shape)
            .chain(&results);
        let widest = arrays
            .map(|shape| shape.element_type().byte_width())
            .max()?;
        let piece = (piece_bytes / widest.max(1) / MULTIPLE * MULTIPLE).max(MULTIPLE);
        let inner = results.first()?.element_count();
        let total = batch.count.checked_mul(inner)?;
        if total <= piece || total.saturating_mul(widest) <= piece_bytes {
            return None;
        }
        let mut sites = vec![cut(element, &operand_parts, piece)?];
        let mut rest_of = |elements: usize| match elements % piece {
            0 => Some(None),
            rest => {
                sites.push(cut(element, &operand_parts, rest)?);
                Some(Some(sites.len() - 1))
            }
        };
        let rest = rest_of(total)?;
        let inner_rest = match batch.count {
            1 => rest,
            _ => rest_of(inner)?,
        };
        let pieces = Self {
            operands: operand_parts,
            results: result_parts,
            piece,
            inner,
            rest,
            inner_rest,
            batch: batch.clone(),
        };
        Some((sites, pieces))
    }

    /// Calls the target for all pieces.
    pub(super) fn call<B: CallBuffers>(
        &self,
        sites: &Sites,
        options: &CallOptions,
        buffers: &mut B,
    ) -> Result<()> {
        self.batch.check(buffers)?;
        let options = self.together(sites, options, self.batch.count);
        let mut execution = begin(sites, &options)?;
        let all = 0..self.batch.count * self.inner;
        let called = self.run(&mut execution, all, self.rest, buffers);
        called.map_err(|(piece, status)| status.context(self.describe(&piece)))
    }

    /// The same within each element of the batch.
    pub(super) fn call_each<B: CallBuffers>(
        &self,
        sites: &Sites,
        options: &CallOptions,
        buffers: &mut B,
        failed: &mut Failed<'_, B>,
    ) -> Result<()> {
        self.batch.check(buffers)?;
        let options = together(options);
        for number in 0..self.batch.count {
            let options = self.together(sites, &options, 1);
            let range = number * self.inner..(number + 1) * self.inner;
            let called = begin(sites, &options).and_then(|mut execution| {
                let called = self.run(&mut execution, range, self.inner_rest, buffers);
                called.map_err(|(_, status)| status)
            });
            if let Err(status) = called {
                let status = match self.batch.sizes.is_empty() {
                    true => status,
                    false => {
                        let position = self.batch.position(number);
                        status.context(format_args!("batch element {}", At(&position)))
                    }
                };
                failed(buffers, number, status)?;
            }
        }
        Ok(())
    }

    /// The same options for all pieces of this many calls: what the limits give to one call, its pieces have together.
    pub(super) fn together(
        &self,
        sites: &Sites,
        options: &CallOptions,
        calls: usize,
    ) -> CallOptions {
        let mut options = together(options);
        if let (None, Some(limit)) = (options.deadline, sites.module.shared.policy.limits.deadline)
        {
            let calls = u32::try_from(calls).unwrap_or(u32::MAX);
            let deadline = Deadline::After(limit.saturating_mul(calls));
            options.deadline = Some(Deadline::At(deadline.instant()));
        }
        options
    }

    /// Calls the target for the pieces of a range. `rest` is the call site of the last, if it is shorter.
    fn run<B: CallBuffers>(
        &self,
        execution: &mut WasmExecution<'_>,
        range: Range<usize>,
        rest: Option<usize>,
        buffers: &mut B,
    ) -> Result<(), (Range<usize>, Status)> {
        let mut first = range.start;
        while first < range.end {
            let count = self.piece.min(range.end - first);
            let site = match rest {
                Some(rest) if count < self.piece => rest,
                _ => 0,
            };
            let mut piece = Piece {
                pieces: self,
                first,
                count,
                buffers,
            };
            let called = execution.call_buffers(site, &mut piece);
            called.map_err(|status| (first..first + count, status))?;
            first += count;
        }
        Ok(())
    }

    /// Which elements a piece has, for a message.
    fn describe(&self, piece: &Range<usize>) -> String {
        let last = piece.end.saturating_sub(1);
        if self.batch.sizes.is_empty() {
            return format!("elements {} to {last}", piece.start);
        }
        let of = |element: usize| element / self.inner.max(1);
        let position = |element: usize| self.batch.position(of(element));
        let (from, to) = (position(piece.start), position(last));
        match from == to {
            true => format!("batch element {}", At(&from)),
            false => format!("batch elements {} to {}", At(&from), At(&to)),
        }
    }
}

/// Whether a target's calls can be cut: it says so, and nothing but its results tells whether they were.
fn can_be_cut(policy: &Policy, module: &Module, site: &CallSite) -> bool {
    let is_seen = policy.check_pure || policy.deterministic || policy.isolation == Isolation::Fresh;
    let Ok(target) = module.target(&site.target) else {
        return false;
    };
    !is_seen
        && target.has_trait(ELEMENTWISE)
        && site.api_version == ApiVersion::TypedFfi
        && target.stages.iter().all(|stage| *stage == Stage::Execute)
        && target.check(site).is_ok()
}

/// Whether a target declares of this operand or result that it takes arrays of any rank, and so one of rank 1 in place of a scalar.
fn takes_any(declared: &Option<Vec<BufferSignature>>, leaf: usize) -> bool {
    let declared = declared.as_ref().and_then(|buffers| buffers.get(leaf));
    let dimensions = declared.and_then(|buffer| buffer.dimensions.as_deref());
    dimensions == Some(&[Dimension::Any])
}

/// The call site of a piece of this many elements.
fn cut(site: &CallSite, operands: &[Part], elements: usize) -> Option<CallSite> {
    let mut parts = operands.iter();
    let mut operand = |array: &ArrayShape| match parts.next() {
        Some(Part::Whole(_)) => Ok(array.clone()),
        _ => cut_array(array, elements),
    };
    let operands = site.operands.iter();
    let operands = operands.map(|shape| map_arrays(shape, &mut operand));
    let mut result = |array: &ArrayShape| cut_array(array, elements);
    Some(CallSite {
        operands: operands.collect::<Result<_>>().ok()?,
        result: map_arrays(&site.result, &mut result).ok()?,
        ..site.clone()
    })
}

/// The shape of a piece: `[1, ..., elements]`.
fn cut_array(array: &ArrayShape, elements: usize) -> Result<ArrayShape> {
    let mut dimensions = vec![1; array.rank().saturating_sub(1)];
    dimensions.push(elements);
    ArrayShape::new(array.element_type(), &dimensions)
}

/// A piece of the caller's arrays.
struct Piece<'a, B> {
    pieces: &'a Pieces,
    first: usize,
    count: usize,
    buffers: &'a mut B,
}

impl<B: CallBuffers> CallBuffers for Piece<'_, B> {
    #[inline]
    fn operands(&self) -> usize {
        self.pieces.operands.len()
    }

    #[inline]
    fn operand_size(&self, operand: usize) -> usize {
        self.pieces.operands[operand].size(self.count)
    }

    #[inline]
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        let start = self.pieces.operands[operand].offset(self.first);
        self.buffers.read(operand, start + at, into);
    }

    #[inline]
    fn results(&self) -> usize {
        self.pieces.results.len()
    }

    #[inline]
    fn result_size(&self, result: usize) -> usize {
        self.pieces.results[result].size(self.count)
    }

    #[inline]
    fn write(&mut self, result: usize, at: usize, bytes: &[u8]) {
        let start = self.pieces.results[result].offset(self.first);
        self.buffers.write(result, start + at, bytes);
    }
}
