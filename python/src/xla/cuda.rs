//! The handlers of the platform CUDA: a module's native kernels, in XLA's stream.
//!
//! A handler checks the call, puts its launches into the stream, and returns without waiting. XLA
//! detects later failures on the device when it waits for the stream. So a status
//! (`on_error="status"`) reports the target's own checks, kernels that cannot be loaded or
//! launched, and lack of memory. A kernel that faults makes the device unusable, for XLA too.
#![allow(
    unsafe_code,
    reason = "is called by XLA with pointers, and works in its stream and memory"
)]

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use callbox::attributes_from_mlir;
use callbox::call::{DeviceBuffer, DeviceQueue, Mapping};
use callbox::cuda::{CudaDevice, CudaModule, CudaPreparedCall, CudaQueue};
use callbox::{ArrayShape, CallOptions, Status};

use super::abi::{CallFrame, Error, TRAIT_COMMAND_BUFFER_COMPATIBLE};
use super::frame::{Arrays, Frame};
use super::handler::handle;
use super::packing::is_packed;
use super::slots::{self, CallAttributes, Found, Slots};
use crate::module::{FamilyKey, ModuleCore, SiteKey, key_part};
use crate::native;
use crate::shadow::ShadowSite;
use crate::site::{Passage, Shapes, check_status, no_status, note_failure, poison};
use crate::stack::on_enough;
use crate::stats::Stats;

/// Launches the kernel that the frame's attributes name.
///
/// # Safety
/// XLA's C API: `frame` is a call frame, unchanged during the call.
pub(super) unsafe extern "C" fn handler(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: XLA guarantees it.
    unsafe { handle(frame, 0, execute) }
}

/// Launches a kernel that may become part of a command buffer.
///
/// XLA calls this handler while it captures its stream, and launches the graph any number of times.
/// In a capture a target fails if it does not declare that it can be captured, or if its kernels
/// need scratch memory.
///
/// # Safety
/// As for [`handler`].
pub(super) unsafe extern "C" fn handler_for_command_buffers(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: XLA guarantees it.
    unsafe { handle(frame, TRAIT_COMMAND_BUFFER_COMPATIBLE, execute_or_capture) }
}

fn execute(frame: Frame<'_>) -> callbox::Result<()> {
    enqueue(frame, |device, stream| {
        // SAFETY: it is XLA's stream for this call, and the queue is dropped before the call
        // returns.
        unsafe { device.queue_on(stream.cast()) }
    })
}

fn execute_or_capture(frame: Frame<'_>) -> callbox::Result<()> {
    enqueue(frame, |device, stream| {
        // SAFETY: as above. The device stays open, and XLA keeps the memory of its graphs in place.
        unsafe { device.queue_on_captured(stream.cast()) }
    })
}

thread_local! {
    static CACHE: RefCell<Slots<Launches>> = const { RefCell::new(Slots::new()) };
}

fn enqueue(
    frame: Frame<'_>,
    queue_on: fn(&Arc<CudaDevice>, *mut std::ffi::c_void) -> callbox::Result<CudaQueue>,
) -> callbox::Result<()> {
    let call = |found: &Found<'_, Launches>| {
        let cached = &found.cached;
        let stream = frame.stream()?;
        // SAFETY: it is the stream that XLA gave for this call.
        let device = native::kept(unsafe { CudaDevice::of_stream(stream.cast()) }?);
        let operands = borrowed(&device, found.operands, &cached.operand_sizes)?;
        let results = borrowed(&device, found.results, &cached.result_sizes)?;
        let mut queue = queue_on(&device, stream)?;
        let options = found.within();
        (found.ready).enqueue(options, &mut queue, &operands, &results)
    };
    // Attributes may nest.
    on_enough(|| slots::with_in(&CACHE, frame, prepare, call))
}

/// Borrows XLA's arrays.
fn borrowed(
    device: &CudaDevice,
    arrays: Arrays<'_>,
    sizes: &[usize],
) -> callbox::Result<Vec<DeviceBuffer>> {
    let arrays = arrays.addresses(sizes)?.into_iter().zip(sizes);
    arrays
        // SAFETY: XLA's buffers have the sizes of their shapes, and stay until the stream has
        // passed, or as long as XLA launches the graph.
        .map(|(address, &size)| unsafe { device.borrow_memory(address, size) })
        .collect()
}

