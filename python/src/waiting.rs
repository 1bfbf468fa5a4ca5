//! Waits for work that may take long, so that signals such as that of Ctrl-C interrupt the wait.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use callbox::Status;
use pyo3::prelude::*;

use crate::error::or_raise;

/// How often a wait looks for signals.
const INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` on a thread of its own, which has stack enough for readers of untrusted files, or on
/// this one if the process can have no more. What was interrupted ends in the background, or with
/// the process.
///
/// # Errors
/// The exception of a signal's handler.
pub(crate) fn on_a_thread<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = mpsc::channel();
    // A thread that does not start drops what it was given.
    let work = Arc::new(Mutex::new(Some(work)));
    let take = |work: &Mutex<Option<_>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let theirs = Arc::clone(&work);
    let started = thread::Builder::new().spawn(move || {
        if let Some(work) = take(&theirs) {
            // The receiver is gone if the caller was interrupted.
            let _ = sender.send(work());
        }
    });
    if started.is_err()
        && let Some(work) = take(&work)
    {
        return Ok(py.detach(work));
    }
    loop {
        let (done, back) = py.detach(move || (receiver.recv_timeout(INTERVAL), receiver));
        receiver = back;
        match done {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return or_raise(py, Err(Status::internal("the work of a thread panicked")));
            }
        }
    }
}
