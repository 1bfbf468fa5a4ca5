//! Decoding of a dictionary into a struct, for `#[derive(AttributeStruct)]`.

use alloc::string::String;

use super::{AnyAttribute, AttributeValue, Dictionary, unknown_name};
use crate::status::{range, wrong_count};
use crate::text::{append_line, text};

/// The attributes of a dictionary that becomes a struct. Mismatches are collected and reported
/// together, as in XLA's `DecodeDictionaryAttr` (xla/ffi/api/api.h).
#[derive(Debug)]
pub struct Fields<'a> {
    dictionary: Dictionary<'a>,
    /// The noted mismatches, each on its own line.
    diagnostics: String,
}

impl<'a> Fields<'a> {
    /// Returns the attributes of the dictionary. The struct has fields `names`, of which `required`
    /// may not be omitted.
    ///
    /// # Errors
    /// XLA's message for another kind of attribute or a wrong number of attributes.
    pub fn of(
        attribute: AnyAttribute<'a>,
        names: &[&str],
        required: usize,
    ) -> Result<Self, String> {
        let dictionary = Dictionary::decode(attribute)?;
        let count = dictionary.len();
        if count < required || count > names.len() {
            return Err(wrong_number(required, names.len(), count));
        }
        // If all fields are required and the numbers match, an unknown name means a missing one,
        // which `get` reports.
        if required < names.len()
            && let Some(unknown) = dictionary.names().find(|name| !names.contains(name))
        {
            return Err(unknown_name(names.iter().copied(), unknown));
        }
        Ok(Self {
            dictionary,
            diagnostics: String::new(),
        })
    }

    /// Decodes the field with this name. Notes a mismatch and returns `None`.
    pub fn get<A: AttributeValue<'a>>(&mut self, name: &str) -> Option<A> {
        let decoded = match self.dictionary.find(name) {
            Some(attribute) => A::decode(attribute),
            None => A::absent().ok_or_else(|| text!["Unexpected attribute: ", name]),
        };
        decoded
            .map_err(|diagnostic| append_line(&mut self.diagnostics, &diagnostic))
            .ok()
    }

    /// Returns the message for all noted mismatches.
    #[must_use]
    pub fn diagnostics(self) -> String {
        self.diagnostics
    }
}

#[cold]
fn wrong_number(least: usize, most: usize, found: usize) -> String {
    let expected = text![&range(least, most), " attributes"];
    wrong_count("attributes", &expected, found)
}