/// Prepares the call site of a frame's attributes.
fn prepare(
    parsed: CallAttributes,
    module: &Arc<ModuleCore>,
    shapes: &Shapes,
    _: &CallOptions,
) -> callbox::Result<Arc<Launches>> {
    let found = module.native.as_ref().zip(module.target(&parsed.target));
    let found = found.filter(|(native, _)| native.has(&parsed.target));
    let (native, target) = found.ok_or_else(|| native::missing(&parsed.target))?;
    let key = SiteKey {
        family: Arc::new(FamilyKey {
            target,
            call: parsed.call_text.clone(),
            arrays: FamilyKey::arrays(shapes),
            passage: Passage::Whole,
        }),
        attributes: key_part(&parsed.attributes),
    };
    native.launches(key, |native| {
        Launches::new(native, &parsed, shapes, module, target)
    })
}

/// A call site with kernels that are ready to be launched.
#[derive(Debug)]
pub(crate) struct Launches {
    call: CudaPreparedCall,
    options: CallOptions,
    stats: Arc<Stats>,
    /// Whether the last result is a status, which the target does not have.
    has_status: bool,
    /// For each result the size of one batch element in bytes, and the byte that fills it on
    /// failure.
    element_sizes: Vec<(usize, u8)>,
    bytes_in: usize,
    bytes_out: usize,
    /// The call site as wasm, if some of its calls are compared.
    shadow: Option<ShadowSite>,
}

impl Launches {
    fn new(
        module: &Arc<CudaModule>,
        parsed: &CallAttributes,
        shapes: &Shapes,
        of: &ModuleCore,
        target: usize,
    ) -> callbox::Result<Self> {
        let text = &parsed.call;
        let mut all = shapes.operands.iter().chain(&shapes.results);
        if let Some(packed) = all.find(|shape| is_packed(shape.element_type())) {
            return Err(callbox::Status::unimplemented(format!(
                "expected arrays of elements of whole bytes on a GPU, found {}, which XLA packs",
                packed.element_type().lower_name()
            )));
        }
        let mut shapes = shapes.clone();
        let status = if text.status {
            Some(shapes.results.pop().ok_or_else(no_status)?)
        } else {
            None
        };
        let batch = text.batch_dimensions(&shapes)?;
        if let Some(status) = &status {
            check_status(status, &shapes, batch)?;
        }
        let attributes = attributes_from_mlir(&parsed.attributes)?;
        let site = text.site(&parsed.target, attributes, &shapes)?;
        let element_size = |shape: &ArrayShape| {
            let elements: usize = shape.dimensions()[batch..].iter().product();
            let size = elements * shape.element_type().byte_width();
            (size, poison(shape.element_type().is_pred()))
        };
        let mapping = Mapping {
            batch_dimensions: batch,
            piece_bytes: None,
        };
        let bytes = |shapes: &[ArrayShape]| shapes.iter().map(ArrayShape::byte_size).sum();
        let shadow = ShadowSite::new(of, target, &site, &mapping, &shapes.results);
        Ok(Self {
            call: module.prepare_mapped(site, &mapping)?,
            shadow,
            options: text.options(),
            stats: Arc::clone(of.native_stats(target)),
            has_status: status.is_some(),
            element_sizes: shapes.results.iter().map(element_size).collect(),
            bytes_in: bytes(&shapes.operands),
            bytes_out: bytes(&shapes.results),
        })
    }

    /// Launches the kernels with these options, or with those of the call site.
    fn enqueue(
        &self,
        options: Option<&CallOptions>,
        queue: &mut CudaQueue,
        operands: &[DeviceBuffer],
        results: &[DeviceBuffer],
    ) -> callbox::Result<()> {
        let options = options.unwrap_or(&self.options);
        // Work that is captured runs later, and more than once.
        let is_kept = queue.keeps_work();
        match self.shadow.as_ref().filter(|_| !is_kept) {
            Some(shadow) if shadow.is_chosen() => {
                self.enqueue_and_compare(shadow, options, queue, operands, results)
            }
            _ => self.enqueue_alone(options, queue, operands, results),
        }
    }

