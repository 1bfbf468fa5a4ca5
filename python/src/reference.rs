//! Packages by reference, which the code of `callbox fetch` gets.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use callbox::Status;
use callbox_cli::packages::{self, Fetched, Wanted};
use pyo3::prelude::*;

use crate::error::or_raise;
use crate::host::HostCore;

/// How often a download looks for signals, such as that of Ctrl-C.
const INTERVAL: Duration = Duration::from_millis(50);

/// Fetches a package on a thread of its own, so that signals interrupt the wait. An interrupted
/// download ends in the background, or with the process.
pub(crate) fn fetch(
    py: Python<'_>,
    host: &Arc<HostCore>,
    reference: &str,
    wanted: Wanted,
) -> PyResult<Fetched> {
    let (sender, mut receiver) = mpsc::channel();
    let (reference, host) = (reference.to_owned(), Arc::clone(host));
    let worker = thread::Builder::new().spawn(move || {
        // The receiver is gone if the caller was interrupted.
        let _ = sender.send(packages::fetch(&reference, &wanted, host.trust.as_ref()));
    });
    let started = worker.map_err(|error| {
        Status::internal(format!("cannot start a thread for a download: {error}"))
    });
    or_raise(py, started)?;
    loop {
        let (fetched, back) = py.detach(move || (receiver.recv_timeout(INTERVAL), receiver));
        receiver = back;
        match fetched {
            Ok(fetched) => return or_raise(py, fetched),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return or_raise(py, Err(Status::internal("the download panicked")));
            }
        }
    }
}

/// Checks that a lock has a file, or a tensor of a file, with these contents.
#[pyfunction]
pub(crate) fn check_locked(
    py: Python<'_>,
    lock: PathBuf,
    file: PathBuf,
    tensor: Option<&str>,
    contents: &[u8],
) -> PyResult<()> {
    let checked = packages::check_locked(&lock, &file, tensor, contents);
    or_raise(py, checked)
}

/// Whether a text is a reference of a host, and not the path of a file.
#[pyfunction]
pub(crate) fn is_reference(text: &str) -> bool {
    packages::is_reference(text)
}
