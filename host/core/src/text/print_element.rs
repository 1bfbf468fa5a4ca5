//! Prints elements: from their bytes to text that reads back as the same bytes.

use super::read_element::finite_bits;
use crate::values::{ElementType, FloatFormat};

/// An element in HLO text. The parts of a complex number are elements of the parts' type.
pub(super) fn hlo_element(element_type: ElementType, bytes: &[u8]) -> String {
    if element_type.is_pred() {
        return u8::from(bytes != [0]).to_string();
    }
    if element_type.is_integral() {
        return integer(element_type, bytes).to_string();
    }
    let bits = bits(bytes);
    let value = decode(element_type, bits);
    if value.is_nan() {
        nan(element_type, bits)
    } else if value.is_infinite() || value == 0.0 {
        value.to_string()
    } else {
        shortest(element_type, value, !(1e-5..1e16).contains(&value.abs()))
    }
}

/// An element of an array in MLIR. Types of one bit are printed as truth values.
pub(super) fn mlir_element(element_type: ElementType, bytes: &[u8]) -> String {
    match element_type {
        ElementType::S1 | ElementType::U1 => (bytes != [0]).to_string(),
        _ => mlir_scalar(element_type, bytes),
    }
}

/// A scalar in MLIR: a decimal with a point, or the bits of an infinity or a NaN.
pub(super) fn mlir_scalar(element_type: ElementType, bytes: &[u8]) -> String {
    if element_type.is_pred() {
        return (bytes != [0]).to_string();
    }
    if element_type.is_integral() {
        return integer(element_type, bytes).to_string();
    }
    let bits = bits(bytes);
    let value = decode(element_type, bits);
    if !value.is_finite() {
        let digits = bytes.len() * 2;
        return format!("0x{bits:0digits$X}");
    }
    let text = shortest(element_type, value, true);
    match text.split_once('e') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0e{exponent}"),
        _ => text,
    }
}

/// An integer. Bits above the type's width are ignored.
fn integer(element_type: ElementType, bytes: &[u8]) -> i128 {
    let unused = 128 - element_type.bit_width();
    let bits = u128::from(bits(bytes)) << unused;
    if element_type.is_signed_integral() {
        bits.cast_signed() >> unused
    } else {
        (bits >> unused).cast_signed()
    }
}

fn bits(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

fn decode(element_type: ElementType, bits: u64) -> f64 {
    match FloatFormat::of(element_type) {
        Some(format) => format.decode(bits as u32),
        None => f64::from_bits(bits),
    }
}

/// A finite number in the fewest digits that read back as the same bits. The fewest digits of F32
/// may round to a neighbour, because the reader rounds to F64 first.
fn shortest(element_type: ElementType, value: f64, with_exponent: bool) -> String {
    let narrow = value as f32;
    let [short, long] = if with_exponent {
        [format!("{narrow:e}"), format!("{value:e}")]
    } else {
        [narrow.to_string(), value.to_string()]
    };
    let read = short.parse().ok().filter(|read: &f64| read.is_finite());
    let bits = read.and_then(|read| finite_bits(element_type, read));
    if bits == finite_bits(element_type, value) {
        short
    } else {
        long
    }
}

/// `nan`, `-nan`, or a NaN with its mantissa if that is not the default one.
fn nan(element_type: ElementType, bits: u64) -> String {
    let format = FloatFormat::of(element_type);
    let default = |negative| match format {
        Some(format) => format.nan(negative, None).map(u64::from),
        None => Some(u64::from(negative) << 63 | f64::NAN.to_bits()),
    };
    if default(false) == Some(bits) {
        return "nan".to_owned();
    }
    if default(true) == Some(bits) {
        return "-nan".to_owned();
    }
    let mantissa = bits & ((1 << format.map_or(52, FloatFormat::mantissa_bits)) - 1);
    let is_negative = bits >> (element_type.bit_width() - 1) & 1 == 1;
    format!("{}nan(0x{mantissa:x})", if is_negative { "-" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        let f32 = |value: f32| hlo_element(ElementType::F32, &value.to_le_bytes());
        for (value, text) in [
            (0.1, "0.1"),
            (-0.0, "-0"),
            (1.0, "1"),
            (16_777_216.0, "16777216"),
            (1e-7, "1e-7"),
            (3.402_823_5e38, "3.4028235e38"),
            (f32::NEG_INFINITY, "-inf"),
            (f32::NAN, "nan"),
            (-f32::NAN, "-nan"),
            (f32::from_bits(0x7f80_0001), "nan(0x1)"),
            (f32::from_bits(0xffff_ffff), "-nan(0x7fffff)"),
        ] {
            assert_eq!(f32(value), text);
        }
        assert_eq!(hlo_element(ElementType::F16, &[0x66, 0x2e]), "0.099975586");
        assert_eq!(
            mlir_element(ElementType::F32, &0.1_f32.to_le_bytes()),
            "1.0e-1"
        );
    }
}
