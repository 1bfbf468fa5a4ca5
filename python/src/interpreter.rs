//! Which interpreter imports the extension: one in a process, for its objects are that one's.
#![allow(unsafe_code, reason = "asks CPython for an interpreter's number")]

use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Checks that no other interpreter of the process has imported the extension.
///
/// # Errors
/// ImportError.
pub(crate) fn check(_py: Python<'_>) -> PyResult<()> {
    const NONE: i64 = -1;
    static FIRST: AtomicI64 = AtomicI64::new(NONE);
    // SAFETY: the thread is attached to an interpreter, which is what the token says, and which is there meanwhile.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    let first = FIRST.compare_exchange(NONE, number, Ordering::Relaxed, Ordering::Relaxed);
    match first {
        Err(first) if first != number => Err(PyImportError::new_err(
            "callbox can be imported by one interpreter of a process, found another that had imported it",
        )),
        _ => Ok(()),
    }
}
