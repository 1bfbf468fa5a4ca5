//! Streams: work in order.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus};

use super::{Context, Graph, Outcome, check};
use crate::cuda::failure::DriverFailure;

/// Work in order, on one device.
#[derive(Debug)]
pub(in crate::cuda) struct Stream {
    raw: CUstream,
    context: Arc<Context>,
    is_borrowed: bool,
}

// SAFETY: a stream may be used from any thread, and the driver locks what it shares.
unsafe impl Send for Stream {}
// SAFETY: as above; no method changes the handle.
unsafe impl Sync for Stream {}

/// What the host does when a stream comes to it. It must not call the driver.
pub(in crate::cuda) type HostTask = dyn Fn() + Send + Sync;

impl Stream {
    /// A stream of its own, which does not wait for the default one.
    pub(in crate::cuda) fn new(context: &Arc<Context>) -> Outcome<Self> {
        context.bind()?;
        let mut raw: CUstream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current, and `raw` is the handle that is written.
        check("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&raw mut raw, flags)
        })?;
        Ok(Self {
            raw,
            context: Arc::clone(context),
            is_borrowed: false,
        })
    }

    /// Somebody else's stream, which is not destroyed here.
    ///
    /// # Safety
    /// It must be a stream of this context, and stay one for as long as this value or anything made with it is there.
    pub(in crate::cuda) unsafe fn borrowed(context: &Arc<Context>, raw: CUstream) -> Self {
        Self {
            raw,
            context: Arc::clone(context),
            is_borrowed: true,
        }
    }

    /// The driver's handle.
    pub(in crate::cuda) fn raw(&self) -> CUstream {
        self.raw
    }

    /// The context that it is of.
    pub(in crate::cuda) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits for all that is in it.
    pub(in crate::cuda) fn synchronize(&self) -> Outcome<()> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.raw)
        })
    }

    /// Whether what comes into it is captured.
    pub(in crate::cuda) fn is_capturing(&self) -> Outcome<bool> {
        self.context.bind()?;
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive, and `status` is what is written.
        check("cuStreamIsCapturing", unsafe {
            sys::cuStreamIsCapturing(self.raw, &raw mut status)
        })?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// From here on, what comes into it becomes a graph. Neither this thread nor others are kept from what has nothing to do with it: pinned memory is
    /// taken meanwhile, and events of other streams are looked at.
    pub(in crate::cuda) fn begin_capture(&self) -> Outcome<()> {
        self.context.bind()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive.
        check("cuStreamBeginCapture_v2", unsafe {
            sys::cuStreamBeginCapture_v2(self.raw, mode)
        })
    }

    /// The graph of what came in since.
    pub(in crate::cuda) fn end_capture(&self) -> Outcome<Graph> {
        self.context.bind()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is alive, and `graph` is the handle that is written.
        let ended = check("cuStreamEndCapture", unsafe {
            sys::cuStreamEndCapture(self.raw, &raw mut graph)
        });
        let graph = match graph.is_null() {
            true => None,
            // SAFETY: the capture has just made it, and nobody else has it. One that comes with a failure is dropped.
            false => Some(unsafe { Graph::from_raw(graph, &self.context) }),
        };
        ended?;
        graph.ok_or(DriverFailure {
            call: "cuStreamEndCapture",
            code: 999,
        })
    }

    /// Has the host do something when the stream comes to it.
    ///
    /// # Safety
    /// The task must be kept until the stream has passed it, and if it is captured, until nothing launches the graph any more.
    pub(in crate::cuda) unsafe fn launch_host(&self, task: &Arc<Box<HostTask>>) -> Outcome<()> {
        self.context.bind()?;
        let data = Arc::as_ptr(task).cast_mut().cast::<c_void>();
        // SAFETY: `run` takes what `data` points to, which the caller keeps.
        check("cuLaunchHostFunc", unsafe {
            sys::cuLaunchHostFunc(self.raw, Some(run), data)
        })
    }
}

/// Runs a task, on a thread of the driver's. Nothing unwinds into it.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: `launch_host`'s caller keeps the task alive.
    let task = unsafe { &*data.cast::<Box<HostTask>>() };
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(task)) {
        // Dropping it may panic once more.
        std::mem::forget(payload);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_borrowed {
            self.context.bind_anyway();
            // SAFETY: nobody has the handle any longer. The driver does what is still in it first.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}
