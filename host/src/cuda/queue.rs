//! Queues: an execution's work on a device, in one stream.
#![allow(
    unsafe_code,
    reason = "keeps memory for as long as the stream that it is used in has not passed"
)]

mod capture;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use self::capture::Capture;
pub(super) use self::capture::Captured;
use super::device::Borrowed;
use super::device::CudaDevice;
use super::driver::{
    Allocation, Event, Graph, GraphExec, HostTask, Outcome, Pinned, Stream, copy, fill,
};
use super::guard::{guarded, locked};
use super::staging::{Kept, places};
use crate::call::{DeviceBuffer, DeviceMemory, DeviceQueue, HostWork};
use crate::values::{Blame, Result, Status, StatusCode};

/// An execution's work on a device.
pub struct CudaQueue {
    device: Arc<CudaDevice>,
    stream: Arc<Stream>,
    is_own_stream: bool,
    /// Whether what comes in becomes a graph of somebody else's.
    is_captured_elsewhere: bool,
    /// The first failure of what the host computes.
    failed: Failed,
    /// Memory of other streams, which stays until this one has passed.
    foreign: Vec<DeviceBuffer>,
    /// The sizes of the memory that is taken, where somebody wants to know.
    recording: Option<Vec<usize>>,
    /// What a graph that is being captured needs for as long as it is launched.
    capture: Option<Capture>,
}

/// The first failure of what the host computes.
type Failed = Arc<Mutex<Option<Status>>>;

/// Memory of a CUDA device.
#[derive(Debug)]
struct CudaMemory {
    allocation: Allocation,
    /// Which device's: [`CudaDevice::id`].
    device: u64,
}

impl DeviceMemory for CudaMemory {
    fn address(&self) -> u64 {
        self.allocation.address()
    }

    fn size(&self) -> usize {
        self.allocation.size()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl CudaQueue {
    pub(super) fn new(device: &Arc<CudaDevice>, stream: Arc<Stream>) -> Self {
        Self {
            device: Arc::clone(device),
            stream,
            is_own_stream: true,
            is_captured_elsewhere: false,
            failed: Arc::default(),
            foreign: Vec::new(),
            recording: None,
            capture: None,
        }
    }

    /// A queue of somebody else's stream.
    pub(super) fn borrowed(device: &Arc<CudaDevice>, stream: Arc<Stream>) -> Self {
        let mut queue = Self::new(device, stream);
        queue.is_own_stream = false;
        queue
    }

    /// The same queue, of a stream that somebody else captures.
    pub(super) fn captured_elsewhere(mut self) -> Self {
        self.is_captured_elsewhere = true;
        self
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Whether what comes in is captured, and not done.
    pub(super) fn is_capturing(&self) -> bool {
        self.capture.is_some() || self.is_captured_elsewhere
    }

    /// Whether it becomes a graph of somebody else's, for which nothing is kept.
    pub(super) fn is_captured_elsewhere(&self) -> bool {
        self.is_captured_elsewhere
    }

    /// Sets each byte of an array.
    ///
    /// # Errors
    /// What the device reports.
    pub fn fill(&mut self, buffer: &DeviceBuffer, value: u8) -> Result<()> {
        self.device.check_not_lost()?;
        self.admit(buffer)?;
        // SAFETY: it has as many bytes, and is given back in the stream's order.
        let filled = unsafe { fill::bytes(&self.stream, buffer.address(), value, buffer.size()) };
        self.check("filling an array", filled)
    }

    /// Sets each number of an array of numbers of 32 bits.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the array can't be one of such numbers; what the device reports.
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
        // SAFETY: as in `fill`.
        let filled = unsafe { fill::words(&self.stream, buffer.address(), value, words) };
        self.check("filling an array", filled)
    }

    /// # Errors
    /// FAILED_PRECONDITION if what comes in becomes a graph of somebody else's: this is nothing that such a graph can hold.
    fn check_keeps(&self, found: fmt::Arguments<'_>) -> Result<()> {
        match self.is_captured_elsewhere {
            false => Ok(()),
            true => Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Guest,
                format!(
                    "expected launches, and copies and fills of borrowed memory, which are all that a graph of somebody else's can hold, found {found}"
                ),
            )),
        }
    }

    /// From here on the sizes of memory that is taken are noted.
    pub(super) fn begin_recording(&mut self) {
        self.recording = Some(Vec::new());
    }

    /// Whether they are.
    pub(super) fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// The sizes since.
    pub(super) fn end_recording(&mut self) -> Vec<usize> {
        self.recording.take().unwrap_or_default()
    }

