//! XLA's `XlaCustomCallStatus`, through which a C function reports a failure.
#![allow(
    unsafe_code,
    reason = "C functions are passed the status and call these functions with it"
)]

use std::ffi::{c_char, c_void};

use callbox_core::untrusted_text::sanitize;
use callbox_core::values::{Blame, Result, Status, StatusCode};

/// The status of one call: success, unless the target sets a failure.
#[derive(Debug, Default)]
pub(super) struct CStatus {
    failure: Option<Vec<u8>>,
}

/// The longest message that is kept, in bytes: the same as the sandbox's default.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

impl CStatus {
    pub(super) fn into_result(self) -> Result<()> {
        match self.failure {
            None => Ok(()),
            // XLA maps failures of this convention to INTERNAL
            // (`CustomCallThunk::ExecuteOnStream`).
            Some(message) => Err(Status::new(
                StatusCode::Internal,
                Blame::Guest,
                sanitize(&message, message.len(), MAX_MESSAGE_BYTES),
            )),
        }
    }
}

/// `struct callbox_status_api` of `guests/cuda/callbox_cuda.h`, which a library is given when it is
/// loaded.
#[repr(C)]
pub(super) struct StatusApi {
    set_failure: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
    set_success: unsafe extern "C" fn(*mut c_void),
}

/// The table that every library is given.
pub(super) static STATUS_API: StatusApi = StatusApi {
    set_failure,
    set_success,
};

/// XLA's `XlaCustomCallStatusSetFailure`: keeps the first `len` bytes of the message, or those
/// before its first NUL.
unsafe extern "C" fn set_failure(status: *mut c_void, message: *const c_char, len: usize) {
    // SAFETY: a target passes the status of its own call, which `CFunction::call` keeps alive.
    let Some(status) = (unsafe { status.cast::<CStatus>().as_mut() }) else {
        return;
    };
    let mut bytes = Vec::new();
    if !message.is_null() {
        for offset in 0..len {
            // SAFETY: the target passes `len` readable bytes, or fewer that end with NUL. Reading
            // stops at the first NUL.
            match unsafe { *message.add(offset) } {
                0 => break,
                byte => bytes.push(byte.cast_unsigned()),
            }
        }
    }
    status.failure = Some(bytes);
}

/// XLA's `XlaCustomCallStatusSetSuccess`.
unsafe extern "C" fn set_success(status: *mut c_void) {
    // SAFETY: as in `set_failure`.
    if let Some(status) = unsafe { status.cast::<CStatus>().as_mut() } {
        status.failure = None;
    }
}
