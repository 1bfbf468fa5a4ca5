//! The operands of a direct call, and shapes of operands.

use callbox::ArrayShape;
use callbox::call::Signature;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::arrays::{Array, declared_shape};

/// Takes an operand's memory.
///
/// # Errors
/// As for [`Array::operand`]. RuntimeError with the operand's name for an array that JAX deleted.
#[inline]
pub(super) fn operand(
    signature: &Signature,
    number: usize,
    array: &Bound<'_, PyAny>,
) -> PyResult<Array> {
    Array::operand(array).map_err(|error| explained(signature, number, array, error))
}

#[cold]
fn explained(
    signature: &Signature,
    number: usize,
    array: &Bound<'_, PyAny>,
    error: PyErr,
) -> PyErr {
    let is_deleted = array.call_method0("is_deleted");
    if !is_deleted.is_ok_and(|deleted| deleted.is_truthy().unwrap_or(false)) {
        return error;
    }
    let declared = signature.operands.as_deref().unwrap_or_default();
    let name = match declared.get(number).map(|buffer| buffer.name.as_str()) {
        None | Some("") => String::new(),
        Some(name) => format!(" ({name})"),
    };
    let explained = PyRuntimeError::new_err(format!(
        "{}(): operand {number}{name} is an array that JAX has deleted: a jitted function took its memory (donate_argnums), or delete() was called. Pass a copy to one of the two",
        signature.label()
    ));
    explained.set_cause(array.py(), Some(error));
    explained
}

/// Reads a sequence of shapes.
pub(super) fn shapes(objects: &Bound<'_, PyAny>) -> PyResult<Vec<ArrayShape>> {
    objects
        .try_iter()?
        .map(|object| declared_shape(&object?))
        .collect()
}
