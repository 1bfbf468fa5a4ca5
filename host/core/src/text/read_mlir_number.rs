//! Reads numbers in MLIR's notation: decimals, and the bits of a number such as `0x7FC00000`.

use super::diagnostic::shortened;
use super::read_element::{
    finite_bits, hexadecimal, integer_range, no_value, push_bits, push_integer, split_sign,
};
use super::read_mlir_type::NumberType;
use crate::values::ElementType;

/// Appends the bytes of the number that this text stands for.
pub(super) fn push_number(
    number_type: NumberType,
    text: &str,
    bytes: &mut Vec<u8>,
) -> Result<(), String> {
    let element_type = number_type.element_type;
    let truth = text.parse::<bool>().ok();
    match (element_type, truth) {
        (ElementType::Pred | ElementType::U1, Some(truth)) => bytes.push(u8::from(truth)),
        // MLIR prints signed integers of one bit as truth values, too.
        (ElementType::S1, Some(truth)) => bytes.push(if truth { u8::MAX } else { 0 }),
        _ if element_type.is_integral() => {
            let value = integer(number_type, text).ok_or_else(|| {
                let (least, most) = range(number_type);
                let found = shortened(text);
                format!(
                    "expected a value of {element_type} from {least} to {most}, found {found:?}"
                )
            })?;
            push_integer(element_type, value, bytes);
        }
        (ElementType::Pred, None) => return Err(no_value(element_type, text)),
        _ => {
            let bits = float_bits(element_type, text);
            push_bits(
                element_type,
                bits.ok_or_else(|| no_value(element_type, text))?,
                bytes,
            );
        }
    }
    Ok(())
}

/// The elements of `dense<"0x...">`: little-endian bytes, with one byte for each element of a type
/// narrower than a byte.
pub(super) fn hexadecimal_elements(
    element_type: ElementType,
    text: &str,
) -> Result<Vec<u8>, String> {
    let digits = text
        .strip_prefix("0x")
        .filter(|digits| digits.len() % 2 == 0);
    let mut bytes = digits.and_then(bytes_of_pairs).ok_or_else(|| {
        let found = shortened(text);
        format!("expected pairs of hexadecimal digits behind 0x, found {found:?}")
    })?;
    let (width, found) = (element_type.byte_width(), bytes.len());
    if found % width != 0 {
        return Err(format!(
            "expected a multiple of {width} bytes of {element_type}, found {found}"
        ));
    }
    if element_type.is_pred() || element_type.bit_width() < 8 {
        for byte in &mut bytes {
            *byte = sign_extended(element_type, *byte).ok_or_else(|| {
                format!("expected a value of {element_type}, found the byte {byte:#04x}")
            })?;
        }
    }
    Ok(bytes)
}

fn bytes_of_pairs(digits: &str) -> Option<Vec<u8>> {
    let digit = |character: u8| char::from(character).to_digit(16);
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
        .collect()
}

/// The numbers that a type's text may have. MLIR accepts the text of a signed and of an unsigned
/// integer for a signless one.
fn range(number_type: NumberType) -> (i128, i128) {
    let (least, most) = integer_range(number_type.element_type);
    let most = if number_type.is_signless {
        2 * most + 1
    } else {
        most
    };
    (least, most)
}

fn integer(number_type: NumberType, text: &str) -> Option<i128> {
    let (least, most) = range(number_type);
    let (negative, magnitude) = split_sign(text);
    let magnitude = match magnitude.strip_prefix("0x") {
        Some(digits) => i128::from(hexadecimal(digits)?),
        None if !magnitude.bytes().all(|b| b.is_ascii_digit()) => return None,
        None => magnitude.parse().ok()?,
    };
    let value = if negative { -magnitude } else { magnitude };
    // A signless number above the signed range is the negative number with the same bits.
    let wrap = value > integer_range(number_type.element_type).1;
    let in_range = (least..=most).contains(&value);
    in_range.then(|| if wrap { value - (most + 1) } else { value })
}

/// A decimal with a point, or the bits. A complex number is written in parts, in no other way.
fn float_bits(element_type: ElementType, text: &str) -> Option<u64> {
    if element_type.is_complex() {
        return None;
    }
    if let Some(digits) = text.strip_prefix("0x") {
        let bits = hexadecimal(digits)?;
        let fits = bits.checked_shr(element_type.bit_width()).unwrap_or(0) == 0;
        return fits.then_some(bits);
    }
    let (_, magnitude) = split_sign(text);
    let is_decimal = magnitude.starts_with(|c: char| c.is_ascii_digit()) && magnitude.contains('.');
    let value = text.parse::<f64>().ok();
    finite_bits(
        element_type,
        value.filter(|value| is_decimal && value.is_finite())?,
    )
}

