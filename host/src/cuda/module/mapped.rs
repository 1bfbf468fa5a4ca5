//! Calls that are put into a queue once for each element of a batch.

use std::sync::Arc;

use super::CudaModule;
use super::calls::CudaCalls;
use crate::call::{CallOptions, CallSite, Deadline, DeviceBuffer, DeviceLeaf, PreparedCalls};
use crate::cuda::batch::{Batch, Leaf, Position};
use crate::cuda::device::CudaDevice;
use crate::cuda::queue::CudaQueue;
use crate::values::{Result, Status};

/// One call site, prepared for calls of its own on any device, which are made once for each element of a batch. It can be called from many threads at
/// once.
#[derive(Debug)]
pub struct CudaMappedCall {
    /// The call of one element.
    calls: CudaCalls,
    /// How the elements lie, if there is a batch.
    batch: Option<Batch>,
}

impl CudaModule {
    /// Prepares one call site for calls of its own. Its shapes are those of what the caller has, whose first dimensions are the batch, as many as are said: the call is
    /// made once for each element, in row-major order, with shapes without these dimensions. Those of every result are the batch's sizes. Those of an
    /// operand are, too, or are 1: then it is the same for all along that dimension.
    ///
    /// # Errors
    /// As for [`CudaModule::prepare_call`], for the call of one element; and INVALID_ARGUMENT for shapes that do not have the batch's dimensions.
    pub fn prepare_mapped(
        self: &Arc<Self>,
        site: CallSite,
        batch_dimensions: usize,
    ) -> Result<CudaMappedCall> {
        let (element, batch) = match batch_dimensions {
            0 => (site, None),
            _ => {
                let split = Batch::split(&site, batch_dimensions);
                let (element, batch) = split.map_err(|status| status.context(&site.name))?;
                (element, Some(batch))
            }
        };
        Ok(CudaMappedCall {
            calls: CudaCalls::new(self, vec![element])?,
            batch,
        })
    }
}

impl CudaMappedCall {
    /// Puts the calls into a queue. Operands and results are leaves in preorder, dense, in memory that was borrowed from the queue's device
    /// ([`CudaDevice::borrow_memory`]). The deadline of `options` is for all of them together.
    ///
    /// # Errors
    /// As for [`CudaPreparedCall::enqueue`](super::CudaPreparedCall::enqueue), for the first element that fails. If there is a batch, the message begins with
    /// `batch element 3: `, or for several batch dimensions `batch element (1, 2): `. Results may have been written.
    pub fn enqueue(
        &self,
        options: &CallOptions,
        queue: &mut CudaQueue,
        operands: &[DeviceBuffer],
        results: &[DeviceBuffer],
    ) -> Result<()> {
        self.enqueue_each(options, queue, operands, results, &mut |_, _, status| {
            Err(status)
        })
    }

    /// The same, but goes on with the next element after one whose call failed, if `failed` says so: it gets the queue, the element's number in the batch,
    /// and what its call failed with. What fails on the device, when its turn comes, is not among that.
    ///
    /// # Errors
    /// What `failed` fails with, and INVALID_ARGUMENT if the arrays do not fit the call site.
    pub fn enqueue_each(
        &self,
        options: &CallOptions,
        queue: &mut CudaQueue,
        operands: &[DeviceBuffer],
        results: &[DeviceBuffer],
        failed: &mut dyn FnMut(&mut CudaQueue, usize, Status) -> Result<()>,
    ) -> Result<()> {
        let options = CallOptions {
            deadline: options.deadline.map(|d| Deadline::At(d.instant())),
            ..options.clone()
        };
        let mut execution = self.calls.begin(&options, None, &[0])?;
        execution.initialize_on(queue)?;
        let Some(batch) = &self.batch else {
            let called = execution.enqueue(0, queue, &leaves(operands.to_vec()), results);
            return called.or_else(|status| failed(queue, 0, status));
        };
        check_sizes("operands", &batch.operands, operands)?;
        check_sizes("results", &batch.results, results)?;
        for number in 0..batch.count {
            let position = batch.position(number);
            let device = Arc::clone(queue.device());
            let operands = parts(&device, operands, &batch.operands, &position)?;
            let results = parts(&device, results, &batch.results, &position)?;
            if let Err(status) = execution.enqueue(0, queue, &leaves(operands), &results) {
                let status = status.context(format_args!("batch element {position}"));
                failed(queue, number, status)?;
            }
        }
        Ok(())
    }
}

fn check_sizes(what: &str, expected: &[Leaf], found: &[DeviceBuffer]) -> Result<()> {
    let expected = || expected.iter().map(|leaf| leaf.whole);
    let found = || found.iter().map(|array| array.size());
    match expected().eq(found()) {
        true => Ok(()),
        false => {
            let (expected, found): (Vec<_>, Vec<_>) = (expected().collect(), found().collect());
            Err(Status::invalid_argument(format!(
                "expected {what} of {expected:?} bytes, found {found:?}"
            )))
        }
    }
}

/// One element of each array.
fn parts(
    device: &CudaDevice,
    arrays: &[DeviceBuffer],
    lie: &[Leaf],
    position: &Position,
) -> Result<Vec<DeviceBuffer>> {
    let arrays = std::iter::zip(arrays, lie);
    arrays
        .map(|(array, leaf)| device.part_of_borrowed(array, leaf.range(position)))
        .collect()
}

/// Arrays whose places are known.
fn leaves(buffers: Vec<DeviceBuffer>) -> Vec<DeviceLeaf> {
    let leaf = |buffer| DeviceLeaf {
        buffer,
        is_known: true,
    };
    buffers.into_iter().map(leaf).collect()
}
