//! Attributes as text of their own.

use super::print_mlir::print_attributes;
use super::read_mlir::read_attributes;
use super::{AttributeRoom, check_length};
use crate::float_mode::FloatMode;
use crate::values::{Dictionary, Result};

/// Reads attributes in MLIR's notation: `{n = 4.0 : f32, name = "x"}`, as in the `backend_config`
/// of a typed-FFI custom call. An empty text is an empty dictionary.
///
/// # Errors
/// INVALID_ARGUMENT if the text is no such dictionary or has attributes that callbox does not
/// support; RESOURCE_EXHAUSTED for a text longer than
/// [`MAX_TEXT_BYTES`](crate::text::MAX_TEXT_BYTES), for dictionaries nested more than 64 deep, for
/// more than 262,144 attributes, of which each dictionary within another counts as eight more, and
/// for arrays of one repeated value past [`MAX_SPLAT_BYTES`](crate::text::MAX_SPLAT_BYTES). The
/// message shows the position.
///
/// ```
/// # fn main() -> callbox_core::Result<()> {
/// use callbox_core::{Attribute, attributes_from_mlir, attributes_to_mlir};
///
/// let attributes = attributes_from_mlir("{n = 4.0 : f32}")?;
/// assert_eq!(attributes["n"], Attribute::scalar(4.0_f32));
/// assert_eq!(attributes_to_mlir(&attributes), "{n = 4.0e0 : f32}");
/// # Ok(())
/// # }
/// ```
pub fn attributes_from_mlir(text: &str) -> Result<Dictionary> {
    attributes_within(text, &mut AttributeRoom::of_a_text())
}

/// [`attributes_from_mlir`] for one of several texts, which share `room`.
///
/// # Errors
/// As for [`attributes_from_mlir`].
pub(crate) fn attributes_within(text: &str, room: &mut AttributeRoom) -> Result<Dictionary> {
    check_length(text)?;
    // XLA calls on threads that flush small numbers.
    let _mode = FloatMode::WASM.set();
    read_attributes(text, room).map_err(|diagnostic| diagnostic.into_status(text))
}

/// Prints attributes in MLIR's notation. [`attributes_from_mlir`] reads them back bit for bit,
/// except for the layouts of arrays, which have no meaning in an attribute.
#[must_use]
pub fn attributes_to_mlir(attributes: &Dictionary) -> String {
    let mut text = String::new();
    print_attributes(&str::to_owned, attributes, &mut text);
    text
}

#[cfg(test)]
mod tests;
