//! `XlaCustomCallStatus`, as C functions see it.
#![allow(
    unsafe_code,
    reason = "is handed to functions of the C calling convention"
)]

use std::ffi::{c_char, c_void};

use crate::values::{Blame, Result, Status, StatusCode};
use crate::wasm::sanitize;

/// What a C target says of its call. Success, until it says otherwise.
#[derive(Debug, Default)]
pub(super) struct CStatus {
    failure: Option<Vec<u8>>,
}

/// How much of a message is kept, in bytes: what the sandbox's policy keeps by default.
const MOST: usize = 4 << 10;

impl CStatus {
    pub(super) fn into_result(self) -> Result<()> {
        match self.failure {
            None => Ok(()),
            // XLA gives INTERNAL to what fails by this convention (`CustomCallThunk::ExecuteOnStream`).
            Some(message) => Err(Status::new(
                StatusCode::Internal,
                Blame::Guest,
                sanitize(&message, message.len(), MOST),
            )),
        }
    }
}

/// What callbox hands a library: `struct callbox_status_api` of `guests/cuda/callbox_cuda.h`.
#[repr(C)]
pub(super) struct StatusApi {
    set_failure: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
    set_success: unsafe extern "C" fn(*mut c_void),
}

/// The one that all libraries get.
pub(super) static STATUS_API: StatusApi = StatusApi {
    set_failure,
    set_success,
};

/// XLA's `XlaCustomCallStatusSetFailure`: the message's first `len` bytes, or those before its first NUL.
unsafe extern "C" fn set_failure(status: *mut c_void, message: *const c_char, len: usize) {
    // SAFETY: a target hands on the status that it was called with.
    let Some(status) = (unsafe { status.cast::<CStatus>().as_mut() }) else {
        return;
    };
    let mut bytes = Vec::new();
    if !message.is_null() {
        for offset in 0..len {
            // SAFETY: the target promises `len` bytes or a NUL before; nothing past the first NUL is read.
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
    // SAFETY: as above.
    if let Some(status) = unsafe { status.cast::<CStatus>().as_mut() } {
        status.failure = None;
    }
}
