//! XLA's side: the handler that compiled programs call, by XLA's C API for custom calls (xla/ffi/api/c_api.h).

mod abi;
mod cuda;
mod frame;
mod handler;
mod slots;

pub(crate) use self::frame::is_packed;
use callbox::StatusCode;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

pub(crate) use self::cuda::Launches;
use crate::site;

/// The one target that programs call: its attributes say the rest. The number goes up if these change their meaning.
pub(crate) const TARGET: &str = "callbox.v1";

/// The same for targets whose kernels can become part of a command buffer: XLA knows traits by target.
pub(crate) const TARGET_COMMAND_BUFFER: &str = "callbox.v1.command_buffer";

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

/// The name of the status code of this number, as XLA has it.
///
/// Raises:
///     ValueError: No code has this number.
#[pyfunction]
pub(crate) fn error_name(code: i64) -> PyResult<&'static str> {
    of_number(code).map(StatusCode::name)
}

/// The message of the last failure with this code that was a result (`on_error="status"`), in this process.
///
/// Raises:
///     ValueError: No code has this number.
#[pyfunction]
pub(crate) fn last_failure(code: i64) -> PyResult<Option<String>> {
    of_number(code).map(site::last_failure)
}

fn of_number(code: i64) -> PyResult<StatusCode> {
    let known = u32::try_from(code).ok().and_then(StatusCode::from_number);
    known.ok_or_else(|| {
        PyValueError::new_err(format!("expected a status code from 0 to 16, found {code}"))
    })
}
