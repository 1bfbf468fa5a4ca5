//! Restricts the extension to one interpreter of the process, which owns its objects.
#![allow(unsafe_code, reason = "asks CPython for an interpreter's number")]

use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Checks that no other interpreter of the process has imported the extension.
///
/// # Errors
/// ImportError if another interpreter has imported it.
pub(crate) fn check(_py: Python<'_>) -> PyResult<()> {
    const NONE: i64 = -1;
    static FIRST: AtomicI64 = AtomicI64::new(NONE);
    // SAFETY: the token proves that the thread is attached to an interpreter, which is alive.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    let first = FIRST.compare_exchange(NONE, number, Ordering::Relaxed, Ordering::Relaxed);
    match first {
        Err(first) if first != number => Err(PyImportError::new_err(
            "callbox can be imported by one interpreter of a process, and another one has imported it",
        )),
        _ => Ok(()),
    }
}
