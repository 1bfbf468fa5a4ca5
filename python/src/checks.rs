//! Whether what was handed over fits what a target declares, as far as Python has exceptions of its own for it. The rest, and the last word, is the
//! library's.

use callbox::call::{ApiVersion, BufferSignature, Signature};
use callbox::{ArrayShape, ElementType};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::arrays::shape_text;
use crate::element::dtype_name;

/// Checks number, dtypes and ranks of operands.
///
/// # Errors
/// TypeError for a wrong number or dtype, ValueError for a wrong rank.
pub(crate) fn operands(signature: &Signature, found: &[ArrayShape]) -> PyResult<()> {
    let Some(declared) = &signature.operands else {
        return Ok(());
    };
    let takes_more = signature.remaining_operands;
    buffers(&signature.name, "operand", (declared, takes_more), found)
}

/// The same of results.
pub(crate) fn results(signature: &Signature, found: &[ArrayShape]) -> PyResult<()> {
    let Some(declared) = &signature.results else {
        return Ok(());
    };
    let takes_more = signature.remaining_results;
    buffers(&signature.name, "result", (declared, takes_more), found)
}

fn buffers(
    target: &str,
    what: &str,
    (declared, takes_more): (&[BufferSignature], bool),
    found: &[ArrayShape],
) -> PyResult<()> {
    let least = declared.iter().filter(|buffer| !buffer.optional).count();
    if found.len() < least || (!takes_more && found.len() > declared.len()) {
        let names: Vec<_> = declared.iter().map(|b| b.name.as_str()).collect();
        let more = if takes_more { " or more" } else { "" };
        return Err(PyTypeError::new_err(format!(
            "{target}(): expected {least}{more} {what}s ({}), found {}",
            names.join(", "),
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

/// The convention of a call: the one that was asked for, or the one that the target has and that what comes with the call belongs to.
pub(crate) fn api_version(
    signature: &Signature,
    asked: Option<&str>,
    (has_opaque, has_static_info): (bool, bool),
) -> PyResult<ApiVersion> {
    if let Some(asked) = asked {
        let version = asked.parse::<ApiVersion>();
        return version.map_err(|status| PyValueError::new_err(status.message().to_owned()));
    }
    let fits = |version: &&ApiVersion| match version {
        ApiVersion::JaxFfi => !has_opaque,
        ApiVersion::StatusReturningUnified => !has_static_info,
        _ => !has_static_info && !has_opaque,
    };
    let fitting: Vec<_> = match signature.api_versions.as_slice() {
        // Whatever comes with the call: the library says what does not go with it.
        [only] => return Ok(*only),
        several => several.iter().filter(fits).collect(),
    };
    match fitting.as_slice() {
        [one] => Ok(**one),
        _ => {
            let names: Vec<_> = signature.api_versions.iter().map(|v| v.name()).collect();
            Err(PyTypeError::new_err(format!(
                "{}(): expected api_version to say how it is called ({}), found neither that nor opaque or static_info",
                signature.name,
                names.join(" or ")
            )))
        }
    }
}
