//! Events: marks in a stream.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUevent, CUevent_flags};

use super::{Context, Outcome, Stream, check};

/// A mark in a stream, without a time.
#[derive(Debug)]
pub(in crate::cuda) struct Event {
    raw: CUevent,
    context: Arc<Context>,
}

// SAFETY: an event may be used from any thread, and the driver locks what it shares.
unsafe impl Send for Event {}
// SAFETY: as above; no method changes the handle.
unsafe impl Sync for Event {}

impl Event {
    /// An event that nothing has recorded.
    pub(in crate::cuda) fn new(context: &Arc<Context>) -> Outcome<Self> {
        context.bind()?;
        let mut raw: CUevent = ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current, and `raw` is the handle that is written.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&raw mut raw, flags)
        })?;
        Ok(Self {
            raw,
            context: Arc::clone(context),
        })
    }

    /// Puts the mark behind all that is in the stream.
    pub(in crate::cuda) fn record(&self, stream: &Stream) -> Outcome<()> {
        self.context.bind()?;
        // SAFETY: event and stream are alive, and of one context.
        check("cuEventRecord", unsafe {
            sys::cuEventRecord(self.raw, stream.raw())
        })
    }

    /// Has a stream wait for the mark, before what comes into it from here on.
    pub(in crate::cuda) fn hold_back(&self, stream: &Stream) -> Outcome<()> {
        self.context.bind()?;
        // SAFETY: event and stream are alive.
        check("cuStreamWaitEvent", unsafe {
            sys::cuStreamWaitEvent(stream.raw(), self.raw, 0)
        })
    }

    /// Whether all before the mark is done.
    pub(in crate::cuda) fn is_done(&self) -> Outcome<bool> {
        const NOT_READY: u32 = 600;
        self.context.bind()?;
        // SAFETY: the event is alive.
        match check("cuEventQuery", unsafe { sys::cuEventQuery(self.raw) }) {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.context.bind_anyway();
        // SAFETY: nobody has the handle any longer. The driver keeps an event that is still to be passed.
        let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
    }
}
