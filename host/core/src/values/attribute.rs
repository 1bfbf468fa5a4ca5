//! Attributes: the named values of a call site that are fixed when the program is compiled.

use callbox_abi::AttributeKind;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Blame, Literal, NativeType, Result, Shape, Status, StatusCode};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Attribute {
    /// One element: a literal of rank 0.
    Scalar(Literal),
    /// An array with its shape.
    Array(Literal),
    /// Bytes, by convention UTF-8. They may contain NUL.
    String(Vec<u8>),
    /// Nested attributes.
    Dictionary(Dictionary),
    /// The name of a function of the program, which a target can call back.
    Function(String),
}

/// Attributes by name, in bytewise order, as XLA passes them to a target.
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

    /// The kind's name in XLA's messages: `scalar`, `array`, `string` or `dictionary`. XLA's former
    /// runtime also had `function`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Scalar(_) => AttributeKind::Scalar.name(),
            Self::Array(_) => AttributeKind::Array.name(),
            Self::String(_) => AttributeKind::String.name(),
            Self::Dictionary(_) => AttributeKind::Dictionary.name(),
            Self::Function(_) => AttributeKind::Function.name(),
        }
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::String(text.as_bytes().to_vec())
    }
}

/// The depth to which dictionaries may nest, in text and in attributes that a builder makes:
/// functions that visit attributes recurse.
const MAX_DEPTH: usize = 64;

/// Checks that attributes from a caller nest at most 64 deep.
///
/// Deeper ones are dropped level by level, because dropping them as a whole would recurse.
///
/// # Errors
/// RESOURCE_EXHAUSTED for attributes that nest deeper.
pub fn bounded(attributes: Dictionary) -> Result<Dictionary> {
    let Err(status) = check_depth(&attributes) else {
        return Ok(attributes);
    };
    let mut pending = vec![attributes];
    while let Some(dictionary) = pending.pop() {
        let inner = dictionary.into_values().filter_map(|value| match value {
            Attribute::Dictionary(inner) => Some(inner),
            _ => None,
        });
        pending.extend(inner);
    }
    Err(status)
}

/// Checks that attributes nest no deeper than attribute text may, which bounds recursion over them.
///
/// # Errors
/// RESOURCE_EXHAUSTED for attributes that nest deeper.
pub fn check_depth(attributes: &Dictionary) -> Result<()> {
    let mut level = vec![attributes];
    for _ in 0..MAX_DEPTH {
        if level.is_empty() {
            return Ok(());
        }
        let inner = level.iter().flat_map(|dictionary| dictionary.values());
        level = inner
            .filter_map(|value| match value {
                Attribute::Dictionary(inner) => Some(inner),
                _ => None,
            })
            .collect();
    }
    if level.is_empty() {
        return Ok(());
    }
    Err(Status::new(
        StatusCode::ResourceExhausted,
        Blame::Caller,
        format!("expected attributes that nest at most {MAX_DEPTH} deep, found more"),
    ))
}
