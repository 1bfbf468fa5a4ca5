//! XLA's side: the handler that compiled programs call, by XLA's C API (xla/ffi/api/c_api.h).
//!
//! All of callbox's targets are one target of XLA, with attributes in text: a handler is not told
//! by which name it was called, and a registered name cannot be given up. XLA's own attributes lose
//! the shapes of arrays and exclude booleans. Text in MLIR's notation loses nothing, is readable in
//! HLO, and is compared as bytes.
//!
//! The handler has no state, and reports version 0.1 of XLA's API, the lowest version with all that
//! it uses: a framework refuses a handler of a newer version than its own. The calls for state
//! changed without a new version.

mod abi;
mod cuda;
mod frame;
mod handler;
mod packing;
mod slots;

use callbox::StatusCode;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

pub(crate) use self::cuda::Launches;
use crate::error::raised;
use crate::site;
pub(crate) use callbox::traced::{TARGET, TARGET_COMMAND_BUFFER};

/// The handlers, for `jax.ffi.register_ffi_target`: "cpu", "cuda" and "cuda_command_buffer".
#[pyfunction]
pub(crate) fn ffi_capsules(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let capsules = PyDict::new(py);
    capsules.set_item("cpu", capsule(py, handler::host)?)?;
    capsules.set_item("cuda", capsule(py, cuda::handler)?)?;
    let graph = capsule(py, cuda::handler_for_command_buffers)?;
    capsules.set_item("cuda_command_buffer", graph)?;
    Ok(capsules)
}

fn capsule<'py>(py: Python<'py>, handler: abi::Handler) -> PyResult<Bound<'py, PyCapsule>> {
    handler::capsule(py, handler)
}

/// The name of a status code, as in XLA.
///
/// Raises:
///     ValueError: `code` is not a status code.
#[pyfunction]
pub(crate) fn error_name(code: i64) -> PyResult<&'static str> {
    of_number(code).map(StatusCode::name)
}

/// The message of this process's last failure with this code under `on_error="status"`.
///
/// Raises:
///     ValueError: `code` is not a status code.
#[pyfunction]
pub(crate) fn last_failure<'py>(py: Python<'py>, code: i64) -> PyResult<Option<Bound<'py, PyAny>>> {
    let found = site::last_failure(of_number(code)?);
    Ok(found.map(|status| raised(py, &status).into_value(py).into_bound(py).into_any()))
}

fn of_number(code: i64) -> PyResult<StatusCode> {
    let known = u32::try_from(code).ok().and_then(StatusCode::from_number);
    known.ok_or_else(|| {
        PyValueError::new_err(format!("expected a status code from 0 to 16, found {code}"))
    })
}
