//! Readers and printers of XLA's notation for values: shapes, literals and attributes.
//!
//! [`attributes_from_mlir`] and [`attributes_to_mlir`] are complete in themselves. The rest of this
//! module is for readers and printers of whole programs, as `callbox-hlo` is: a [`Cursor`] reads
//! tokens and shapes, [`read_literal`] and [`read_attributes`] read values at a cursor or in a part
//! of the text, and a [`Diagnostic`] is an error with its position.

mod attribute_room;
mod attribute_text;
mod cursor;
mod diagnostic;
mod escapes;
mod print_element;
mod print_literal;
mod print_mlir;
mod read_element;
mod read_literal;
mod read_mlir;
mod read_mlir_number;
mod read_mlir_type;
mod read_shape;
mod suggestion;

pub use attribute_room::AttributeRoom;
pub(crate) use attribute_text::attributes_within;
pub use attribute_text::{attributes_from_mlir, attributes_to_mlir};
pub use cursor::{Cursor, Name};
pub use diagnostic::{Diagnostic, Parsed, Placed, bounded_message, line_number, shortened};
pub use escapes::escape_c;
pub use print_literal::{print_literal, print_literal_with_shape, print_shape};
pub use print_mlir::{MOST_LISTED, print_attributes};
pub use read_literal::{read_literal, read_literal_with_shape};
pub use read_mlir::read_attributes;
pub use suggestion::{nearest, suggestion};

use crate::values::{Blame, Result, Status, StatusCode};

/// The longest text that is read, in bytes. A program with larger constants takes them as inputs.
pub const MAX_TEXT_BYTES: usize = 1 << 28;

/// The most bytes that the arrays of one text may take whose elements are written once and
/// repeated. Prepared calls have three copies of them.
pub const MAX_SPLAT_BYTES: usize = 1 << 24;

/// Checks a text's length before it is read.
///
/// # Errors
/// RESOURCE_EXHAUSTED for a text longer than [`MAX_TEXT_BYTES`].
pub fn check_length(text: &str) -> Result<()> {
    let length = text.len();
    if length <= MAX_TEXT_BYTES {
        return Ok(());
    }
    let message = format!("expected a text of at most {MAX_TEXT_BYTES} bytes, found {length}");
    Err(Status::new(
        StatusCode::ResourceExhausted,
        Blame::Caller,
        message,
    ))
}
