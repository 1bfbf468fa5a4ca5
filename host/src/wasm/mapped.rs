//! Calls that are made once for each element of a batch, or piece by piece.

mod batch;
mod pieces;

use std::sync::Arc;

use self::batch::Batch;
use self::pieces::Pieces;
use super::execution::WasmExecution;
use super::module::Module;
use super::prepared::{Sites, outside_a_program};
use crate::call::{CallBuffers, CallOptions, CallSite, Deadline, Execution};
use crate::values::{ArrayShape, Result, Shape, Status};

/// How the arrays of a caller are made into calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// How many dimensions of each operand and result, the first ones, are the batch. The call is made once for each element of the batch, in
    /// row-major order, with shapes without these dimensions. Those of every result are the batch's sizes. Those of an operand are, too, or
    /// are 1: then it is the same for all along that dimension. Where there is no result, sizes other than 1 are the operands'.
    pub batch_dimensions: usize,
    /// How many bytes of an array go through the guest at a time, about, if it has more, and if the target has the trait `elementwise`: it is then
    /// called for one piece after the other, as arrays of dimensions `[1, ..., k]` of the same rank. The arena is no larger than the pieces, so
    /// that it fits into a cache, and arrays may be larger than the guest's memory. An operand of rank 0 is handed over whole. A batch is cut
    /// as one array, unless an operand is the same for several elements: then its elements are calls. So are elements of rank 0, but where the target
    /// declares the dimensions `..`: then they are arrays of rank 1.
    ///
    /// Results may have been written in part when a call fails. The limits' deadline is for all pieces of a call together. Arrays are not cut if the
    /// target has stages, and not under a policy that checks purity, has an instance for each call, or is deterministic.
    pub piece_bytes: Option<usize>,
}

/// A call site of a module's target, laid out and checked, whose calls are mapped over what the caller has. It can be called from many threads
/// at once.
#[derive(Debug)]
pub struct MappedCall {
    sites: Sites,
    how: How,
}

/// What a call by the caller becomes.
#[derive(Debug)]
enum How {
    /// The same call.
    Whole,
    /// A call for each element.
    Batch(Batch),
    /// A call for each piece.
    Pieces(Pieces),
}

impl Module {
    /// Prepares one call site of one of the module's targets, for calls outside a program. Its shapes are those of what the caller has.
    ///
    /// # Errors
    /// As for [`Module::prepare_call`], for the call of one element; and INVALID_ARGUMENT
    /// - for shapes that do not have the batch's dimensions,
    /// - for layouts other than row-major, if there is a batch or a size of pieces.
    pub fn prepare_mapped(
        self: &Arc<Self>,
        site: CallSite,
        mapping: &Mapping,
    ) -> Result<MappedCall> {
        let site = outside_a_program(site)?;
        if *mapping == Mapping::default() {
            return MappedCall::new(self, vec![site], How::Whole);
        }
        let split =
            check_layouts(&site).and_then(|()| Batch::split(&site, mapping.batch_dimensions));
        let (element, batch) = split.map_err(|status| status.context(&site.name))?;
        if let Some(piece_bytes) = mapping.piece_bytes
            && let Some((sites, pieces)) = Pieces::plan(self, &element, &batch, piece_bytes)
            // A target that can't be called on pieces, whatever it declares, is called as if it did not declare it.
            && let Ok(call) = MappedCall::new(self, sites, How::Pieces(pieces))
        {
            return Ok(call);
        }
        match mapping.batch_dimensions {
            0 => MappedCall::new(self, vec![site], How::Whole),
            _ => MappedCall::new(self, vec![element], How::Batch(batch)),
        }
    }
}

impl MappedCall {
    fn new(module: &Arc<Module>, sites: Vec<CallSite>, how: How) -> Result<Self> {
        let sites = Sites::new(Arc::clone(module), sites)?;
        Ok(Self { sites, how })
    }

    /// How many bytes of its memory an instance sets aside for this call site's operands, results and records. What is made ready takes as much for as
    /// long as it is kept, for each thread that has called at the same time.
    #[must_use]
    pub fn arena_bytes(&self) -> usize {
        self.sites.arena_size()
    }

