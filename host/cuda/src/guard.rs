//! Targets whose panic becomes a status.

use std::panic::{self, AssertUnwindSafe};

use callbox_core::values::{Blame, Result, Status, StatusCode};

/// Runs a target's code, and turns its panic into a status.
///
/// # Errors
/// The code's failure; ABORTED, with the panic's text, if it panics.
pub(super) fn guarded<T>(code: impl FnOnce() -> Result<T>) -> Result<T> {
    panic::catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|payload| {
        let text = match payload.downcast_ref::<&str>() {
            Some(text) => (*text).to_owned(),
            None => payload
                .downcast_ref::<String>()
                .cloned()
                .unwrap_or_default(),
        };
        // The payload's destructor may panic, too.
        std::mem::forget(payload);
        Err(Status::new(
            StatusCode::Aborted,
            Blame::Guest,
            format!("panicked: {text}"),
        ))
    })
}
