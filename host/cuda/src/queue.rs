//! Queues: the work of an execution on a device, in one stream.
//!
//! A deadline or a cancel token stops work that has not been put into the stream yet, and launches
//! of fenced kernels. Other work in a stream cannot be stopped.
#![allow(
    unsafe_code,
    reason = "puts work into a stream, and keeps its memory until the stream has passed"
)]

mod capture;
mod fenced;
mod transfer;

use std::fmt;
use std::sync::{Arc, Mutex};

use callbox_core::call::{DeviceBuffer, DeviceMemory, DeviceQueue};
use callbox_core::locks::locked;
use callbox_core::values::{Blame, Result, Status, StatusCode};

use self::capture::Capture;
pub(super) use self::capture::Captured;
use super::device::{Borrowed, CudaDevice};
use super::driver::{Allocation, Event, Outcome, Pinned, Stream, fill};
use super::fenced::{QueueStop, Running};
use super::staging::Kept;

/// The work of an execution on a device.
pub struct CudaQueue {
    device: Arc<CudaDevice>,
    stream: Arc<Stream>,
    is_own_stream: bool,
    /// Whether another framework captures the stream into a graph of its own.
    is_captured_elsewhere: bool,
    failure: FirstFailure,
    /// Memory of other streams, kept until this stream has passed its use.
    foreign: Vec<DeviceBuffer>,
    /// The sizes of the allocations since [`CudaQueue::begin_recording`].
    recording: Option<Vec<usize>>,
    /// The capture that is under way.
    capture: Option<Capture>,
    /// Launches of fenced kernels whose records have not been read.
    running: Vec<Arc<Running>>,
    stopped: QueueStop,
    /// The units of work in the stream, since it was last waited for, that no stop ends.
    units: u64,
}

/// The first failure of the host's work in a stream.
type FirstFailure = Arc<Mutex<Option<Status>>>;

/// Memory of a CUDA device.
#[derive(Debug)]
struct CudaMemory {
    allocation: Allocation,
    /// The device's [`CudaDevice::id`].
    device: u64,
}

impl DeviceMemory for CudaMemory {
    fn address(&self) -> u64 {
        self.allocation.address()
    }

