//! Attributes: the named values of a call site that are fixed when the program is compiled.

use std::collections::BTreeMap;

use super::{Blame, Literal, NativeType, Result, Shape, Status, StatusCode};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Attribute {
    /// One element: a literal of rank 0.
    Scalar(Literal),
    /// An array with its shape.
    Array(Literal),
    /// Bytes, by convention UTF-8. They may contain NUL.
    String(Vec<u8>),
    /// Attributes of its own.
    Dictionary(Dictionary),
    /// A reference to a function of the program, by its name, which a target can call back.
    Function(String),
}

/// Attributes by name. The order is bytewise, as XLA hands them to a target.
pub type Dictionary = BTreeMap<String, Attribute>;

impl Attribute {
    /// A scalar of a Rust number.
    #[must_use]
    pub fn scalar<T: NativeType>(value: T) -> Self {
        Self::Scalar(Literal::scalar(value))
    }

    /// An array.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the literal is a tuple.
    pub fn array(value: Literal) -> Result<Self> {
        match value.shape() {
            Shape::Array(_) => Ok(Self::Array(value)),
            Shape::Tuple(_) => Err(Status::invalid_argument(format!(
                "expected an array as an attribute, found {}",
                value.shape()
            ))),
        }
    }

    /// The kind's name in XLA's messages: `scalar`, `array`, `string` or `dictionary`; and `function`, which XLA's runtime had.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Scalar(_) => "scalar",
            Self::Array(_) => "array",
            Self::String(_) => "string",
            Self::Dictionary(_) => "dictionary",
            Self::Function(_) => "function",
        }
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::String(text.as_bytes().to_vec())
    }
}

/// How deep dictionaries may nest: as deep as in text.
const MAX_DEPTH: usize = 64;

/// Takes attributes from a caller, unless they nest so deep that whoever goes through them later could run out of stack. Then they are
/// taken apart level by level: to drop them as a whole would take as much.
///
/// # Errors
/// RESOURCE_EXHAUSTED.
pub(crate) fn bounded(attributes: Dictionary) -> Result<Dictionary> {
    if !nests_deeper(&attributes, MAX_DEPTH) {
        return Ok(attributes);
    }
    let mut pending = vec![attributes];
    while let Some(dictionary) = pending.pop() {
        let inner = dictionary.into_values().filter_map(|value| match value {
            Attribute::Dictionary(inner) => Some(inner),
            _ => None,
        });
        pending.extend(inner);
    }
    Err(Status::new(
        StatusCode::ResourceExhausted,
        Blame::Caller,
        format!("expected attributes that nest at most {MAX_DEPTH} deep, found more"),
    ))
}

fn nests_deeper(attributes: &Dictionary, most: usize) -> bool {
    let mut level = vec![attributes];
    for _ in 0..most {
        let inner = level.iter().flat_map(|dictionary| dictionary.values());
        level = inner
            .filter_map(|value| match value {
                Attribute::Dictionary(inner) => Some(inner),
                _ => None,
            })
            .collect();
    }
    !level.is_empty()
}