    /// Memory for a graph. It is taken and given back in a stream of its own, for giving memory back in a stream that captures spoils the capture, and
    /// nobody knows which stream captures when a graph goes.
    pub(super) fn take_for_graph(&self, sizes: &[usize]) -> Result<Vec<DeviceBuffer>> {
        let stream = self.device.keeper();
        let pooled = self.device.has_memory_pools();
        let taken = sizes.iter().map(|&size| {
            let taken = Allocation::new(stream, size, pooled);
            let allocation = self.check(&format!("taking {size} bytes for a graph"), taken)?;
            Ok(self.memory(allocation))
        });
        let taken = taken.collect::<Result<Vec<_>>>()?;
        self.check("taking memory for a graph", stream.synchronize())?;
        Ok(taken)
    }

    fn memory(&self, allocation: Allocation) -> DeviceBuffer {
        Arc::new(CudaMemory {
            allocation,
            device: self.device.id(),
        })
    }

    /// From here on nothing is done: it becomes a graph, in this memory.
    pub(super) fn begin_capture(&mut self, memory: Vec<DeviceBuffer>) -> Result<()> {
        let begun = self.stream.begin_capture();
        self.check("beginning a capture", begun)?;
        self.capture = Some(Capture::new(memory, &mut self.failed));
        Ok(())
    }

    /// The graph of what came in since, and what it uses.
    pub(super) fn end_capture(&mut self) -> Result<(Graph, Captured)> {
        let ended = self.stream.end_capture();
        if ended.is_err() {
            // A stream that is still capturing would take in what comes after.
            drop(self.stream.end_capture());
        }
        let capture = self.capture.take();
        let capture = capture.ok_or_else(|| Status::internal("an end of no capture"))?;
        let captured = capture.end(&self.device, &mut self.failed);
        Ok((self.check("ending a capture", ended)?, captured))
    }

    /// Launches a graph. Failures of what the host computes in it become this queue's.
    pub(super) fn launch_graph(
        &mut self,
        exec: &mut GraphExec,
        captured: &mut Captured,
    ) -> Result<()> {
        self.device.check_not_lost()?;
        let cell = captured.failed().cloned();
        if let (Some(_), Some(used)) = (&cell, captured.used()) {
            // What the launch before it failed with goes to that one's queue first.
            let held = used.hold_back(&self.stream);
            self.check("waiting for the launch before", held)?;
        }
        // SAFETY: what the graph uses is in `captured`, which keeps it until the mark that is set below, or waits if there is none; operands and results
        // are given back in the stream's order.
        let launched = unsafe { exec.launch(&self.stream) };
        self.check("launching a graph", launched)?;
        let event = captured.note_launch();
        if let Some(cell) = cell {
            let own = Arc::clone(&self.failed);
            let told: Box<HostTask> = Box::new(move || {
                if let Some(status) = locked(&cell).take() {
                    locked(&own).get_or_insert(status);
                }
            });
            let told = Arc::new(told);
            // SAFETY: the task is kept below.
            let put = unsafe { self.stream.launch_host(&told) };
            self.keep(Kept {
                tasks: vec![told],
                ..Kept::default()
            })?;
            self.check("asking how a graph went", put)?;
        }
        captured.mark_used(self, event)
    }

    /// Checks that memory is this device's, and has its work wait for what another stream does with it.
    pub(super) fn admit(&mut self, buffer: &DeviceBuffer) -> Result<()> {
        let memory = buffer.as_any();
        if let Some(memory) = memory.downcast_ref::<CudaMemory>() {
            self.check_device(memory.device)?;
            if buffer.size() > 0 {
                self.check_keeps(format_args!("memory that was taken in a queue"))?;
            }
            let owner = memory.allocation.stream();
            let is_at_home = Arc::ptr_eq(owner, &self.stream)
                || Arc::ptr_eq(owner, self.device.keeper())
                || buffer.size() == 0;
            // What a graph reads from outside are its launch's operands and results, which were admitted before the capture began.
            return match is_at_home || self.is_capturing() {
                true => Ok(()),
                false => self.wait_for(&Arc::clone(owner), buffer),
            };
        }
        match memory.downcast_ref::<Borrowed>() {
            Some(borrowed) => self.check_device(borrowed.device()),
            None => Err(Status::invalid_argument(
                "expected memory of a CUDA device, found another's",
            )),
        }
    }

    fn check_device(&self, device: u64) -> Result<()> {
        match device == self.device.id() {
            true => Ok(()),
            false => Err(Status::invalid_argument(format!(
                "expected memory of CUDA device {}, found another device's",
                self.device.ordinal()
            ))),
        }
    }

