//! Structs as attributes: what `#[derive(AttributeStruct)]` decodes a dictionary with.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{AnyAttribute, AttributeValue, Dictionary};
use crate::status::wrong_count;

/// The attributes of a dictionary that becomes a struct. What is wrong with any of them is gathered, as in XLA's struct decoding
/// (`DecodeDictionaryAttr` in xla/ffi/api/api.h).
#[derive(Debug)]
pub struct Fields<'a> {
    dictionary: Dictionary<'a>,
    diagnostics: Vec<String>,
}

impl<'a> Fields<'a> {
    /// The attributes of the dictionary, if there are as many as the struct has fields, of which `required` may not be left out.
    ///
    /// # Errors
    /// XLA's words for an attribute of another kind or a wrong number.
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
        // With all required, and as many as there are fields, one that is unknown is in the place of one that is missing.
        if required < names.len()
            && let Some(unknown) = dictionary.names().find(|name| !names.contains(name))
        {
            return Err(format!(
                "Unknown attribute: expected one of {} but got {unknown}",
                names.join(", ")
            ));
        }
        Ok(Self {
            dictionary,
            diagnostics: Vec::new(),
        })
    }

    /// The value of the field of this name, or `None` and a note of what is wrong.
    pub fn get<A: AttributeValue<'a>>(&mut self, name: &str) -> Option<A> {
        let decoded = match self.dictionary.find(name) {
            Some(attribute) => A::decode(attribute),
            None => A::absent().ok_or_else(|| format!("Unexpected attribute: {name}")),
        };
        decoded
            .map_err(|diagnostic| self.diagnostics.push(diagnostic))
            .ok()
    }

    /// All that was noted.
    #[must_use]
    pub fn diagnostics(self) -> String {
        self.diagnostics.join("\n")
    }
}

#[cold]
fn wrong_number(least: usize, most: usize, found: usize) -> String {
    let expected = match least == most {
        true => most.to_string(),
        false => format!("{least} to {most}"),
    };
    wrong_count("attributes", &format!("{expected} attributes"), found)
}
