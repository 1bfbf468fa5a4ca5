//! The handlers of the platform CUDA: a module's native kernels, in XLA's stream.
//!
//! Nothing waits here. A call checks, puts its launches into the stream, and returns; what fails on the device when its turn comes is XLA's to find, who waits
//! for the stream. So a status (`on_error="status"`) says how the call fared before that: what the target's own checks say, kernels that can't be loaded or
//! launched, memory that is short. A kernel that faults takes the device with it, from XLA as from everybody.
#![allow(
    unsafe_code,
    reason = "is called by XLA with pointers, and works in its stream and memory"
)]

use std::cell::RefCell;
use std::sync::Arc;

use callbox::call::DeviceBuffer;
use callbox::cuda::{CudaDevice, CudaMappedCall, CudaModule, CudaQueue};
use callbox::program::attributes_from_mlir;
use callbox::{ArrayShape, CallOptions, Status};

use super::abi::{CallFrame, Error, TRAIT_COMMAND_BUFFER_COMPATIBLE};
use super::frame::Frame;
use super::handler::handle;
use super::slots::{self, Said, Slots};
use crate::module::{ModuleCore, SiteKey, short};
use crate::native;
use crate::site::{Passage, Shapes, check_status, no_status, note_failure, poison};
use crate::stats::Stats;

/// Launches the kernel that the frame's attributes say.
///
/// # Safety
/// XLA's C API: `frame` is a call frame, which stays as it is for the call.
pub(super) unsafe extern "C" fn handler(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: as XLA promises.
    unsafe { handle(frame, 0, execute) }
}

/// The same, for kernels that may become part of a command buffer: XLA calls it while it captures its stream, and launches the graph as often as it
/// likes. A target that does not say that it can be captured, or whose kernels need scratch memory, fails then.
///
/// # Safety
/// As for [`handler`].
pub(super) unsafe extern "C" fn handler_for_command_buffers(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: as XLA promises.
    unsafe { handle(frame, TRAIT_COMMAND_BUFFER_COMPATIBLE, execute_or_capture) }
}

fn execute(frame: Frame<'_>) -> callbox::Result<()> {
    enqueue(frame, |device, stream| {
        // SAFETY: it is XLA's stream for this call, and the queue is gone before the call is over.
        unsafe { device.queue_on(stream.cast()) }
    })
}

fn execute_or_capture(frame: Frame<'_>) -> callbox::Result<()> {
    enqueue(frame, |device, stream| {
        // SAFETY: as above. The device is kept, and what a graph of XLA's launches lies where XLA says that it does.
        unsafe { device.queue_on_captured(stream.cast()) }
    })
}

thread_local! {
    static KNOWN: RefCell<Slots<Launches>> = const { RefCell::new(Slots::new()) };
}

fn enqueue(
    frame: Frame<'_>,
    queue_on: fn(&Arc<CudaDevice>, *mut std::ffi::c_void) -> callbox::Result<CudaQueue>,
) -> callbox::Result<()> {
    slots::with_in(&KNOWN, frame, prepare, |known, launches| {
        let stream = frame.stream()?;
        // SAFETY: it is the stream that XLA gave for this call.
        let device = native::kept(unsafe { CudaDevice::of_stream(stream.cast()) }?);
        let operands = borrowed(&device, frame.operands()?.addresses(), &known.operand_sizes)?;
        let results = borrowed(&device, frame.results()?.addresses(), &known.result_sizes)?;
        let mut queue = queue_on(&device, stream)?;
        launches.enqueue(&mut queue, &operands, &results)
    })
}

/// XLA's arrays.
fn borrowed(
    device: &CudaDevice,
    addresses: Vec<u64>,
    sizes: &[usize],
) -> callbox::Result<Vec<DeviceBuffer>> {
    let arrays = addresses.into_iter().zip(sizes);
    arrays
        // SAFETY: XLA's buffers are as large as their shapes say, and stay until its stream has passed, or for as long as it launches its graph.
        .map(|(address, &size)| unsafe { device.borrow_memory(address, size) })
        .collect()
}

/// The call site that a frame's attributes say, ready to be launched.
fn prepare(
    said: Said,
    module: &Arc<ModuleCore>,
    shapes: &Shapes,
) -> callbox::Result<Arc<Launches>> {
    let found = module.native.as_ref().zip(module.target(&said.target));
    let found = found.filter(|(native, _)| native.has(&said.target));
    let (native, target) = found.ok_or_else(|| native::missing(&said.target))?;
    let key = SiteKey {
        target,
        call: said.call_text.clone(),
        attributes: short(&said.attributes),
        arrays: SiteKey::arrays(shapes),
        passage: Passage::Whole,
    };
    native.launches(key, |native| {
        Launches::new(native, &said, shapes, module.stats())
    })
}

