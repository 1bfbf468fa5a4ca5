//! Checks of operands and results that fail with Python's own exceptions.
//!
//! The library checks the rest.

use callbox::call::{ApiVersion, BufferSignature, Signature};
use callbox::untrusted_text::label;
use callbox::{ArrayShape, ElementType};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::arrays::shape_text;
use crate::element::dtype_name;
use crate::listing::listed;

/// Checks the number, the dtypes and the ranks of operands.
pub(crate) fn operands(signature: &Signature, found: &[ArrayShape]) -> PyResult<()> {
    let Some(declared) = &signature.operands else {
        return Ok(());
    };
    let declared = Declared {
        buffers: declared,
        takes_more: signature.remaining_operands,
    };
    buffers(&signature.label(), "operand", &declared, found)
}

/// Checks the number, the dtypes and the ranks of results.
pub(crate) fn results(signature: &Signature, found: &[ArrayShape]) -> PyResult<()> {
    let Some(declared) = &signature.results else {
        return Ok(());
    };
    let declared = Declared {
        buffers: declared,
        takes_more: signature.remaining_results,
    };
    buffers(&signature.label(), "result", &declared, found)
}

/// Checks the results against those that the operands determine, if they determine any.
pub(crate) fn inferred(
    signature: &Signature,
    operands: &[ArrayShape],
    found: &[ArrayShape],
) -> PyResult<()> {
    let Ok(expected) = signature.infer_results(operands) else {
        return Ok(());
    };
    let declared = signature.results.iter().flatten();
    for (number, ((expected, found), declared)) in
        expected.iter().zip(found).zip(declared).enumerate()
    {
        let wrong = |expected: String, found: String| {
            format!(
                "{}(): result {number} ({}): expected {expected} for these operands, found {found}",
                signature.label(),
                label(&declared.name)
            )
        };
        if expected.element_type() != found.element_type() {
            let name = |shape: &ArrayShape| format!("dtype {}", dtypes(&[shape.element_type()]));
            return Err(PyTypeError::new_err(wrong(name(expected), name(found))));
        }
        if expected.dimensions() != found.dimensions() {
            let text = |shape: &ArrayShape| format!("shape {}", shape_text(shape.dimensions()));
            return Err(PyValueError::new_err(wrong(text(expected), text(found))));
        }
    }
    Ok(())
}

/// The declared operands or results, and whether any number of others may follow.
struct Declared<'a> {
    buffers: &'a [BufferSignature],
    takes_more: bool,
}

fn buffers(
    target: &str,
    what: &str,
    declared: &Declared<'_>,
    found: &[ArrayShape],
) -> PyResult<()> {
    let takes_more = declared.takes_more;
    let declared = declared.buffers;
    let least = declared.iter().filter(|buffer| !buffer.optional).count();
    if found.len() < least || (!takes_more && found.len() > declared.len()) {
        let names = listed(declared.iter().map(|buffer| buffer.name.as_str()));
        let more = if takes_more { " or more" } else { "" };
        return Err(PyTypeError::new_err(format!(
            "{target}(): expected {least}{more} {what}s ({names}), found {}",
            found.len()
        )));
    }
    for (number, (declared, found)) in declared.iter().zip(found).enumerate() {
        let name = &declared.name;
        let types = &declared.element_types;
        if !types.is_empty() && !types.contains(&found.element_type()) {
            return Err(PyTypeError::new_err(format!(
                "{target}(): {what} {number} ({name}): expected dtype {}, found {}",
                dtypes(types),
                dtypes(&[found.element_type()])
            )));
        }
        if let Some(rank) = declared.rank.filter(|rank| *rank != found.rank()) {
            return Err(PyValueError::new_err(format!(
                "{target}(): {what} {number} ({name}): expected an array of rank {rank}, found shape {}",
                shape_text(found.dimensions())
            )));
        }
    }
    Ok(())
}

fn dtypes(types: &[ElementType]) -> String {
    let names: Vec<_> = types.iter().filter_map(|t| dtype_name(*t)).collect();
    names.join(" or ")
}

/// Chooses the convention of a call: the requested one, or the only one that fits its arguments.
///
/// Bytes do not tell an undeclared function of the JAX FFI proposal from one that takes opaque
/// bytes: both functions have the same type, and each would misread the other's arguments.
pub(crate) fn api_version(
    signature: &Signature,
    asked: Option<&str>,
    has_opaque: bool,
    has_static_info: bool,
) -> PyResult<ApiVersion> {
    if let Some(asked) = asked {
        let version = asked.parse::<ApiVersion>();
        return version.map_err(|error| PyValueError::new_err(error.to_string()));
    }
    let fits = |version: &&ApiVersion| match version {
        ApiVersion::JaxFfi => true,
        ApiVersion::StatusReturningUnified => !has_static_info,
        _ => !has_static_info && !has_opaque,
    };
    let fitting: Vec<_> = match signature.api_versions.as_slice() {
        // The library reports arguments that do not belong to the only convention.
        [only] => return Ok(*only),
        several => several.iter().filter(fits).collect(),
    };
    match fitting.as_slice() {
        [one] => Ok(**one),
        _ => {
            let names: Vec<_> = signature.api_versions.iter().map(|v| v.name()).collect();
            Err(PyTypeError::new_err(format!(
                "{}(): pass api_version to choose one of its conventions ({})",
                signature.label(),
                names.join(" or ")
            )))
        }
    }
}