/// A byte that holds an element narrower than a byte, with the sign extended. MLIR leaves the other
/// bits 0.
fn sign_extended(element_type: ElementType, byte: u8) -> Option<u8> {
    let bits = if element_type.is_pred() {
        1
    } else {
        element_type.bit_width()
    };
    if byte.checked_shr(bits).unwrap_or(0) != 0 {
        return None;
    }
    let is_negative = element_type.is_signed_integral() && byte >> (bits - 1) == 1;
    Some(if is_negative { byte | !0 << bits } else { byte })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::text::cursor::Cursor;
    use crate::text::read_mlir_type::number_type;

    fn push(number: &str, name: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        push_number(
            number_type(&mut Cursor::new(name)).unwrap(),
            number,
            &mut bytes,
        )?;
        Ok(bytes)
    }

    #[test]
    fn numbers_are_decimals_or_bits() {
        for (number, name, bytes) in [
            ("true", "i1", &[1][..]),
            ("-128", "i8", &[0x80]),
            ("255", "i8", &[0xff]),
            ("0xFF", "i8", &[0xff]),
            ("255", "ui8", &[0xff]),
            ("15", "i4", &[0xff]),
            ("-8", "i4", &[0xf8]),
            ("15", "ui4", &[0x0f]),
            ("true", "ui1", &[1]),
            ("true", "si1", &[0xff]),
            ("false", "ui1", &[0]),
            ("18446744073709551615", "ui64", &[0xff; 8]),
            ("-9223372036854775808", "i64", &[0, 0, 0, 0, 0, 0, 0, 0x80]),
            ("1.401300e-45", "f32", &[1, 0, 0, 0]),
            ("-0.000000e+00", "f64", &[0, 0, 0, 0, 0, 0, 0, 0x80]),
            ("0x7FC00000", "f32", &[0, 0, 0xc0, 0x7f]),
            ("0xFFF0000000000000", "f64", &[0, 0, 0, 0, 0, 0, 0xf0, 0xff]),
            ("0x7E00", "f16", &[0, 0x7e]),
            ("0x7F", "f8E4M3FN", &[0x7f]),
            ("5.000000e-01", "f8E8M0FNU", &[0x7e]),
        ] {
            assert_eq!(
                push(number, name).as_deref(),
                Ok(bytes),
                "{number} : {name}"
            );
        }
    }

    #[test]
    fn what_is_no_number_of_the_type_is_refused() {
        for (number, name, message) in [
            ("1", "i1", "expected a value of pred, found \"1\""),
            (
                "256",
                "i8",
                "expected a value of s8 from -128 to 255, found \"256\"",
            ),
            (
                "128",
                "si8",
                "expected a value of s8 from -128 to 127, found \"128\"",
            ),
            (
                "-1",
                "ui8",
                "expected a value of u8 from 0 to 255, found \"-1\"",
            ),
            (
                "1.0",
                "i8",
                "expected a value of s8 from -128 to 255, found \"1.0\"",
            ),
            (
                "0x",
                "i8",
                "expected a value of s8 from -128 to 255, found \"0x\"",
            ),
            (
                "0x-1",
                "i8",
                "expected a value of s8 from -128 to 255, found \"0x-1\"",
            ),
            ("4", "f32", "expected a value of f32, found \"4\""),
            ("1.0e39", "f32", "expected a value of f32, found \"1.0e39\""),
            (
                "0x100000000",
                "f32",
                "expected a value of f32, found \"0x100000000\"",
            ),
            ("0x+1", "f64", "expected a value of f64, found \"0x+1\""),
            ("inf", "f64", "expected a value of f64, found \"inf\""),
            (
                "0x10",
                "complex<f32>",
                "expected a value of c64, found \"0x10\"",
            ),
            (
                "0x10",
                "complex<f64>",
                "expected a value of c128, found \"0x10\"",
            ),
            (
                "1.0",
                "complex<f64>",
                "expected a value of c128, found \"1.0\"",
            ),
        ] {
            assert_eq!(push(number, name).unwrap_err(), message);
        }
    }

    #[test]
    fn bytes_are_checked() {
        let read = |name: &str, text| hexadecimal_elements(name.parse().unwrap(), text);
        assert_eq!(read("f32", "0x0000803f"), Ok(vec![0, 0, 0x80, 0x3f]));
        assert_eq!(read("s4", "0x0807"), Ok(vec![0xf8, 7]));
        assert_eq!(read("u2", "0x03"), Ok(vec![3]));
        for (name, text, message) in [
            (
                "f32",
                "00",
                "expected pairs of hexadecimal digits behind 0x, found \"00\"",
            ),
            (
                "f32",
                "0x0",
                "expected pairs of hexadecimal digits behind 0x, found \"0x0\"",
            ),
            (
                "f32",
                "0x0g",
                "expected pairs of hexadecimal digits behind 0x, found \"0x0g\"",
            ),
            (
                "f32",
                "0x0000",
                "expected a multiple of 4 bytes of f32, found 2",
            ),
            (
                "pred",
                "0x02",
                "expected a value of pred, found the byte 0x02",
            ),
            ("s4", "0x10", "expected a value of s4, found the byte 0x10"),
        ] {
            assert_eq!(read(name, text).unwrap_err(), message);
        }
    }
}
