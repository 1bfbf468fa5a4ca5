//! Attributes as text of their own.

use super::MAX_TEXT_BYTES;
use super::mlir_attributes;
use super::print::mlir;
use super::resolve::MAX_SPLAT_BYTES;
use crate::values::{Blame, Dictionary, Result, Status, StatusCode};

/// Reads attributes in MLIR's notation, as they stand in the `backend_config` of a custom call of typed FFI: `{n = 4.0 : f32, name = "x"}`. No text at
/// all is an empty dictionary.
///
/// # Errors
/// INVALID_ARGUMENT if the text is no such dictionary, or has kinds of attributes that callbox does not; RESOURCE_EXHAUSTED for a text longer than
/// [`MAX_TEXT_BYTES`], for dictionaries that nest more than 64 deep, and for arrays of one value that are too large. The message shows the place.
///
/// ```
/// # fn main() -> callbox::Result<()> {
/// use callbox::program::{attributes_from_mlir, attributes_to_mlir};
///
/// let attributes = attributes_from_mlir("{n = 4.0 : f32}")?;
/// assert_eq!(attributes["n"], callbox::Attribute::scalar(4.0_f32));
/// assert_eq!(attributes_to_mlir(&attributes), "{n = 4.0e0 : f32}");
/// # Ok(())
/// # }
/// ```
pub fn attributes_from_mlir(text: &str) -> Result<Dictionary> {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!(
            "expected attributes of at most {MAX_TEXT_BYTES} bytes, found {}",
            text.len()
        );
        return Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            message,
        ));
    }
    let read = mlir_attributes::attributes(text, &mut { MAX_SPLAT_BYTES });
    read.map_err(|diagnostic| diagnostic.into_status(text))
}

/// Attributes in MLIR's notation: what [`attributes_from_mlir`] reads back as the same attributes, bit for bit. Of arrays it is the elements and dimensions
/// that are written, and no layout, which says nothing of an attribute.
#[must_use]
pub fn attributes_to_mlir(attributes: &Dictionary) -> String {
    mlir::attributes(attributes)
}

#[cfg(test)]
mod tests;
