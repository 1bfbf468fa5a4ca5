//! Values of expressions, and their encoding as parameters of kernels.

use std::fmt;

use half::{bf16, f16};

use super::Kind;
use callbox_core::values::{ElementType, NativeType};

/// The element types that a parameter can have.
pub(crate) const PARAMETER_TYPES: [ElementType; 13] = [
    ElementType::S8,
    ElementType::U8,
    ElementType::S16,
    ElementType::U16,
    ElementType::S32,
    ElementType::U32,
    ElementType::S64,
    ElementType::U64,
    ElementType::F16,
    ElementType::Bf16,
    ElementType::F32,
    ElementType::F64,
    ElementType::Pred,
];

/// The most characters of a text that a message shows.
const MAX_SHOWN: usize = 64;

/// An expression's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Integer(i128),
    Float(Float),
    Boolean(bool),
    /// Bytes, by convention UTF-8.
    Text(&'a [u8]),
}

/// A floating-point number, and the bits that it was read from. A parameter of the same type gets
/// the same bits, including those of a NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Float {
    value: f64,
    origin: Option<(ElementType, [u8; 8])>,
}

impl Float {
    /// A literal of an expression.
    pub(super) fn literal(value: f64) -> Self {
        Self {
            value,
            origin: None,
        }
    }

    /// Reads an element from little-endian bytes. `None` if the type has another width, or is not
    /// one of the four floating-point types of parameters.
    pub(super) fn read(ty: ElementType, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != ty.byte_width() {
            return None;
        }
        let value = match ty {
            ElementType::F16 => f16::read(bytes).to_f64(),
            ElementType::Bf16 => bf16::read(bytes).to_f64(),
            ElementType::F32 => f64::from(f32::read(bytes)),
            ElementType::F64 => f64::read(bytes),
            _ => return None,
        };
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(bytes);
        Some(Self {
            value,
            origin: Some((ty, bits)),
        })
    }

    pub(super) fn negated(self) -> Self {
        Self::literal(-self.value)
    }

    pub(super) fn value(self) -> f64 {
        self.value
    }
}

impl PartialEq for Float {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Value<'_> {
    /// The kind of the value.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Integer(_) => Kind::Integer,
            Self::Float(_) => Kind::Float,
            Self::Boolean(_) => Kind::Boolean,
            Self::Text(_) => Kind::Text,
        }
    }

    /// The little-endian bytes of the value as an element of this type.
    ///
    /// Floating-point numbers are rounded to the nearest. Integers must be exact, also as
    /// floating-point numbers.
    ///
    /// # Errors
    /// A message, for a value that the type cannot represent.
    pub(crate) fn encode(&self, ty: ElementType) -> Result<Vec<u8>, String> {
        let bytes = match *self {
            Self::Boolean(value) if ty.is_pred() => Some(vec![u8::from(value)]),
            Self::Integer(value) if ty.is_integral() => integer(value, ty),
            Self::Integer(value) if ty.is_floating() => exact(value, ty),
            Self::Float(value) if ty.is_floating() => rounded(value, ty),
            _ => None,
        };
        bytes.ok_or_else(|| format!("expected a value of the type {ty}, found {self}"))
    }
}

/// The kinds of values that a parameter of this type can have.
pub(crate) fn kinds(ty: ElementType) -> &'static [Kind] {
    match ty {
        ElementType::Pred => &[Kind::Boolean],
        _ if ty.is_floating() => &[Kind::Float, Kind::Integer],
        _ => &[Kind::Integer],
    }
}

/// An integer as an integral type, if that has it.
fn integer(value: i128, ty: ElementType) -> Option<Vec<u8>> {
    let bits = 8 * ty.byte_width();
    let (least, most) = if ty.is_signed_integral() {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    };
    let is_parameter = PARAMETER_TYPES.contains(&ty);
    (is_parameter && (least..=most).contains(&value))
        .then(|| value.to_le_bytes()[..ty.byte_width()].to_vec())
}

/// An integer as a floating-point number, if that is exact.
fn exact(value: i128, ty: ElementType) -> Option<Vec<u8>> {
    #[allow(
        clippy::cast_precision_loss,
        reason = "the result is compared with the integer"
    )]
    let wide = value as f64;
    let bytes = rounded(Float::literal(wide), ty)?;
    let back = Float::read(ty, &bytes)?.value;
    // The largest integers round to 2^127, which would convert back to the largest one.
    #[allow(clippy::cast_possible_truncation, reason = "it is below 2^127")]
    let is_exact = back < 2f64.powi(127) && back as i128 == value;
    is_exact.then_some(bytes)
}

/// The nearest number of the type. `None` if a finite number would become infinite.
fn rounded(float: Float, ty: ElementType) -> Option<Vec<u8>> {
    if let Some((origin, bits)) = float.origin
        && origin == ty
    {
        return Some(bits[..ty.byte_width()].to_vec());
    }
    let value = float.value;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the value is to be rounded"
    )]
    let (bytes, is_finite) = match ty {
        ElementType::F16 => {
            let value = f16::from_f64(value);
            (value.to_le_bytes().to_vec(), value.is_finite())
        }
        ElementType::Bf16 => {
            let value = bf16::from_f64(value);
            (value.to_le_bytes().to_vec(), value.is_finite())
        }
        ElementType::F32 => {
            let value = value as f32;
            (value.to_le_bytes().to_vec(), value.is_finite())
        }
        ElementType::F64 => (value.to_le_bytes().to_vec(), value.is_finite()),
        _ => return None,
    };
    (is_finite || !value.is_finite()).then_some(bytes)
}

impl fmt::Display for Value<'_> {
    /// The value as messages show it: a text is cut, and its invisible characters are replaced.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Float(float) => write!(f, "{:?}", float.value),
            Self::Boolean(value) => value.fmt(f),
            Self::Text(bytes) => {
                // A character has four bytes at most.
                let first = &bytes[..bytes.len().min(4 * MAX_SHOWN)];
                let text = String::from_utf8_lossy(first);
                let shown: String = text.chars().take(MAX_SHOWN).collect();
                f.write_str(
                    &callbox_core::untrusted_text::sanitize(
                        shown.as_bytes(),
                        shown.len(),
                        4 * MAX_SHOWN,
                    )
                    .replace(['\n', '\t'], " "),
                )
            }
        }
    }
}
