//! Array elements: converted from JSON to bytes, from bytes to ordinals, and to text.

use anyhow::{Context, Result, bail, ensure};
use callbox::ElementType;
use half::{bf16, f16};
use serde_json::Value;

use crate::minifloat;

/// Returns the type of an element's parts and their number: two for a complex number, one
/// otherwise.
#[must_use]
pub fn parts(element_type: ElementType) -> (ElementType, usize) {
    match element_type {
        ElementType::C64 => (ElementType::F32, 2),
        ElementType::C128 => (ElementType::F64, 2),
        _ => (element_type, 1),
    }
}

/// Encodes an element from JSON as little-endian bytes: a number, `true` or `false`, `"nan"`,
/// `"inf"`, `"-inf"`, or `[real, imaginary]`.
///
/// # Errors
/// A value that the type does not have: an integer out of range, or a number that F16, BF16 or a
/// narrower type would round. F32 and F64 round to nearest, because few decimal fractions are
/// exact.
pub fn encode(element_type: ElementType, value: &Value) -> Result<Vec<u8>> {
    let (part, count) = parts(element_type);
    match (count, value) {
        (2, Value::Array(parts)) => {
            ensure!(
                parts.len() == 2,
                "expected [real, imaginary] of {element_type}, found {value}"
            );
            Ok([encode(part, &parts[0])?, encode(part, &parts[1])?].concat())
        }
        (2, _) => bail!("expected [real, imaginary] of {element_type}, found {value}"),
        _ => encode_part(element_type, value)
            .with_context(|| format!("expected an element of {element_type}, found {value}")),
    }
}

fn encode_part(element_type: ElementType, value: &Value) -> Option<Vec<u8>> {
    match element_type {
        ElementType::Pred => value.as_bool().map(|value| vec![u8::from(value)]),
        _ if element_type.is_integral() => encode_integer(element_type, integer(value)?),
        _ if element_type.is_floating() => encode_float(element_type, number(value)?),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i128> {
    value
        .as_i64()
        .map(i128::from)
        .or(value.as_u64().map(i128::from))
}

fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("nan") => Some(f64::NAN),
        Some("inf") => Some(f64::INFINITY),
        Some("-inf") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => value.as_f64(),
    }
}