    /// Has this stream wait for another, and keeps the memory until this one has passed: it is given back in the other's order.
    fn wait_for(&mut self, other: &Arc<Stream>, buffer: &DeviceBuffer) -> Result<()> {
        let waited = Event::new(self.device.context()).and_then(|event| {
            event.record(other)?;
            event.hold_back(&self.stream)
        });
        self.check("waiting for another stream", waited)?;
        self.foreign.push(Arc::clone(buffer));
        Ok(())
    }

    fn check<T>(&self, doing: &str, outcome: Outcome<T>) -> Result<T> {
        self.device.check(doing, outcome)
    }

    /// Keeps these until they are not needed any longer.
    fn keep(&mut self, kept: Kept) -> Result<()> {
        match &mut self.capture {
            Some(capture) => {
                capture.keep(kept);
                Ok(())
            }
            None => {
                let retired = self.device.staging().retire(&self.stream, kept);
                self.device.check("marking the stream", retired)
            }
        }
    }

    /// A slot. Where too much is on its way already, or there is no more, the stream is waited for first.
    fn slot(&self, size: usize) -> Result<Arc<Pinned>> {
        let staging = self.device.staging();
        if !self.is_capturing() && staging.is_crowded() {
            self.check("waiting for slots", self.stream.synchronize())?;
        }
        let slot = match staging.take(size) {
            Err(failure) if !self.is_capturing() && !failure.is_sticky() => {
                self.check("waiting for slots", self.stream.synchronize())?;
                staging.take(size)
            }
            other => other,
        };
        self.check(&format!("taking {size} bytes of pinned memory"), slot)
    }

    /// # Errors
    /// The first failure of what the host computed.
    fn check_work(&self) -> Result<()> {
        locked(&self.failed).take().map_or(Ok(()), Err)
    }
}

