//! What stands between callbox and code that panics: locks that outlive it, and statuses in its place.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::values::{Blame, Result, Status, StatusCode};

/// Locks. What is behind the locks of this backend is whole between any two statements, so that a panic of somebody's leaves nothing half done.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a target's code. That which panics costs a status.
///
/// # Errors
/// What the code reports; ABORTED, with the panic's text, if it panics.
pub(super) fn guarded<T>(code: impl FnOnce() -> Result<T>) -> Result<T> {
    panic::catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        // Dropping it may panic once more.
        std::mem::forget(payload);
        Err(Status::new(
            StatusCode::Aborted,
            Blame::Guest,
            format!("panicked: {}", text.unwrap_or_default()),
        ))
    })
}
