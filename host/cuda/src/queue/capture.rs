//! Captures: a queue's work becomes a graph instead of being done.
#![allow(unsafe_code, reason = "launches graphs, and keeps what they use")]

use std::sync::{Arc, Mutex};

use callbox_core::call::{CallOptions, DeviceBuffer};
use callbox_core::locks::locked;
use callbox_core::values::{Blame, Result, Status, StatusCode};

use super::{CudaQueue, FirstFailure};
use crate::device::CudaDevice;
use crate::driver::{Allocation, Event, Graph, GraphExec, HostTask, Outcome, StreamId};
use crate::staging::Kept;

/// The options of the execution that launches a graph, while the graph runs. Its launches with work
/// of the host run one after another.
pub(super) type LaunchOptions = Arc<Mutex<Option<CallOptions>>>;

/// A capture that is under way.
pub(super) struct Capture {
    /// Memory that was allocated before the capture, which itself cannot allocate any.
    memory: Vec<DeviceBuffer>,
    /// The bytes of the memory that have been handed out.
    next: usize,
    kept: Kept,
    pub(super) launch: LaunchOptions,
    /// The queue's own failure cell, until the capture ends.
    outer: FirstFailure,
}

impl Capture {
    /// Hands out the next memory, which has the size that the function allocated when it ran.
    pub(super) fn allocate(&mut self, size: usize) -> Result<DeviceBuffer> {
        let memory = self.memory.get(self.next).cloned();
        self.next += 1;
        memory.filter(|memory| memory.size() == size).ok_or_else(|| {
            Status::new(
                StatusCode::FailedPrecondition,
                Blame::Guest,
                "the function cannot be captured in a CUDA graph: it allocates other memory than when \
                 it ran",
            )
        })
    }

    pub(super) fn keep(&mut self, kept: Kept) {
        self.kept.slots.extend(kept.slots);
        self.kept.tasks.extend(kept.tasks);
        self.kept.memory.extend(kept.memory);
    }
}

impl CudaQueue {
    /// Begins to record the sizes of allocations.
    pub(crate) fn begin_recording(&mut self) {
        self.recording = Some(Vec::new());
    }

    /// Whether the sizes of allocations are recorded.
    pub(crate) fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Ends the recording, and returns the sizes.
    pub(crate) fn end_recording(&mut self) -> Vec<usize> {
        self.recording.take().unwrap_or_default()
    }

    /// Allocates memory for a graph, in the device's stream for graphs.
    ///
    /// Memory that is freed in a stream that is being captured invalidates the capture, and a graph
    /// may be dropped while any other stream is captured.
    pub(crate) fn allocate_for_graph(&self, sizes: &[usize]) -> Result<Vec<DeviceBuffer>> {
        let stream = self.device.keeper();
        let pooled = self.device.has_memory_pools();
        let memory = sizes.iter().map(|&size| {
            let allocation = Allocation::new(stream, size, pooled);
            let doing = format!("allocating {size} bytes for a graph");
            Ok(self.memory(self.check(&doing, allocation)?))
        });
        let memory = memory.collect::<Result<Vec<_>>>()?;
        self.check("allocating memory for a graph", stream.synchronize())?;
        Ok(memory)
    }

    /// Begins to capture work into a graph, which uses this memory.
    pub(crate) fn begin_capture(&mut self, memory: Vec<DeviceBuffer>) -> Result<()> {
        self.check("beginning a capture", self.stream.begin_capture())?;
        self.capture = Some(Capture {
            memory,
            next: 0,
            kept: Kept::default(),
            launch: LaunchOptions::default(),
            outer: std::mem::take(&mut self.failure),
        });
        Ok(())
    }

    /// Ends the capture, and returns the graph with what it uses.
    pub(crate) fn end_capture(&mut self) -> Result<(Graph, Captured)> {
        let ended = self.stream.end_capture();
        if ended.is_err() {
            // The stream must not go on capturing.
            drop(self.stream.end_capture());
        }
        let capture = self.capture.take();
        let mut capture = capture.ok_or_else(|| Status::internal("an end of no capture"))?;
        capture.kept.memory.extend(capture.memory.iter().cloned());
        let captured = Captured {
            device: Arc::clone(&self.device),
            kept: capture.kept,
            memory: capture.memory,
            launch: capture.launch,
            failure: std::mem::replace(&mut self.failure, capture.outer),
            is_launched: false,
            used: None,
        };
        Ok((self.check("ending a capture", ended)?, captured))
    }

