//! Reads elements of literals: from a number's text to the bytes of its type.
//!
//! A decimal is rounded to F64 and then to the type, as XLA's parser does. A value that XLA prints
//! therefore reads back as the same value.

use super::diagnostic::shortened;
use crate::values::{ElementType, FloatFormat};

/// Appends the bytes of the element that this text stands for. Complex numbers are read in two
/// parts, as elements of [`component_type`].
pub(super) fn push_element(
    element_type: ElementType,
    text: &str,
    bytes: &mut Vec<u8>,
) -> Result<(), String> {
    if element_type.is_pred() {
        bytes.push(predicate(text)?);
    } else if element_type.is_integral() {
        push_integer(element_type, integer(element_type, text)?, bytes);
    } else {
        push_bits(element_type, float_bits(element_type, text)?, bytes);
    }
    Ok(())
}

/// The type of a complex number's parts. Any other type is its own.
pub(super) fn component_type(element_type: ElementType) -> ElementType {
    match element_type {
        ElementType::C64 => ElementType::F32,
        ElementType::C128 => ElementType::F64,
        other => other,
    }
}

/// The smallest and the largest number of an integer type.
pub(super) fn integer_range(element_type: ElementType) -> (i128, i128) {
    let bits = element_type.bit_width();
    if element_type.is_signed_integral() {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

/// Appends the bytes of an integer that is in range.
pub(super) fn push_integer(element_type: ElementType, value: i128, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&value.to_le_bytes()[..element_type.byte_width()]);
}

/// Appends the bytes of a type of at most 8 bytes.
pub(super) fn push_bits(element_type: ElementType, bits: u64, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&bits.to_le_bytes()[..element_type.byte_width()]);
}

/// The bits of a finite number in this floating-point type, rounded to the nearest, ties to even.
/// `None` if it is out of range.
pub(super) fn finite_bits(element_type: ElementType, value: f64) -> Option<u64> {
    match element_type {
        ElementType::F64 => Some(value.to_bits()),
        _ => FloatFormat::of(element_type)?.round(value).map(u64::from),
    }
}

/// Whether a number's text starts with `-`, and the rest of the text.
pub(super) fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(magnitude) => (true, magnitude),
        None => (false, text),
    }
}

/// The message for a text that is no value of the type.
pub(super) fn no_value(element_type: ElementType, text: &str) -> String {
    let found = shortened(text);
    format!("expected a value of {element_type}, found {found:?}")
}

fn out_of_range(element_type: ElementType, text: &str) -> String {
    let found = shortened(text);
    format!("expected a value in the range of {element_type}, found {found}")
}

/// XLA prints the elements of arrays as 1 and 0, and scalars as true and false.
fn predicate(text: &str) -> Result<u8, String> {
    match text {
        "true" | "1" => Ok(1),
        "false" | "0" => Ok(0),
        _ => {
            let found = shortened(text);
            Err(format!("expected true or false, found {found:?}"))
        }
    }
}

fn integer(element_type: ElementType, text: &str) -> Result<i128, String> {
    let (_, digits) = split_sign(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(no_value(element_type, text));
    }
    let (least, most) = integer_range(element_type);
    match text.parse() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(format!(
            "expected a value of {element_type} from {least} to {most}, found {}",
            shortened(text)
        )),
    }
}

/// The bits of a floating-point number: `-1.5e-07`, `inf`, `-nan(0x1)`.
fn float_bits(element_type: ElementType, text: &str) -> Result<u64, String> {
    let (negative, magnitude) = split_sign(text);
    if magnitude.starts_with("nan") {
        return nan_bits(element_type, text);
    }
    let is_f64 = element_type == ElementType::F64;
    if magnitude == "inf" {
        let infinity = |negative| FloatFormat::of(element_type)?.infinity(negative);
        let f64_infinity = is_f64.then(|| u64::from(negative) << 63 | 0x7ff << 52);
        return f64_infinity
            .or_else(|| infinity(negative).map(u64::from))
            .ok_or_else(|| {
                format!("expected a value of {element_type}, which has no infinities, found {text}")
            });
    }
    // Rust's parser also accepts words such as `infinity` and a leading `+`.
    if !magnitude.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(no_value(element_type, text));
    }
    let value: f64 = text.parse().map_err(|_| no_value(element_type, text))?;
    let finite = Some(value).filter(|value| value.is_finite());
    finite
        .and_then(|value| finite_bits(element_type, value))
        .ok_or_else(|| out_of_range(element_type, text))
}

