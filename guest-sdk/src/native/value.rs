//! Values of attributes.

use alloc::string::String;
use alloc::vec::Vec;

use crate::abi;
use crate::abi::native::{Block, List};
use crate::{AttributeKind, Bf16, C64, C128, Element, ElementType, F16, Pred};

/// The value of an attribute.
///
/// ```
/// use callbox_guest::ElementType;
/// use callbox_guest::native::Value;
///
/// assert!(matches!(Value::from(1.0_f32), Value::Scalar(ElementType::F32, _)));
/// assert!(matches!(Value::from("text"), Value::String(_)));
/// assert!(matches!(Value::from(&[1_i64, 2][..]), Value::Array(ElementType::S64, ..)));
/// ```
#[derive(Clone, Debug)]
pub enum Value {
    /// One element: its type and its bytes.
    Scalar(ElementType, Vec<u8>),
    /// Elements: their type, their bytes, and the array's dimensions.
    Array(ElementType, Vec<u8>, Vec<i64>),
    /// Bytes, by convention UTF-8.
    String(Vec<u8>),
    /// Nested attributes.
    Dictionary(Vec<(String, Value)>),
    /// A function of the call, by number: see
    /// [`Call::function_attribute`](super::Call::function_attribute).
    Function(u32),
}

macro_rules! scalar_values {
    ($($type:ty),*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::Scalar(<$type as Element>::TYPE, abi::bytes(&[value]).to_vec())
            }
        }
    )*};
}

scalar_values!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, Pred);
scalar_values!(F16, Bf16, C64, C128);

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Pred::from(value).into()
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.as_bytes().to_vec())
    }
}

impl<T: Element> From<&[T]> for Value {
    fn from(elements: &[T]) -> Self {
        let dimensions = alloc::vec![elements.len() as i64];
        Self::Array(T::TYPE, abi::bytes(elements).to_vec(), dimensions)
    }
}

/// Appends the attributes' records, sorted by name as a host sorts them.
pub(super) fn dictionary(block: &mut Block, attributes: &[(String, Value)]) -> List {
    let mut sorted: Vec<_> = attributes.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let records: Vec<_> = sorted
        .into_iter()
        .map(|(name, value)| {
            let (kind, element_type, dimensions, value) = match value {
                Value::Scalar(t, bytes) => {
                    (AttributeKind::Scalar, *t as u8, &[][..], block.list(bytes))
                }
                Value::Array(t, bytes, dimensions) => (
                    AttributeKind::Array,
                    *t as u8,
                    &dimensions[..],
                    block.list(bytes),
                ),
                Value::Function(number) => (
                    AttributeKind::Function,
                    0,
                    &[][..],
                    block.list(abi::bytes(&[*number])),
                ),
                Value::String(bytes) => (AttributeKind::String, 0, &[][..], block.list(bytes)),
                Value::Dictionary(nested) => (
                    AttributeKind::Dictionary,
                    0,
                    &[][..],
                    dictionary(block, nested),
                ),
            };
            block.attribute(name, kind as u8, element_type, dimensions, value)
        })
        .collect();
    block.list(&records)
}
