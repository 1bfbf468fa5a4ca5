//! What the attributes of a text may take.

use super::MAX_SPLAT_BYTES;
use super::diagnostic::{Diagnostic, Parsed};
use crate::values::ArrayShape;

/// The most attributes of a text, those in dictionaries included: each takes a hundred times the
/// memory of its text.
const MAX_ATTRIBUTES: usize = 1 << 18;

/// The attributes that a dictionary within another counts as: each takes memory for eleven.
const DICTIONARY: usize = 8;

/// The bytes of a program for each of its attributes. Those of printed programs have more.
const BYTES_PER_ATTRIBUTE: usize = 8;

/// What the attributes of a text, or of all texts of a program together, may still take.
#[derive(Debug)]
pub struct AttributeRoom {
    most: usize,
    attributes: usize,
    /// The bytes of arrays whose elements are written once and repeated (splats).
    pub(super) splat_bytes: usize,
}

impl AttributeRoom {
    /// For one text: 262,144 attributes, of which each dictionary within another counts as eight
    /// more, and arrays of one repeated value of [`MAX_SPLAT_BYTES`] in all.
    #[must_use]
    pub fn of_a_text() -> Self {
        Self::of_a_program(0)
    }

    /// For all texts of a program of this length in bytes. A long one may have more attributes than
    /// one text: one for each 8 bytes.
    #[must_use]
    pub fn of_a_program(bytes: usize) -> Self {
        let most = MAX_ATTRIBUTES.max(bytes / BYTES_PER_ATTRIBUTE);
        Self {
            most,
            attributes: most,
            splat_bytes: MAX_SPLAT_BYTES,
        }
    }

    /// Counts an attribute.
    ///
    /// # Errors
    /// A message, if there is no room.
    pub fn take_attribute(&mut self) -> Result<(), String> {
        self.take(1)
    }

    /// Counts a dictionary within another.
    ///
    /// # Errors
    /// A message, if there is no room.
    pub fn take_dictionary(&mut self) -> Result<(), String> {
        self.take(DICTIONARY)
    }

    fn take(&mut self, count: usize) -> Result<(), String> {
        self.attributes = self.attributes.checked_sub(count).ok_or_else(|| {
            format!(
                "expected at most {} attributes, of which a dictionary counts as {DICTIONARY} \
                 more, found more",
                self.most
            )
        })?;
        Ok(())
    }

    /// Counts the bytes of a splat.
    pub(super) fn take_splat(&mut self, shape: &ArrayShape, at: usize) -> Parsed<()> {
        let left = self.splat_bytes.checked_sub(shape.byte_size());
        self.splat_bytes = left.ok_or_else(|| {
            let message =
                format!("expected arrays that fit into memory, found {shape} of one value");
            Diagnostic::exhausted(at, message)
        })?;
        Ok(())
    }
}
