//! Events: marks in a stream.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUevent, CUevent_flags};

use super::{Context, Outcome, Stream};

/// A mark in a stream, without a time.
#[derive(Debug)]
pub(crate) struct Event {
    raw: CUevent,
    context: Arc<Context>,
}

// SAFETY: an event may be used from any thread, and the driver locks its own state.
unsafe impl Send for Event {}
// SAFETY: as for `Send`; no method changes the handle.
unsafe impl Sync for Event {}

impl Event {
    /// An event that has not been recorded.
    pub(crate) fn new(context: &Arc<Context>) -> Outcome<Self> {
        let mut raw: CUevent = ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        context.call("cuEventCreate", || {
            // SAFETY: the driver writes `raw`.
            unsafe { sys::cuEventCreate(&raw mut raw, flags) }
        })?;
        Ok(Self {
            raw,
            context: Arc::clone(context),
        })
    }

    /// Puts the mark behind all work that is in the stream.
    pub(crate) fn record(&self, stream: &Stream) -> Outcome<()> {
        self.context.call("cuEventRecord", || {
            // SAFETY: the event and the stream are alive, and belong to one context.
            unsafe { sys::cuEventRecord(self.raw, stream.raw()) }
        })
    }

    /// Makes later work of a stream wait for the mark.
    pub(crate) fn hold_back(&self, stream: &Stream) -> Outcome<()> {
        self.context.call("cuStreamWaitEvent", || {
            // SAFETY: the event and the stream are alive.
            unsafe { sys::cuStreamWaitEvent(stream.raw(), self.raw, 0) }
        })
    }

    /// Whether all work before the mark is done.
    pub(crate) fn is_done(&self) -> Outcome<bool> {
        const NOT_READY: u32 = 600;
        let queried = self.context.call("cuEventQuery", || {
            // SAFETY: the event is alive.
            unsafe { sys::cuEventQuery(self.raw) }
        });
        match queried {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle. The driver keeps an event that a stream still waits
        // for.
        self.context
            .free(|| unsafe { sys::cuEventDestroy_v2(self.raw) });
    }
}