    /// Launches a graph. The host's work in it ends with the deadline and the cancel token of these
    /// options, and its failures become this queue's.
    pub(crate) fn launch_graph(
        &mut self,
        exec: &mut GraphExec,
        captured: &mut Captured,
        options: &CallOptions,
    ) -> Result<()> {
        self.device.check_not_lost()?;
        let has_host_work = !captured.kept.tasks.is_empty();
        if has_host_work && let Some((_, used)) = &captured.used {
            // A failure of the previous launch is first moved to the queue of that launch.
            let held = used.hold_back(&self.stream);
            self.check("waiting for the previous launch", held)?;
        }
        if has_host_work {
            let (launch, options) = (Arc::clone(&captured.launch), options.clone());
            let begin = move || *locked(&launch) = Some(options.clone());
            self.put_task(Box::new(begin), "telling a graph its deadline")?;
        }
        // SAFETY: `captured` keeps what the graph uses until the event that `mark_used` records, or
        // waits if there is none; operands and results are freed in stream order.
        let launched = unsafe { exec.launch(&self.stream) };
        self.check("launching a graph", launched)?;
        captured.is_launched = true;
        // The previous event no longer covers the last launch.
        let event = captured.used.take().map(|(_, event)| event);
        if has_host_work {
            self.end_launch_of(captured)?;
        }
        captured.mark_used(self, event)
    }

    /// Moves a graph's failure to this queue, when the stream has passed the launch.
    fn end_launch_of(&mut self, captured: &Captured) -> Result<()> {
        let (graph, own) = (Arc::clone(&captured.failure), Arc::clone(&self.failure));
        let launch = Arc::clone(&captured.launch);
        let end = move || {
            locked(&launch).take();
            if let Some(status) = locked(&graph).take() {
                locked(&own).get_or_insert(status);
            }
        };
        self.put_task(Box::new(end), "asking for a graph's failure")
    }

    /// Puts a task of the host into the stream.
    fn put_task(&mut self, task: Box<HostTask>, doing: &str) -> Result<()> {
        let task = Arc::new(task);
        // SAFETY: `keep` keeps the task until the stream has passed it.
        let put = unsafe { self.stream.launch_host(&task) };
        self.keep(Kept::task(task))?;
        self.check(doing, put)
    }
}

/// The values that a graph uses. They are kept until its last launch is done, without waiting for
/// it.
pub(crate) struct Captured {
    device: Arc<CudaDevice>,
    kept: Kept,
    memory: Vec<DeviceBuffer>,
    launch: LaunchOptions,
    /// The first failure of the host's work in the graph.
    failure: FirstFailure,
    is_launched: bool,
    /// The stream of the last launch, and an event behind it, if one could be recorded.
    used: Option<(StreamId, Event)>,
}

impl Captured {
    /// The memory that the function allocates, in its order.
    pub(crate) fn memory(&self) -> &[DeviceBuffer] {
        &self.memory
    }

    /// The sizes of the memory.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.memory.iter().map(|memory| memory.size()).collect()
    }

    /// Records that a launch is in the queue, with this event or a new one.
    fn mark_used(&mut self, queue: &CudaQueue, event: Option<Event>) -> Result<()> {
        let mark = || -> Outcome<(StreamId, Event)> {
            let event = event.map_or_else(|| Event::new(self.device.context()), Ok)?;
            event.record(queue.stream())?;
            Ok((queue.stream().id(), event))
        };
        self.used = Some(queue.check("marking the stream", mark())?);
        Ok(())
    }

    /// Keeps the executable graph, too.
    pub(crate) fn keep_graph(&mut self, graph: GraphExec) {
        self.kept.graph = Some(graph);
    }
}

impl std::fmt::Debug for Captured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Captured")
            .field("sizes", &self.sizes())
            .finish_non_exhaustive()
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        match self.used.take() {
            Some((stream, passed)) => self.device.staging().retire_behind(stream, passed, kept),
            None if !self.is_launched || self.device.context().synchronize().is_ok() => {
                self.device.staging().give_back(kept);
            }
            // A launch may still use the values.
            None => std::mem::forget(kept),
        }
    }
}