    /// Makes the calls. Operands and results are leaves in preorder, dense, little-endian; results in [`CallSite::scratch`] are empty. The results of
    /// an element are written if its call succeeds. Elements are called in one execution: the stages `prepare` and `initialize` of the target run
    /// once. The deadline of `options` is for all of them together, that of the limits for each.
    ///
    /// # Errors
    /// The first failure of a call, as for [`PreparedCall::call_with`](super::PreparedCall::call_with). If there is a batch, the message begins with
    /// `batch element 3: `, or for several batch dimensions `batch element (1, 2): `, or with the elements that the piece is of. INVALID_ARGUMENT if the
    /// buffers do not fit the call site.
    pub fn call_with<B: CallBuffers>(&self, options: &CallOptions, buffers: &mut B) -> Result<()> {
        match &self.how {
            How::Whole => self.sites.call_alone(0, (options, None), buffers),
            How::Batch(batch) => {
                let mut failed = |_: &mut B, _, status| Err(status);
                batch.call(&self.sites, options, buffers, &mut failed)
            }
            How::Pieces(pieces) => pieces.call(&self.sites, options, buffers),
        }
    }

    /// The same, but goes on with the next element after one whose call failed, if `failed` says so: it gets the buffers, the element's number in
    /// the batch, and what its call failed with. What the instance had that broke is not there for the elements that follow: stages that run once
    /// for each execution run again. Arrays are cut into pieces within each element.
    ///
    /// # Errors
    /// What `failed` fails with, and INVALID_ARGUMENT if the buffers do not fit the call site.
    pub fn call_each<B: CallBuffers>(
        &self,
        options: &CallOptions,
        buffers: &mut B,
        failed: &mut dyn FnMut(&mut B, usize, Status) -> Result<()>,
    ) -> Result<()> {
        match &self.how {
            How::Whole => {
                let called = self.sites.call_alone(0, (options, None), buffers);
                called.or_else(|status| failed(buffers, 0, status))
            }
            How::Batch(batch) => batch.call(&self.sites, options, buffers, failed),
            How::Pieces(pieces) => pieces.call_each(&self.sites, options, buffers, failed),
        }
    }
}

/// Begins an execution of calls outside a program.
fn begin<'a>(sites: &'a Sites, options: &CallOptions) -> Result<WasmExecution<'a>> {
    let mut execution = WasmExecution::begin(sites, options, None, &[0])?;
    execution.initialize()?;
    Ok(execution)
}

/// The same options, with a deadline that is for what begins now as a whole.
fn together(options: &CallOptions) -> CallOptions {
    CallOptions {
        deadline: options.deadline.map(|d| Deadline::At(d.instant())),
        ..options.clone()
    }
}

/// Checks that elements lie where a mapping takes them from.
fn check_layouts(site: &CallSite) -> Result<()> {
    let operands = site.operands.iter().flat_map(Shape::leaves).enumerate();
    let results = site.result.leaves().into_iter().enumerate();
    let operands = operands.map(|leaf| ("operand", leaf));
    let mut all = operands.chain(results.map(|leaf| ("result", leaf)));
    match all.find(|(_, (_, shape))| !shape.is_row_major()) {
        Some((what, (i, shape))) => Err(Status::invalid_argument(format!(
            "{what} {i}: expected a row-major layout for a call that is mapped, found {shape}"
        ))),
        None => Ok(()),
    }
}

/// The same nest of tuples of other arrays, which are visited in preorder. A shape has at most 64 tuples one in the other.
fn map_arrays(
    shape: &Shape,
    map: &mut dyn FnMut(&ArrayShape) -> Result<ArrayShape>,
) -> Result<Shape> {
    match shape {
        Shape::Array(array) => map(array).map(Shape::from),
        Shape::Tuple(tuple) => {
            let elements = tuple.elements().iter();
            let elements = elements.map(|element| map_arrays(element, map));
            Shape::tuple(elements.collect::<Result<_>>()?)
        }
    }
}

#[cfg(test)]
mod tests;
