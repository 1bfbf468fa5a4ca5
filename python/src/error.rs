//! Converts statuses to Python's exceptions.

use callbox::{Blame, Status, StatusCode};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::exit::Inside;
use crate::once::Once;

/// A class of `callbox._errors`, which is in Python because the stable ABI of 3.11 cannot derive
/// from RuntimeError.
pub(crate) fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    static MODULE: Once<PyModule> = Once::new();
    let module = MODULE.get_or_make(py, || py.import("callbox._errors").map(Bound::unbind))?;
    Ok(module.bind(py).getattr(name)?.cast_into::<PyType>()?)
}

/// Converts a status to an exception.
///
/// `InvalidArgumentError`, which is a ValueError, for an invalid argument of the caller; otherwise
/// `CallError`.
pub(crate) fn raised(py: Python<'_>, status: &Status) -> PyErr {
    // The exception is made by Python code.
    let _inside = Inside::enter(py);
    let made = || -> PyResult<PyErr> {
        let is_callers =
            status.code() == StatusCode::InvalidArgument && status.blame() == Blame::Caller;
        let class = class(
            py,
            if is_callers {
                "InvalidArgumentError"
            } else {
                "CallError"
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

/// Raises the status of a failed result.
pub(crate) fn or_raise<T>(py: Python<'_>, result: callbox::Result<T>) -> PyResult<T> {
    result.map_err(|status| raised(py, &status))
}