impl DeviceQueue for CudaQueue {
    fn allocate(&mut self, size: usize) -> Result<DeviceBuffer> {
        self.device.check_not_lost()?;
        if size > 0 {
            self.check_keeps(format_args!("a need for {size} bytes of memory"))?;
        }
        if let Some(capture) = &mut self.capture {
            return capture.allocate(size);
        }
        if let Some(sizes) = &mut self.recording {
            sizes.push(size);
        }
        let pooled = self.device.has_memory_pools();
        let taken = Allocation::new(&self.stream, size, pooled);
        let allocation = self.check(&format!("taking {size} bytes"), taken)?;
        Ok(self.memory(allocation))
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<DeviceBuffer> {
        let buffer = self.allocate(bytes.len())?;
        if bytes.is_empty() {
            return Ok(buffer);
        }
        let slot = self.slot(bytes.len())?;
        // SAFETY: nothing else has the slot yet.
        unsafe { slot.bytes_mut(0, bytes.len()) }.copy_from_slice(bytes);
        // SAFETY: the slot is kept below until the stream has passed, and whoever drops the buffer gives it back in the stream's order.
        let copied =
            unsafe { copy::to_device(&self.stream, &slot, 0, buffer.address(), bytes.len()) };
        let kept = Kept {
            slots: vec![slot],
            ..Kept::default()
        };
        self.keep(kept)?;
        self.check("copying to the device", copied)?;
        Ok(buffer)
    }

    fn copy(&mut self, from: &DeviceBuffer, to: &DeviceBuffer) -> Result<()> {
        self.device.check_not_lost()?;
        if from.size() != to.size() {
            return Err(Status::invalid_argument(format!(
                "expected a copy between arrays of one size, found {} and {} bytes",
                from.size(),
                to.size()
            )));
        }
        self.admit(from)?;
        self.admit(to)?;
        if from.address() == to.address() {
            return Ok(());
        }
        // SAFETY: both are as large, and are given back in the stream's order.
        let copied =
            unsafe { copy::on_device(&self.stream, from.address(), to.address(), from.size()) };
        self.check("copying on the device", copied)
    }

    fn compute(
        &mut self,
        work: HostWork,
        inputs: &[DeviceBuffer],
        outputs: &[DeviceBuffer],
    ) -> Result<()> {
        self.device.check_not_lost()?;
        self.check_keeps(format_args!("work of the host's"))?;
        for buffer in inputs.iter().chain(outputs) {
            self.admit(buffer)?;
        }
        let (sources, size) = places(inputs, 0)?;
        let (destinations, size) = places(outputs, size)?;
        let slot = self.slot(size)?;
        let task = passage(
            Arc::clone(&slot),
            (sources.clone(), destinations.clone()),
            work,
            Arc::clone(&self.failed),
        );
        let task: Arc<Box<HostTask>> = Arc::new(task);
        let put = || -> Outcome<()> {
            for (buffer, place) in std::iter::zip(inputs, &sources) {
                // SAFETY: the slot is kept below, and buffers are given back in the stream's order.
                unsafe {
                    copy::to_host(
                        &self.stream,
                        buffer.address(),
                        &slot,
                        place.start,
                        place.len(),
                    )
                }?;
            }
            // SAFETY: the task is kept below.
            unsafe { self.stream.launch_host(&task) }?;
            for (buffer, place) in std::iter::zip(outputs, &destinations) {
                // SAFETY: as for the inputs.
                unsafe {
                    copy::to_device(
                        &self.stream,
                        &slot,
                        place.start,
                        buffer.address(),
                        place.len(),
                    )
                }?;
            }
            Ok(())
        };
        let done = put();
        let kept = Kept {
            slots: vec![slot],
            tasks: vec![task],
            ..Kept::default()
        };
        self.keep(kept)?;
        self.check("passing an instruction to the host", done)
    }

    fn download(&mut self, buffers: &[DeviceBuffer]) -> Result<Vec<Vec<u8>>> {
        self.device.check_not_lost()?;
        if self.is_capturing() {
            return Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                "expected work that waits for nothing, which is all that a graph can hold, found a value that decides where control goes",
            ));
        }
        for buffer in buffers {
            self.admit(buffer)?;
        }
        let (places, size) = places(buffers, 0)?;
        let slot = self.slot(size)?;
        let mut copied = Ok(());
        for (buffer, place) in std::iter::zip(buffers, &places) {
            // SAFETY: the slot is kept until the stream was waited for.
            copied = copied.and_then(|()| unsafe {
                copy::to_host(
                    &self.stream,
                    buffer.address(),
                    &slot,
                    place.start,
                    place.len(),
                )
            });
        }
        let waited = self.stream.synchronize();
        let bytes = |place: &Range<usize>| {
            // SAFETY: the stream was waited for: nothing writes the slot any longer.
            unsafe { slot.bytes(place.start, place.len()) }.to_vec()
        };
        let found = match copied.and(waited) {
            Ok(()) => Ok(places.iter().map(bytes).collect()),
            Err(failure) => Err(failure),
        };
        let kept = Kept {
            slots: vec![slot],
            ..Kept::default()
        };
        match waited {
            Ok(()) => self.device.staging().give_back(kept),
            // The device may still write it. What this comes to is no news.
            Err(_) => {
                let _ = self.device.staging().retire(&self.stream, kept);
            }
        }
        self.device.staging().collect();
        if waited.is_ok() {
            self.foreign.clear();
        }
        let found = self.check("waiting for the device", found);
        // What the host failed with was first.
        self.check_work()?;
        found
    }

    fn keeps_work(&self) -> bool {
        self.is_capturing()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
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
        let foreign = std::mem::take(&mut self.foreign);
        if !foreign.is_empty() {
            let kept = Kept {
                memory: foreign,
                ..Kept::default()
            };
            let _ = self.device.staging().retire(&self.stream, kept);
        }
        if self.capture.take().is_some() {
            // Something panicked in between. What comes into the stream next is not to be captured.
            drop(self.stream.end_capture());
        } else if self.is_own_stream {
            self.device.keep_stream(Arc::clone(&self.stream));
        }
    }
}

/// What the host does when its turn comes: computes from the slot's inputs to its outputs. After a failure nothing more is computed.
fn passage(
    slot: Arc<Pinned>,
    (inputs, outputs): (Vec<Range<usize>>, Vec<Range<usize>>),
    work: HostWork,
    failed: Failed,
) -> Box<HostTask> {
    Box::new(move || {
        // SAFETY: the copies before this are done and those behind it have not begun, for they are in one stream; the slot is this task's alone, its
        // ranges do not overlap, and a graph that is launched again goes through the same order.
        let (inputs, mut outputs) = unsafe {
            let input = |range: &Range<usize>| slot.bytes(range.start, range.len());
            let output = |range: &Range<usize>| slot.bytes_mut(range.start, range.len());
            let inputs: Vec<&[u8]> = inputs.iter().map(input).collect();
            let outputs: Vec<&mut [u8]> = outputs.iter().map(output).collect();
            (inputs, outputs)
        };
        let before = locked(&failed).is_some();
        let outcome = match before {
            true => Ok(false),
            false => guarded(|| work(&inputs, &mut outputs)).map(|()| true),
        };
        if !matches!(outcome, Ok(true)) {
            // What comes after reads zeros, and not what was in the slot.
            outputs.iter_mut().for_each(|output| output.fill(0));
        }
        if let Err(status) = outcome {
            locked(&failed).get_or_insert(status);
        }
    })
}