    fn size(&self) -> usize {
        self.allocation.size()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl CudaQueue {
    /// Returns the queue as a queue of a CUDA device.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if it belongs to a device of another kind.
    pub fn downcast(queue: &mut dyn DeviceQueue) -> Result<&mut Self> {
        queue.as_any().downcast_mut().ok_or_else(|| {
            Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                "expected a queue of a CUDA device, found another device's",
            )
        })
    }

    pub(super) fn new(device: &Arc<CudaDevice>, stream: Arc<Stream>) -> Self {
        Self {
            device: Arc::clone(device),
            stream,
            is_own_stream: true,
            is_captured_elsewhere: false,
            failure: Arc::default(),
            foreign: Vec::new(),
            recording: None,
            capture: None,
            running: Vec::new(),
            stopped: QueueStop::default(),
            units: 0,
        }
    }

    /// A queue on the stream of another framework, which may be capturing it.
    pub(super) fn borrowed(
        device: &Arc<CudaDevice>,
        stream: Stream,
        is_captured_elsewhere: bool,
    ) -> Self {
        let mut queue = Self::new(device, Arc::new(stream));
        queue.is_own_stream = false;
        queue.is_captured_elsewhere = is_captured_elsewhere;
        queue
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Whether work is captured into a graph instead of being done.
    pub(super) fn is_capturing(&self) -> bool {
        self.capture.is_some() || self.is_captured_elsewhere
    }

    /// Whether another framework captures the stream. Nothing is kept for such a graph.
    pub(super) fn is_captured_elsewhere(&self) -> bool {
        self.is_captured_elsewhere
    }

    /// Sets each byte of an array.
    ///
    /// # Errors
    /// The device's failure.
    pub fn fill(&mut self, buffer: &DeviceBuffer, value: u8) -> Result<()> {
        self.device.check_not_lost()?;
        self.admit(buffer)?;
        // SAFETY: `admit` has checked that the memory is this device's; it is freed in stream
        // order.
        let filled = unsafe { fill::bytes(&self.stream, buffer.address(), value, buffer.size()) };
        self.check("filling an array", filled)
    }

    /// Sets each 32-bit number of an array.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the array's size or address is not a multiple of 4; the device's
    /// failure.
    pub fn fill_u32(&mut self, buffer: &DeviceBuffer, value: u32) -> Result<()> {
        const WIDTH: usize = size_of::<u32>();
        self.device.check_not_lost()?;
        if !buffer.size().is_multiple_of(WIDTH) || !buffer.address().is_multiple_of(WIDTH as u64) {
            return Err(Status::invalid_argument(format!(
                "expected an array of numbers of {WIDTH} bytes, found one of {} bytes at address {:#x}",
                buffer.size(),
                buffer.address()
            )));
        }
        self.admit(buffer)?;
        let words = buffer.size() / WIDTH;
        // SAFETY: as in `fill`; the size and the address are multiples of four bytes.
        let filled = unsafe { fill::words(&self.stream, buffer.address(), value, words) };
        self.check("filling an array", filled)
    }

    /// Checks that no other framework captures the stream: its graph may be launched at any time,
    /// so that nothing can be kept for as long as the graph needs it.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, with the operation that needs something kept.
    fn check_not_captured_elsewhere(&self, operation: fmt::Arguments<'_>) -> Result<()> {
        if !self.is_captured_elsewhere {
            return Ok(());
        }
        Err(Status::new(
            StatusCode::FailedPrecondition,
            Blame::Guest,
            format!("{operation} is not possible while another framework captures this stream"),
        ))
    }

    fn memory(&self, allocation: Allocation) -> DeviceBuffer {
        Arc::new(CudaMemory {
            allocation,
            device: self.device.id(),
        })
    }

    /// Checks that memory is this device's, and orders this stream behind the other stream that the
    /// memory was allocated in.
    pub(super) fn admit(&mut self, buffer: &DeviceBuffer) -> Result<()> {
        let any = buffer.as_any();
        if let Some(borrowed) = any.downcast_ref::<Borrowed>() {
            return self.check_device(borrowed.device());
        }
        let memory = any.downcast_ref::<CudaMemory>().ok_or_else(|| {
            Status::invalid_argument("expected memory of a CUDA device, found another device's")
        })?;
        self.check_device(memory.device)?;
        if buffer.size() == 0 {
            return Ok(());
        }
        self.check_not_captured_elsewhere(format_args!("the use of memory of a queue"))?;
        let owner = memory.allocation.stream();
        let is_ordered =
            Arc::ptr_eq(owner, &self.stream) || Arc::ptr_eq(owner, self.device.keeper());
        // A graph only reads the operands and results of its launch from outside, and they were
        // admitted before the capture began.
        if is_ordered || self.is_capturing() {
            return Ok(());
        }
        self.wait_for(&Arc::clone(owner), buffer)
    }

    fn check_device(&self, device: u64) -> Result<()> {
        if device == self.device.id() {
            return Ok(());
        }
        Err(Status::invalid_argument(format!(
            "expected memory of CUDA device {}, found another device's",
            self.device.ordinal()
        )))
    }

    /// Makes this stream wait for another, and keeps the memory until this stream has passed: it is
    /// freed in the other's order.
    fn wait_for(&mut self, other: &Arc<Stream>, buffer: &DeviceBuffer) -> Result<()> {
        let waited = Event::new(self.device.context()).and_then(|event| {
            event.record(other)?;
            event.hold_back(&self.stream)
        });
        self.check("waiting for another stream", waited)?;
        self.foreign.push(Arc::clone(buffer));
        Ok(())
    }

    /// The status of a driver call.
    pub(super) fn check<T>(&self, doing: &str, outcome: Outcome<T>) -> Result<T> {
        self.device.check(doing, outcome)
    }

    /// Keeps these values until the stream has passed its current work. During a capture, they live
    /// as long as the graph.
    fn keep(&mut self, kept: Kept) -> Result<()> {
        if let Some(capture) = &mut self.capture {
            capture.keep(kept);
            return Ok(());
        }
        let retired = self.device.staging().retire(&self.stream, kept);
        self.device.check("marking the stream", retired)
    }

    /// Takes a pinned slot. If too many are in use, or none can be allocated, the stream is waited
    /// for first.
    fn slot(&self, size: usize) -> Result<Arc<Pinned>> {
        let staging = self.device.staging();
        let wait = || self.check("waiting for slots", self.stream.synchronize());
        if !self.is_capturing() && staging.is_crowded() {
            wait()?;
        }
        let mut slot = staging.take(size);
        if let Err(failure) = slot
            && !self.is_capturing()
            && !failure.is_sticky()
        {
            wait()?;
            slot = staging.take(size);
        }
        self.check(&format!("taking {size} bytes of pinned memory"), slot)
    }

    /// Takes the first failure of the host's work.
    fn take_failure(&self) -> Result<()> {
        locked(&self.failure).take().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for CudaQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaQueue")
            .field("device", &self.device.ordinal())
            .field("is_own_stream", &self.is_own_stream)
            .finish_non_exhaustive()
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.foreign);
        let running = std::mem::take(&mut self.running);
        if !memory.is_empty() || !running.is_empty() {
            let kept = Kept {
                memory,
                running,
                ..Kept::default()
            };
            let _ = self.device.staging().retire(&self.stream, kept);
        }
        if self.capture.take().is_some() {
            // A panic interrupted the capture, which must not include the stream's next work.
            drop(self.stream.end_capture());
        } else if self.is_own_stream {
            self.device.keep_stream(Arc::clone(&self.stream));
        }
    }
}
