//! What a capture takes and leaves.

use std::sync::Arc;

use super::Failed;
use crate::call::DeviceBuffer;
use crate::cuda::device::CudaDevice;
use crate::cuda::driver::{Event, GraphExec, Outcome};
use crate::cuda::queue::CudaQueue;
use crate::cuda::staging::Kept;
use crate::values::{Blame, Result, Status, StatusCode};

/// A capture that is under way.
pub(super) struct Capture {
    /// Memory that was taken before, for memory can't be taken during a capture.
    memory: Vec<DeviceBuffer>,
    /// How much of it has been handed out.
    next: usize,
    kept: Kept,
    /// The queue's own, until the capture ends.
    outer: Failed,
}

impl Capture {
    /// Begins it. What the host computes in the graph tells its failures to whoever launches it.
    pub(super) fn new(memory: Vec<DeviceBuffer>, failed: &mut Failed) -> Self {
        Self {
            memory,
            next: 0,
            kept: Kept::default(),
            outer: std::mem::take(failed),
        }
    }

    /// The next memory, which is as large as when the function ran.
    pub(super) fn allocate(&mut self, size: usize) -> Result<DeviceBuffer> {
        let memory = self.memory.get(self.next).cloned();
        self.next += 1;
        match memory {
            Some(memory) if memory.size() == size => Ok(memory),
            _ => Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Guest,
                "expected a function that takes the same memory each time, which is all that a graph can hold, found one that takes other memory than when it ran",
            )),
        }
    }

    pub(super) fn keep(&mut self, kept: Kept) {
        self.kept.slots.extend(kept.slots);
        self.kept.tasks.extend(kept.tasks);
        self.kept.memory.extend(kept.memory);
    }

    /// Ends it.
    pub(super) fn end(mut self, device: &Arc<CudaDevice>, failed: &mut Failed) -> Captured {
        let sizes = self.memory.iter().map(|memory| memory.size()).collect();
        self.kept.memory.extend(self.memory.iter().cloned());
        Captured {
            device: Arc::clone(device),
            kept: self.kept,
            memory: self.memory,
            sizes,
            failed: std::mem::replace(failed, self.outer),
            is_launched: false,
            used: None,
        }
    }
}

/// What a graph uses. Dropping it waits for nothing: it stays until the last launch is done.
pub(in crate::cuda) struct Captured {
    device: Arc<CudaDevice>,
    kept: Kept,
    memory: Vec<DeviceBuffer>,
    sizes: Vec<usize>,
    failed: Failed,
    /// Whether it was launched.
    is_launched: bool,
    /// Behind the last launch, if that could be marked.
    used: Option<Event>,
}

impl Captured {
    /// The memory that the function takes, in its order.
    pub(in crate::cuda) fn memory(&self) -> &[DeviceBuffer] {
        &self.memory
    }

    /// Its sizes.
    pub(in crate::cuda) fn sizes(&self) -> Vec<usize> {
        self.sizes.clone()
    }

    /// Where failures of what the host computes in it are, if it computes anything.
    pub(super) fn failed(&self) -> Option<&Failed> {
        (!self.kept.tasks.is_empty()).then_some(&self.failed)
    }

    /// The mark behind the last launch.
    pub(super) fn used(&self) -> Option<&Event> {
        self.used.as_ref()
    }

    /// Notes that a launch is in a stream: what it uses is not given back before the stream has passed. Gives the mark behind the launch before, which says
    /// nothing of this one.
    pub(super) fn note_launch(&mut self) -> Option<Event> {
        self.is_launched = true;
        self.used.take()
    }

    /// Marks that a launch is in the queue, by this event or another.
    pub(super) fn mark_used(&mut self, queue: &CudaQueue, event: Option<Event>) -> Result<()> {
        let mark = || -> Outcome<Event> {
            let event = match event {
                Some(event) => event,
                None => Event::new(self.device.context())?,
            };
            event.record(queue.stream())?;
            Ok(event)
        };
        let marked = mark();
        self.used = Some(self.device.check("marking the stream", marked)?);
        Ok(())
    }

    /// Keeps the graph itself as long.
    pub(in crate::cuda) fn keep_graph(&mut self, graph: GraphExec) {
        self.kept.graph = Some(graph);
    }
}

impl std::fmt::Debug for Captured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Captured")
            .field("sizes", &self.sizes)
            .finish_non_exhaustive()
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        match self.used.take() {
            Some(passed) => self.device.staging().retire_behind(passed, kept),
            None if !self.is_launched || self.device.context().synchronize().is_ok() => {
                self.device.staging().give_back(kept);
            }
            // Nobody knows whether it is still in use.
            None => std::mem::forget(kept),
        }
    }
}
