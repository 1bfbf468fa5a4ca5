//! Packages by reference, which the code of `callbox fetch` gets.

use std::path::PathBuf;
use std::sync::Arc;

use callbox_cli::packages::{self, Fetched, Wanted};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::or_raise;
use crate::exit::argument;
use crate::files::Contents;
use crate::host::HostCore;
use crate::stack::on_enough;
use crate::waiting::on_a_thread;

/// Fetches a package.
pub(crate) fn fetch(
    py: Python<'_>,
    host: &Arc<HostCore>,
    reference: &str,
    wanted: Wanted,
) -> PyResult<Fetched> {
    let (reference, host) = (reference.to_owned(), Arc::clone(host));
    let fetched = on_a_thread(py, move || {
        packages::fetch(&reference, &wanted, host.trust.as_ref())
    })?;
    or_raise(py, fetched)
}

/// Checks that a lock has a file, or a tensor of a file, with these contents.
#[pyfunction]
pub(crate) fn check_locked(
    py: Python<'_>,
    #[pyo3(from_py_with = argument)] lock: PathBuf,
    #[pyo3(from_py_with = argument)] file: PathBuf,
    tensor: Option<&str>,
    contents: &Bound<'_, Contents>,
) -> PyResult<()> {
    let contents = contents.get();
    let checked = py.detach(|| {
        contents.with(|bytes| on_enough(|| packages::check_locked(&lock, &file, tensor, bytes)))
    });
    or_raise(py, checked)
}

/// Whether a text is a reference of a host, and not the path of a file. Paths may have bytes that
/// are no text.
#[pyfunction]
pub(crate) fn is_reference(text: &Bound<'_, PyString>) -> bool {
    text.to_str().is_ok_and(packages::is_reference)
}
