//! Copies between host and device, and work of the host in a stream's order.
//!
//! A program's own instructions run on the host when the stream reaches them, by the code of the
//! Host platform, which gives the same bits on both platforms. That costs a copy each way through
//! pinned memory: what has to be fast on a GPU is a target.
#![allow(
    unsafe_code,
    reason = "copies through pinned memory that a stream may still use"
)]

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use callbox_core::call::{DeviceBuffer, DeviceQueue, HostWork};
use callbox_core::locks::locked;
use callbox_core::values::{Blame, Result, Status, StatusCode};

use super::capture::LaunchOptions;
use super::{CudaQueue, FirstFailure};
use crate::driver::{Allocation, HostTask, Outcome, Pinned, copy};
use crate::guard::guarded;
use crate::staging::{Kept, places};

impl DeviceQueue for CudaQueue {
    fn allocate(&mut self, size: usize) -> Result<DeviceBuffer> {
        self.device.check_not_lost()?;
        if size > 0 {
            self.check_not_captured_elsewhere(format_args!("an allocation of {size} bytes"))?;
        }
        if let Some(capture) = &mut self.capture {
            return capture.allocate(size);
        }
        if let Some(sizes) = &mut self.recording {
            sizes.push(size);
        }
        let pooled = self.device.has_memory_pools();
        let allocation = Allocation::new(&self.stream, size, pooled);
        let allocation = self.check(&format!("allocating {size} bytes"), allocation)?;
        Ok(self.memory(allocation))
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<DeviceBuffer> {
        let buffer = self.allocate(bytes.len())?;
        if bytes.is_empty() {
            return Ok(buffer);
        }
        let slot = self.slot(bytes.len())?;
        let place = 0..bytes.len();
        // SAFETY: the slot has just been taken, and nothing else uses it.
        unsafe { slot.bytes_mut(&place) }.copy_from_slice(bytes);
        // SAFETY: `keep` keeps the slot until the stream has passed; the buffer is freed in stream
        // order.
        let copied = unsafe { copy::to_device(&self.stream, &slot, &place, buffer.address()) };
        self.keep(Kept::slot(slot))?;
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
        // SAFETY: `admit` has checked that both are this device's, and they have the same size.
        // Both are freed in stream order.
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
        self.check_not_captured_elsewhere(format_args!("work of the host"))?;
        for buffer in inputs.iter().chain(outputs) {
            self.admit(buffer)?;
        }
        let (sources, size) = places(inputs, 0)?;
        let (destinations, size) = places(outputs, size)?;
        let slot = self.slot(size)?;
        let task: Box<HostTask> = host_task(HostStep {
            slot: Arc::clone(&slot),
            inputs: sources.clone(),
            outputs: destinations.clone(),
            work,
            launch: (self.capture.as_ref()).map(|capture| Arc::clone(&capture.launch)),
            failure: Arc::clone(&self.failure),
        });
        let task = Arc::new(task);
        let put = || -> Outcome<()> {
            for (buffer, place) in std::iter::zip(inputs, &sources) {
                // SAFETY: `keep` keeps the slot; buffers are freed in stream order.
                unsafe { copy::to_host(&self.stream, buffer.address(), &slot, place) }?;
            }
            // SAFETY: `keep` keeps the task, also if the stream is captured.
            unsafe { self.stream.launch_host(&task) }?;
            for (buffer, place) in std::iter::zip(outputs, &destinations) {
                // SAFETY: as for the inputs.
                unsafe { copy::to_device(&self.stream, &slot, place, buffer.address()) }?;
            }
            Ok(())
        };
        let done = put();
        let tasks = vec![task];
        self.keep(Kept {
            tasks,
            ..Kept::slot(slot)
        })?;
        self.check("passing an instruction to the host", done)
    }

    fn part(&self, whole: &DeviceBuffer, range: Range<usize>) -> Result<DeviceBuffer> {
        self.device.part_of_borrowed(whole, range)
    }

    fn download(&mut self, buffers: &[DeviceBuffer]) -> Result<Vec<Vec<u8>>> {
        self.device.check_not_lost()?;
        if self.is_capturing() {
            return Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                "a data-dependent branch cannot be captured in a CUDA graph: it waits for a value",
            ));
        }
        for buffer in buffers {
            self.admit(buffer)?;
        }
        let (places, size) = places(buffers, 0)?;
        let slot = self.slot(size)?;
        let copied = std::iter::zip(buffers, &places).try_for_each(|(buffer, place)| {
            // SAFETY: the slot is kept until the stream has been waited for.
            unsafe { copy::to_host(&self.stream, buffer.address(), &slot, place) }
        });
        let waited = self.stream.synchronize();
        let found = copied.and(waited).map(|()| {
            let read = |place: &Range<usize>| {
                // SAFETY: the stream has been waited for: nothing writes the slot any longer.
                unsafe { slot.bytes(place) }.to_vec()
            };
            places.iter().map(read).collect()
        });
        if waited.is_ok() {
            self.device.staging().give_back(Kept::slot(slot));
            self.foreign.clear();
            self.units = 0;
            self.read_records();
        } else {
            // The device may still write the slot. A second failure adds nothing to the first.
            let _ = self.device.staging().retire(&self.stream, Kept::slot(slot));
        }
        self.device.staging().collect();
        let found = self.check("waiting for the device", found);
        // A failure of the host's work came before one of the wait.
        self.take_failure()?;
        found
    }

    fn keeps_work(&self) -> bool {
        self.is_capturing()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Work of the host, and where its arrays lie in a slot.
struct HostStep {
    slot: Arc<Pinned>,
    inputs: Vec<Range<usize>>,
    outputs: Vec<Range<usize>>,
    work: HostWork,
    /// The launches of the graph that the step is part of.
    launch: Option<LaunchOptions>,
    failure: FirstFailure,
}

/// The task that computes a step when the stream reaches it. After a failure, later steps compute
/// nothing.
fn host_task(step: HostStep) -> Box<HostTask> {
    Box::new(move || {
        // SAFETY: the copies before this task are done and those behind it have not begun, because
        // all are in one stream. Only this task uses the slot, its ranges do not overlap, and a
        // graph that is launched again keeps the order.
        let (inputs, mut outputs) = unsafe {
            let inputs = step.inputs.iter().map(|range| step.slot.bytes(range));
            let outputs = step.outputs.iter().map(|range| step.slot.bytes_mut(range));
            (inputs.collect::<Vec<_>>(), outputs.collect::<Vec<_>>())
        };
        let mut is_done = false;
        if locked(&step.failure).is_none() {
            let launch = step.launch.as_ref();
            let options = launch.and_then(|launch| locked(launch).clone());
            match guarded(|| (step.work)(options.as_ref(), &inputs, &mut outputs)) {
                Ok(()) => is_done = true,
                Err(status) => *locked(&step.failure) = Some(status),
            }
        }
        if !is_done {
            // Later work reads zeros instead of the slot's previous content.
            outputs.iter_mut().for_each(|output| output.fill(0));
        }
    })
}
