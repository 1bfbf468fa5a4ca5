//! Statuses as Python's exceptions.

use callbox::{Blame, Status, StatusCode};
use pyo3::exceptions::PyFileNotFoundError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

/// A class of `callbox._errors`: one of the stable ABI of 3.11 can't be a subclass of RuntimeError.
pub(crate) fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("callbox._errors").map(Bound::unbind))?;
    Ok(module.bind(py).getattr(name)?.cast_into::<PyType>()?)
}

/// The exception that a status is: `InvalidArgumentError`, which is a ValueError, for what the caller handed over, and `CallError` for all
/// else.
pub(crate) fn raised(py: Python<'_>, status: &Status) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let is_callers =
            status.code() == StatusCode::InvalidArgument && status.blame() == Blame::Caller;
        let class = class(
            py,
            match is_callers {
                true => "InvalidArgumentError",
                false => "CallError",
            },
        )?;
        let details = PyDict::new(py);
        details.set_item("recoverable", status.recoverable())?;
        details.set_item("blame", status.blame().name())?;
        if let Some(backtrace) = status.backtrace() {
            details.set_item("backtrace", backtrace.frames())?;
        }
        let arguments = (status.code().name(), status.message());
        Ok(PyErr::from_value(class.call(arguments, Some(&details))?))
    };
    made().unwrap_or_else(|error| error)
}

/// A result with its status raised.
pub(crate) fn or_raise<T>(py: Python<'_>, result: callbox::Result<T>) -> PyResult<T> {
    result.map_err(|status| raised(py, &status))
}

/// What reading a file failed with, as Python says it.
pub(crate) fn of_file(path: &std::path::Path, error: &std::io::Error) -> PyErr {
    let message = format!("expected to read {}: {error}", path.display());
    match error.kind() {
        std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
        _ => pyo3::exceptions::PyOSError::new_err(message),
    }
}