/// A call site whose kernels are ready to be launched.
#[derive(Debug)]
pub(crate) struct Launches {
    call: CudaMappedCall,
    options: CallOptions,
    stats: Arc<Stats>,
    /// Whether the last result is a status, which the target knows nothing of.
    has_status: bool,
    /// The bytes of one element's results, and what they are filled with if it fails.
    element_sizes: Vec<(usize, u8)>,
    bytes_in: usize,
    bytes_out: usize,
}

impl Launches {
    fn new(
        module: &Arc<CudaModule>,
        said: &Said,
        shapes: &Shapes,
        stats: &Arc<Stats>,
    ) -> callbox::Result<Self> {
        let text = &said.call;
        let mut shapes = shapes.clone();
        let status = match text.status {
            true => Some(shapes.results.pop().ok_or_else(no_status)?),
            false => None,
        };
        let batch = text.batch_dimensions(&shapes)?;
        if let Some(status) = &status {
            check_status(status, &shapes, batch)?;
        }
        let attributes = attributes_from_mlir(&said.attributes)?;
        let site = text.site(&said.target, attributes, &shapes)?;
        let element_size = |shape: &ArrayShape| {
            let elements: usize = shape.dimensions()[batch..].iter().product();
            let size = elements * shape.element_type().byte_width();
            (size, poison(shape.element_type().is_pred()))
        };
        let bytes = |shapes: &[ArrayShape]| shapes.iter().map(ArrayShape::byte_size).sum();
        Ok(Self {
            call: module.prepare_mapped(site, batch)?,
            options: text.options(),
            stats: Arc::clone(stats),
            has_status: status.is_some(),
            element_sizes: shapes.results.iter().map(element_size).collect(),
            bytes_in: bytes(&shapes.operands),
            bytes_out: bytes(&shapes.results),
        })
    }

    fn enqueue(
        &self,
        queue: &mut CudaQueue,
        operands: &[DeviceBuffer],
        results: &[DeviceBuffer],
    ) -> callbox::Result<()> {
        match (self.has_status, results.split_last()) {
            (true, Some((status, results))) => {
                self.enqueue_with_status(queue, operands, (results, status))
            }
            _ => {
                let outcome = self.call.enqueue(&self.options, queue, operands, results);
                self.stats.count(self.bytes_in, self.bytes_out, &outcome);
                outcome
            }
        }
    }

    /// Launches the kernels, and says in the status how that went, for each element of the batch. The results of an element whose call failed are filled
    /// with bytes 0xFF, truth values with true. The device does both when its turn comes.
    ///
    /// # Errors
    /// What takes the device, or keeps it from being told.
    fn enqueue_with_status(
        &self,
        queue: &mut CudaQueue,
        operands: &[DeviceBuffer],
        (results, status): (&[DeviceBuffer], &DeviceBuffer),
    ) -> callbox::Result<()> {
        let device = Arc::clone(queue.device());
        queue.fill(status, 0)?;
        let mut failed = |queue: &mut CudaQueue, element: usize, failure: Status| {
            if device.lost().is_some() {
                return Err(failure);
            }
            let part = |array: &DeviceBuffer, size: usize| {
                device.part_of_borrowed(array, element * size..(element + 1) * size)
            };
            for (result, &(size, poison)) in results.iter().zip(&self.element_sizes) {
                queue.fill(&part(result, size)?, poison)?;
            }
            let code = u32::from(failure.code().number());
            queue.fill_u32(&part(status, size_of::<u32>())?, code)?;
            self.stats.count_failure(&failure);
            note_failure(&failure);
            Ok(())
        };
        let options = &self.options;
        let outcome = self
            .call
            .enqueue_each(options, queue, operands, results, &mut failed);
        self.stats.count(self.bytes_in, self.bytes_out, &outcome);
        match outcome {
            Err(failure) if device.lost().is_none() => {
                note_failure(&failure);
                for (result, &(_, poison)) in results.iter().zip(&self.element_sizes) {
                    queue.fill(result, poison)?;
                }
                queue.fill_u32(status, u32::from(failure.code().number()))
            }
            outcome => outcome,
        }
    }
}
