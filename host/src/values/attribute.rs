//! Attributes: the named values of a call site that are fixed when the program is compiled.

use std::collections::BTreeMap;

use super::{Literal, NativeType, Result, Shape, Status};

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
