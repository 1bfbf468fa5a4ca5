//! The capture mode of a thread.
#![allow(unsafe_code, reason = "calls the driver")]

use std::marker::PhantomData;

use cudarc::driver::sys::{self, CUstreamCaptureMode};

use super::{Outcome, check};

/// Puts the calling thread into the relaxed capture mode for the life of this value.
///
/// The thread may then allocate memory and load modules while streams are captured. In other modes
/// the driver refuses such calls and invalidates the capture: in the thread-local mode, which XLA
/// captures in, for the thread that captures, and in the global mode for all threads. Nothing that
/// is done in the relaxed mode may depend on a stream.
#[derive(Debug)]
pub(crate) struct Relaxed {
    before: CUstreamCaptureMode,
    /// The mode belongs to this thread.
    not_send: PhantomData<*const ()>,
}

impl Relaxed {
    /// Enters the relaxed mode.
    pub(crate) fn begin() -> Outcome<Self> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        Ok(Self {
            before: exchange(mode)?,
            not_send: PhantomData,
        })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // Errors are discarded: the driver accepted this mode before.
        let _ = exchange(self.before);
    }
}

/// Sets the thread's mode, and returns the previous one.
fn exchange(mut mode: CUstreamCaptureMode) -> Outcome<CUstreamCaptureMode> {
    // SAFETY: the driver is initialised; it reads and writes `mode`.
    check("cuThreadExchangeStreamCaptureMode", unsafe {
        sys::cuThreadExchangeStreamCaptureMode(&raw mut mode)
    })?;
    Ok(mode)
}
