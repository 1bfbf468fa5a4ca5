//! Values of expressions, and their bytes as kernels' parameters.

use std::fmt;

use half::{bf16, f16};

use super::Kind;
use crate::values::{ElementType, NativeType};

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

/// A floating-point number, and the bits that it was read from: a parameter of that very type gets them, those of a NaN as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Float {
    value: f64,
    origin: Option<(ElementType, [u8; 8])>,
}

impl Float {
    /// A number that was written in an expression.
    pub(super) fn literal(value: f64) -> Self {
        Self {
            value,
            origin: None,
        }
    }

    /// The element of these little-endian bytes, if they are as many as its type is wide and it is one of four types.
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
    /// What kind of value it is.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Integer(_) => Kind::Integer,
            Self::Float(_) => Kind::Float,
            Self::Boolean(_) => Kind::Boolean,
            Self::Text(_) => Kind::Text,
        }
    }

    /// Its little-endian bytes as an element of this type, one of [`PARAMETER_TYPES`]. Floating-point numbers are rounded to the nearest
    /// that the type has; integers are exact, also as floating-point numbers.
    ///
    /// # Errors
    /// What was expected and what was found, for a value that the type does not have.
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

fn integer(value: i128, ty: ElementType) -> Option<Vec<u8>> {
    Some(match ty {
        ElementType::S8 => i8::try_from(value).ok()?.to_le_bytes().to_vec(),
        ElementType::U8 => u8::try_from(value).ok()?.to_le_bytes().to_vec(),
        ElementType::S16 => i16::try_from(value).ok()?.to_le_bytes().to_vec(),
        ElementType::U16 => u16::try_from(value).ok()?.to_le_bytes().to_vec(),
        ElementType::S32 => i32::try_from(value).ok()?.to_le_bytes().to_vec(),
        ElementType::U32 => u32::try_from(value).ok()?.to_le_bytes().to_vec(),
        ElementType::S64 => i64::try_from(value).ok()?.to_le_bytes().to_vec(),
        ElementType::U64 => u64::try_from(value).ok()?.to_le_bytes().to_vec(),
        _ => return None,
    })
}

/// An integer as a floating-point number, if the type has it.
fn exact(value: i128, ty: ElementType) -> Option<Vec<u8>> {
    #[allow(
        clippy::cast_precision_loss,
        reason = "whether it is exact is what is asked"
    )]
    let wide = value as f64;
    let bytes = rounded(Float::literal(wide), ty)?;
    let back = Float::read(ty, &bytes)?.value;
    // 2^127 is what the largest integers round to; the conversion back would be the largest itself.
    #[allow(clippy::cast_possible_truncation, reason = "it is below 2^127")]
    let is_exact = back < 2f64.powi(127) && back as i128 == value;
    is_exact.then_some(bytes)
}

/// The nearest number of the type, unless a finite one would become infinite.
fn rounded(float: Float, ty: ElementType) -> Option<Vec<u8>> {
    if let Some((origin, bits)) = float.origin
        && origin == ty
    {
        return Some(bits[..ty.byte_width()].to_vec());
    }
    let value = float.value;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "rounding is what is asked for"
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
    /// For messages: a text is cut, and what is not visible in it is escaped.
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
                    &crate::wasm::sanitize(shown.as_bytes(), shown.len(), 4 * MAX_SHOWN)
                        .replace(['\n', '\t'], " "),
                )
            }
        }
    }
}