    /// Launches the kernels, waits for them, and compares their results with those of the wasm.
    #[cold]
    fn enqueue_and_compare(
        &self,
        shadow: &ShadowSite,
        options: &CallOptions,
        queue: &mut CudaQueue,
        operands: &[DeviceBuffer],
        results: &[DeviceBuffer],
    ) -> callbox::Result<()> {
        // Before the call, which can write results over them.
        let before = queue.download(operands)?;
        self.enqueue_alone(options, queue, operands, results)?;
        let found = queue.download(results)?;
        let mut found = Vec::from_iter(found.iter().map(Vec::as_slice));
        let statuses = self.has_status.then(|| found.pop()).flatten();
        // The results of elements that failed are none.
        if statuses.is_some_and(|statuses| statuses.iter().any(|&byte| byte != 0)) {
            return Ok(());
        }
        let before = Vec::from_iter(before.iter().map(Vec::as_slice));
        let compared = shadow.compare(options, &before, &found, &self.stats);
        let Err(failure) = compared else {
            return Ok(());
        };
        self.stats.count_failures(&failure, 1);
        match results.split_last() {
            Some((status, results)) if self.has_status => {
                self.fill_with_status(queue, results, status, &failure)
            }
            _ => Err(failure),
        }
    }

    /// Writes a failure of the whole call as a status.
    fn fill_with_status(
        &self,
        queue: &mut CudaQueue,
        results: &[DeviceBuffer],
        status: &DeviceBuffer,
        failure: &Status,
    ) -> callbox::Result<()> {
        note_failure(failure);
        for (result, &(_, poison)) in results.iter().zip(&self.element_sizes) {
            queue.fill(result, poison)?;
        }
        queue.fill_u32(status, u32::from(failure.code().number()))
    }

    fn enqueue_alone(
        &self,
        options: &CallOptions,
        queue: &mut CudaQueue,
        operands: &[DeviceBuffer],
        results: &[DeviceBuffer],
    ) -> callbox::Result<()> {
        let start = Instant::now();
        match (self.has_status, results.split_last()) {
            (true, Some((status, results))) => {
                self.enqueue_with_status(options, queue, operands, results, status)
            }
            _ => {
                let outcome = self.call.enqueue(options, queue, operands, results);
                self.stats
                    .count(start, self.bytes_in, self.bytes_out, &outcome);
                outcome
            }
        }
    }

    /// Launches the kernels, and writes the status of each batch element.
    ///
    /// The device fills the results of an element that failed with bytes 0xFF, or with true.
    ///
    /// # Errors
    /// Failures that make the device unusable, or that prevent writing a status.
    fn enqueue_with_status(
        &self,
        options: &CallOptions,
        queue: &mut CudaQueue,
        operands: &[DeviceBuffer],
        results: &[DeviceBuffer],
        status: &DeviceBuffer,
    ) -> callbox::Result<()> {
        let start = Instant::now();
        let device = Arc::clone(queue.device());
        queue.fill(status, 0)?;
        let mut failed = |queue: &mut dyn DeviceQueue, elements: Range<usize>, failure: Status| {
            let queue = CudaQueue::downcast(queue)?;
            if device.lost().is_some() {
                return Err(failure);
            }
            let part = |array: &DeviceBuffer, size: usize| {
                device.part_of_borrowed(array, elements.start * size..elements.end * size)
            };
            for (result, &(size, poison)) in results.iter().zip(&self.element_sizes) {
                queue.fill(&part(result, size)?, poison)?;
            }
            let code = u32::from(failure.code().number());
            queue.fill_u32(&part(status, size_of::<u32>())?, code)?;
            self.stats.count_failures(&failure, elements.len());
            note_failure(&failure);
            Ok(())
        };
        let outcome = self
            .call
            .enqueue_each(options, queue, operands, results, &mut failed);
        self.stats
            .count(start, self.bytes_in, self.bytes_out, &outcome);
        match outcome {
            Err(failure) if device.lost().is_none() => {
                self.fill_with_status(queue, results, status, &failure)
            }
            outcome => outcome,
        }
    }
}
