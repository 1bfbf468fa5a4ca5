//! Streams: work in order.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus};

use super::{Context, Graph, Outcome};
use crate::failure::DriverFailure;

/// A stream of one device.
#[derive(Debug)]
pub(crate) struct Stream {
    raw: CUstream,
    context: Arc<Context>,
    is_borrowed: bool,
}

// SAFETY: a stream may be used from any thread, and the driver locks its own state.
unsafe impl Send for Stream {}
// SAFETY: as for `Send`; no method changes the handle.
unsafe impl Sync for Stream {}

/// Tells the streams of a process apart. That of a destroyed stream may be another one's later.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StreamId(usize);

/// A function that the host runs when a stream reaches it. It must not call the driver.
pub(crate) type HostTask = dyn Fn() + Send + Sync;

impl Stream {
    /// A new stream, which does not synchronise with the default one.
    pub(crate) fn new(context: &Arc<Context>) -> Outcome<Self> {
        let mut raw: CUstream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        context.call("cuStreamCreate", || {
            // SAFETY: the driver writes `raw`.
            unsafe { sys::cuStreamCreate(&raw mut raw, flags) }
        })?;
        Ok(Self {
            raw,
            context: Arc::clone(context),
            is_borrowed: false,
        })
    }

    /// A stream that its owner destroys.
    ///
    /// # Safety
    /// The handle must be a stream's of this context. The stream must outlive this value and
    /// everything that is made with it.
    pub(crate) unsafe fn borrowed(context: &Arc<Context>, raw: CUstream) -> Self {
        Self {
            raw,
            context: Arc::clone(context),
            is_borrowed: true,
        }
    }

    pub(crate) fn id(&self) -> StreamId {
        StreamId(self.raw.addr())
    }

    /// The driver's handle.
    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    /// The stream's context.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits for all work in the stream.
    pub(crate) fn synchronize(&self) -> Outcome<()> {
        self.context.call("cuStreamSynchronize", || {
            // SAFETY: the stream is alive.
            unsafe { sys::cuStreamSynchronize(self.raw) }
        })
    }

    /// Whether the stream is being captured.
    pub(crate) fn is_capturing(&self) -> Outcome<bool> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        self.context.call("cuStreamIsCapturing", || {
            // SAFETY: the stream is alive, and the driver writes `status`.
            unsafe { sys::cuStreamIsCapturing(self.raw, &raw mut status) }
        })?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Begins to capture the stream's work into a graph.
    ///
    /// The mode is the relaxed one, because pinned memory is allocated and events of other streams
    /// are queried during a capture.
    pub(crate) fn begin_capture(&self) -> Outcome<()> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        self.context.call("cuStreamBeginCapture_v2", || {
            // SAFETY: the stream is alive.
            unsafe { sys::cuStreamBeginCapture_v2(self.raw, mode) }
        })
    }

    /// Ends the capture, and returns the graph.
    pub(crate) fn end_capture(&self) -> Outcome<Graph> {
        let mut graph = ptr::null_mut();
        let ended = self.context.call("cuStreamEndCapture", || {
            // SAFETY: the stream is alive, and the driver writes `graph`.
            unsafe { sys::cuStreamEndCapture(self.raw, &raw mut graph) }
        });
        // A failed capture may return a graph, too, which is then dropped. SAFETY: the capture has
        // just made the graph, and nothing else owns it.
        let graph = (!graph.is_null()).then(|| unsafe { Graph::from_raw(graph, &self.context) });
        ended?;
        graph.ok_or(DriverFailure {
            call: "cuStreamEndCapture",
            code: 999,
        })
    }

    /// Makes the host run a task when the stream reaches it.
    ///
    /// # Safety
    /// The task must live until the stream has passed it. If it is captured, it must live for as
    /// long as the graph may be launched.
    pub(crate) unsafe fn launch_host(&self, task: &Arc<Box<HostTask>>) -> Outcome<()> {
        let data = Arc::as_ptr(task).cast_mut().cast::<c_void>();
        self.context.call("cuLaunchHostFunc", || {
            // SAFETY: `run` expects a task, which the caller keeps alive.
            unsafe { sys::cuLaunchHostFunc(self.raw, Some(run), data) }
        })
    }
}

/// Runs a task on a thread of the driver, into which nothing may unwind.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the caller of `launch_host` keeps the task alive.
    let task = unsafe { &*data.cast::<Box<HostTask>>() };
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(task)) {
        // The payload's destructor may panic, too.
        std::mem::forget(payload);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_borrowed {
            // SAFETY: this value owns the handle. The driver finishes the stream's work first.
            self.context
                .free(|| unsafe { sys::cuStreamDestroy_v2(self.raw) });
        }
    }
}