/// The bits of `nan`, `-nan` or `nan(0x1)`, whose payload is the mantissa.
fn nan_bits(element_type: ElementType, text: &str) -> Result<u64, String> {
    let (negative, magnitude) = split_sign(text);
    let payload = payload(magnitude).ok_or_else(|| no_value(element_type, text))?;
    let bits = match FloatFormat::of(element_type) {
        Some(format) => format.nan(negative, payload).map(u64::from),
        None => {
            let payload = payload.unwrap_or(1 << 51);
            let bits = u64::from(negative) << 63 | 0x7ff << 52 | payload;
            (payload < 1 << 52).then_some(bits)
        }
    };
    bits.ok_or_else(|| match payload {
        Some(_) => format!(
            "expected a NaN of {element_type}, found one with the payload of another type, {}",
            shortened(text)
        ),
        None => format!("expected a value of {element_type}, which has no NaN, found {text}"),
    })
}

/// The payload of `nan` (none) or `nan(0x1)`. `None` if the text is neither.
fn payload(text: &str) -> Option<Option<u64>> {
    if text == "nan" {
        return Some(None);
    }
    let digits = text.strip_prefix("nan(0x")?.strip_suffix(')')?;
    let payload = hexadecimal(digits)?;
    (payload > 0).then_some(Some(payload))
}

