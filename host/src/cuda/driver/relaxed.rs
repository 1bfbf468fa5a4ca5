//! What a thread may do while streams are captured.
#![allow(unsafe_code, reason = "calls the driver")]

use std::marker::PhantomData;

use cudarc::driver::sys::{self, CUstreamCaptureMode};

use super::{Outcome, check};

/// For as long as it is there, the calling thread may take memory and load modules whatever is being captured, and spoils nothing by it. Otherwise the
/// driver refuses that to the thread that captures, unless it captures in the relaxed mode, and in the global mode to all threads; and the capture is
/// lost. XLA captures in the thread-local mode. It is for what no graph holds: nothing that is done meanwhile goes by a stream.
#[derive(Debug)]
pub(in crate::cuda) struct Relaxed {
    before: CUstreamCaptureMode,
    /// A mode is a thread's own.
    here: PhantomData<*const ()>,
}

impl Relaxed {
    /// From here on.
    pub(in crate::cuda) fn begin() -> Outcome<Self> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        Ok(Self {
            before: exchange(mode)?,
            here: PhantomData,
        })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // The mode was the thread's own before. A driver that refuses it back has nothing else to offer.
        let _ = exchange(self.before);
    }
}

/// Sets the thread's mode, and gives the one before.
fn exchange(mut mode: CUstreamCaptureMode) -> Outcome<CUstreamCaptureMode> {
    // SAFETY: the driver was initialised, and `mode` is what is read and written.
    check("cuThreadExchangeStreamCaptureMode", unsafe {
        sys::cuThreadExchangeStreamCaptureMode(&raw mut mode)
    })?;
    Ok(mode)
}