/// Encodes an integer in the type's size. Types narrower than a byte are sign-extended to one.
pub(crate) fn encode_integer(element_type: ElementType, value: i128) -> Option<Vec<u8>> {
    let bits = element_type.bit_width();
    let (least, most) = if element_type.is_signed_integral() {
        (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
    } else {
        (0, (1_i128 << bits) - 1)
    };
    let fits = (least..=most).contains(&value);
    fits.then(|| value.to_le_bytes()[..element_type.byte_width()].to_vec())
}

/// Encodes a float if the type has the value. F32 and F64 round to nearest.
pub(crate) fn encode_float(element_type: ElementType, value: f64) -> Option<Vec<u8>> {
    let exact = |found: f64| found == value || (found.is_nan() && value.is_nan());
    match element_type {
        ElementType::F64 => Some(value.to_le_bytes().to_vec()),
        ElementType::F32 => Some((value as f32).to_le_bytes().to_vec()),
        ElementType::F16 => {
            let half = f16::from_f64(value);
            exact(half.to_f64()).then(|| half.to_le_bytes().to_vec())
        }
        ElementType::Bf16 => {
            let half = bf16::from_f64(value);
            exact(half.to_f64()).then(|| half.to_le_bytes().to_vec())
        }
        _ => minifloat::encode(element_type, value).map(|code| vec![code]),
    }
}

/// Returns the position of a real element among the representable values of its type.
///
/// Infinity is the neighbour of the largest finite value, and both zeros have the same position.
/// NaN has none.
#[must_use]
pub fn ordinal(element_type: ElementType, bytes: &[u8]) -> Option<i128> {
    match element_type {
        ElementType::F64 | ElementType::F32 | ElementType::F16 | ElementType::Bf16 => {
            let number = float(element_type, bytes);
            let bits = unsigned(bytes);
            let sign = 1 << (element_type.bit_width() - 1);
            let magnitude = (bits & (sign - 1)) as i128;
            (!number.is_nan()).then_some(if bits & sign == 0 {
                magnitude
            } else {
                -magnitude
            })
        }
        _ if element_type.is_floating() => minifloat::ordinal(element_type, bytes[0]),
        _ if element_type.is_signed_integral() => Some(signed(bytes)),
        _ => Some(unsigned(bytes) as i128),
    }
}

/// Formats an element for a report, with its bits where they add information.
#[must_use]
pub fn show(element_type: ElementType, bytes: &[u8]) -> String {
    let (part, count) = parts(element_type);
    if count == 2 {
        let (re, im) = bytes.split_at(part.byte_width());
        return format!("[{}, {}]", show(part, re), show(part, im));
    }
    if element_type.is_floating() {
        let bits = unsigned(bytes);
        let digits = 2 * element_type.byte_width();
        let value = match element_type {
            // Formats in the type itself: the shortest text that reads back to the same value.
            ElementType::F32 => f32::from_bits(bits as u32).to_string(),
            _ => float(element_type, bytes).to_string(),
        };
        return format!("{value} (0x{bits:0digits$x})");
    }
    match (element_type, bytes) {
        (ElementType::Pred, [0]) => "false".to_owned(),
        (ElementType::Pred, [1]) => "true".to_owned(),
        (ElementType::Pred, _) => format!("the byte {}", unsigned(bytes)),
        _ if element_type.is_signed_integral() => signed(bytes).to_string(),
        _ => unsigned(bytes).to_string(),
    }
}

/// Converts a floating-point element exactly.
fn float(element_type: ElementType, bytes: &[u8]) -> f64 {
    let bits = unsigned(bytes);
    match element_type {
        ElementType::F64 => f64::from_bits(bits as u64),
        ElementType::F32 => f64::from(f32::from_bits(bits as u32)),
        ElementType::F16 => f16::from_bits(bits as u16).to_f64(),
        ElementType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        _ => minifloat::decode(element_type, bits as u8).unwrap_or(f64::NAN),
    }
}

fn unsigned(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .rev()
        .fold(0, |bits, &byte| bits << 8 | u128::from(byte))
}

fn signed(bytes: &[u8]) -> i128 {
    let unused = 128 - 8 * bytes.len() as u32;
    if bytes.is_empty() {
        0
    } else {
        (unsigned(bytes) << unused) as i128 >> unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_become_bytes() {
        use ElementType as E;
        for (element_type, value, bytes) in [
            (E::S8, json!(-128), &[128][..]),
            (E::S4, json!(-8), &[0xf8]),
            (E::U4, json!(15), &[15]),
            (E::S1, json!(-1), &[0xff]),
            (E::U64, json!(u64::MAX), &[255; 8]),
            (E::Pred, json!(true), &[1]),
            (E::F32, json!(0.1), &[0xcd, 0xcc, 0xcc, 0x3d]),
            (E::F32, json!(-0.0), &[0, 0, 0, 0x80]),
            (E::F16, json!("-inf"), &[0, 0xfc]),
            (E::Bf16, json!(1), &[0x80, 0x3f]),
            (E::F8e4m3fn, json!(448.0), &[0x7e]),
            (
                E::C64,
                json!([1.0, "inf"]),
                &[0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x7f],
            ),
        ] {
            assert_eq!(
                encode(element_type, &value).unwrap(),
                bytes,
                "{element_type} {value}"
            );
        }
    }

    #[test]
    fn values_that_a_type_lacks_are_refused() {
        use ElementType as E;
        for (element_type, value) in [
            (E::S8, json!(128)),
            (E::U8, json!(-1)),
            (E::S4, json!(8)),
            (E::S32, json!(1.5)),
            (E::Pred, json!(1)),
            (E::F16, json!(0.1)),
            (E::F16, json!(65536)),
            (E::F8e5m2, json!(0.3)),
            (E::F32, json!("infinity")),
            (E::F32, json!(null)),
            (E::C64, json!(1.0)),
            (E::C64, json!([1.0])),
            (E::Token, json!(0)),
        ] {
            assert!(
                encode(element_type, &value).is_err(),
                "{element_type} {value}"
            );
        }
    }

    #[test]
    fn ordinals_count_representable_values() {
        let of = |value: f32| ordinal(ElementType::F32, &value.to_le_bytes());
        assert_eq!(of(1.0).unwrap() + 1, of(1.0 + f32::EPSILON).unwrap());
        assert_eq!(of(f32::MAX).unwrap() + 1, of(f32::INFINITY).unwrap());
        assert_eq!(of(0.0), of(-0.0));
        assert_eq!(
            of(f32::from_bits(1)).unwrap() - of(-f32::from_bits(1)).unwrap(),
            2
        );
        assert_eq!(of(f32::NAN), None);
        assert_eq!(ordinal(ElementType::S16, &(-5_i16).to_le_bytes()), Some(-5));
        assert_eq!(ordinal(ElementType::U64, &[255; 8]), Some(u64::MAX.into()));
    }

    #[test]
    fn elements_are_shown_with_their_bits() {
        assert_eq!(
            show(ElementType::F32, &0.1_f32.to_le_bytes()),
            "0.1 (0x3dcccccd)"
        );
        assert_eq!(show(ElementType::Pred, &[2]), "the byte 2");
        assert_eq!(show(ElementType::S4, &[0xf8]), "-8");
        assert_eq!(
            show(ElementType::C64, &[0; 8]),
            "[0 (0x00000000), 0 (0x00000000)]"
        );
    }
}