/// A number in hexadecimal digits, of which there is at least one.
pub(super) fn hexadecimal(digits: &str) -> Option<u64> {
    // Rust's parser also accepts a leading `+`.
    let are_digits = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| are_digits)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn bits(element_type: &str, text: &str) -> u64 {
        let mut bytes = Vec::new();
        push_element(element_type.parse().unwrap(), text, &mut bytes).unwrap();
        bytes.resize(8, 0);
        u64::from_le_bytes(bytes.try_into().unwrap())
    }

    fn wrong(element_type: &str, text: &str) -> String {
        push_element(element_type.parse().unwrap(), text, &mut Vec::new()).unwrap_err()
    }

    #[test]
    fn numbers_of_each_kind_are_read() {
        for (element_type, text, expected) in [
            ("pred", "true", 1),
            ("pred", "0", 0),
            ("s8", "-128", 0x80),
            ("s4", "-8", 0xf8),
            ("u4", "15", 0x0f),
            ("s2", "-2", 0xfe),
            ("u1", "1", 1),
            ("s64", "-9223372036854775808", 1 << 63),
            ("u64", "18446744073709551615", u64::MAX),
            ("s32", "-0", 0),
            ("f32", "0.1", 0x3dcc_cccd),
            ("f32", "-0", 0x8000_0000),
            ("f32", "3.40282347e+38", 0x7f7f_ffff),
            ("f32", "1e-46", 0),
            ("f64", "1.7976931348623157e+308", 0x7fef_ffff_ffff_ffff),
            ("f64", ".5", 0x3fe0_0000_0000_0000),
            ("f64", "5e-324", 1),
            ("f16", "0.099976", 0x2e66),
            ("f16", "65504", 0x7bff),
            ("f16", "65519.9", 0x7bff),
            ("bf16", "0.1001", 0x3dcd),
            ("f8e4m3fn", "-448", 0xfe),
            ("f8e4m3fn", "-0", 0x80),
            ("f8e4m3fnuz", "-0", 0x00),
            ("f4e2m1fn", "-6", 0x0f),
            ("f8e8m0fnu", "0.5", 0x7e),
        ] {
            assert_eq!(bits(element_type, text), expected, "{element_type} {text}");
        }
    }

    /// Bits as XLA's `NanWithSignAndPayload` (xla/util.h) and ml_dtypes' `numeric_limits` give
    /// them.
    #[test]
    fn what_is_not_finite_has_xlas_bits() {
        for (element_type, text, expected) in [
            ("f32", "inf", 0x7f80_0000),
            ("f32", "-inf", 0xff80_0000),
            ("f32", "nan", 0x7fc0_0000),
            ("f32", "-nan", 0xffc0_0000),
            ("f32", "nan(0x1)", 0x7f80_0001),
            ("f32", "-nan(0x7fffff)", 0xffff_ffff),
            ("f64", "nan", 0x7ff8_0000_0000_0000),
            ("f64", "-nan", 0xfff8_0000_0000_0000),
            ("f64", "nan(0x8000000000001)", 0x7ff8_0000_0000_0001),
            ("f16", "nan", 0x7e00),
            ("f16", "-inf", 0xfc00),
            ("bf16", "nan", 0x7fc0),
            ("f8e5m2", "-nan", 0xfe),
            ("f8e5m2", "inf", 0x7c),
            ("f8e4m3", "nan", 0x7c),
            ("f8e3m4", "nan", 0x78),
            ("f8e4m3fn", "nan", 0x7f),
            ("f8e4m3fn", "-nan", 0xff),
            ("f8e5m2fnuz", "nan", 0x80),
            ("f8e4m3b11fnuz", "-nan", 0x80),
            ("f8e8m0fnu", "nan", 0xff),
        ] {
            assert_eq!(bits(element_type, text), expected, "{element_type} {text}");
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for (element_type, text, message) in [
            ("pred", "2", "expected true or false, found \"2\""),
            (
                "s8",
                "128",
                "expected a value of s8 from -128 to 127, found 128",
            ),
            ("u8", "-1", "expected a value of u8 from 0 to 255, found -1"),
            (
                "s64",
                "99999999999999999999999999999999999999999999999",
                "expected a value of s64 from -9223372036854775808 to 9223372036854775807, \
                 found 99999999999999999999999999999999999999999999999",
            ),
            ("s32", "1.5", "expected a value of s32, found \"1.5\""),
            ("s32", "true", "expected a value of s32, found \"true\""),
            ("s32", "+1", "expected a value of s32, found \"+1\""),
            ("f32", "", "expected a value of f32, found \"\""),
            (
                "f32",
                "infinity",
                "expected a value of f32, found \"infinity\"",
            ),
            ("f32", "0x1p3", "expected a value of f32, found \"0x1p3\""),
            ("f32", "+1", "expected a value of f32, found \"+1\""),
            (
                "f32",
                "1e39",
                "expected a value in the range of f32, found 1e39",
            ),
            (
                "f64",
                "-1e400",
                "expected a value in the range of f64, found -1e400",
            ),
            (
                "f16",
                "65520",
                "expected a value in the range of f16, found 65520",
            ),
            (
                "f8e4m3fn",
                "480",
                "expected a value in the range of f8e4m3fn, found 480",
            ),
            (
                "f8e8m0fnu",
                "0",
                "expected a value in the range of f8e8m0fnu, found 0",
            ),
            (
                "f8e8m0fnu",
                "-1",
                "expected a value in the range of f8e8m0fnu, found -1",
            ),
            (
                "f8e4m3fn",
                "inf",
                "expected a value of f8e4m3fn, which has no infinities, found inf",
            ),
            (
                "f4e2m1fn",
                "nan",
                "expected a value of f4e2m1fn, which has no NaN, found nan",
            ),
            (
                "f32",
                "nan(0x0)",
                "expected a value of f32, found \"nan(0x0)\"",
            ),
            (
                "f32",
                "nan(0x800000)",
                "expected a NaN of f32, found one with the payload of another type, nan(0x800000)",
            ),
            (
                "f8e4m3fn",
                "nan(0x1)",
                "expected a NaN of f8e4m3fn, found one with the payload of another type, nan(0x1)",
            ),
        ] {
            assert_eq!(wrong(element_type, text), message);
        }
    }
}
