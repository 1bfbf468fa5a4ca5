//! Numbers: from an element's bytes to the text that reads back as them.

use crate::program::hlo::elements::finite_bits;
use crate::values::{ElementType, FloatFormat};

/// An element as HLO text has it. The parts of a complex number are elements of the type of parts.
pub(super) fn hlo_element(element_type: ElementType, bytes: &[u8]) -> String {
    if element_type.is_pred() {
        return u8::from(bytes != [0]).to_string();
    }
    if element_type.is_integral() {
        return integer(element_type, bytes).to_string();
    }
    let bits = bits(bytes);
    let value = decode(element_type, bits);
    match value {
        _ if value.is_nan() => nan(element_type, bits),
        _ if value.is_infinite() => format!("{value}"),
        // As XLA does, short of its choice of when.
        _ if value != 0.0 && !(1e-5..1e16).contains(&value.abs()) => {
            scientific(element_type, value)
        }
        _ => decimal(element_type, value),
    }
}

/// An element of an array as MLIR has it: whatever has one bit as a truth value.
pub(super) fn mlir_element(element_type: ElementType, bytes: &[u8]) -> String {
    match element_type {
        ElementType::S1 | ElementType::U1 => (bytes != [0]).to_string(),
        _ => mlir_scalar(element_type, bytes),
    }
}

/// A scalar as MLIR has it: a decimal with a point, or the bits of what is not finite.
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
    let text = scientific(element_type, value);
    match text.split_once('e') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0e{exponent}"),
        _ => text,
    }
}

/// An integer. Bits above those of the type do not count.
fn integer(element_type: ElementType, bytes: &[u8]) -> i128 {
    let unused = 128 - element_type.bit_width();
    let bits = u128::from(bits(bytes)) << unused;
    match element_type.is_signed_integral() {
        true => bits.cast_signed() >> unused,
        false => (bits >> unused).cast_signed(),
    }
}

fn bits(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    std::iter::zip(&mut wide, bytes).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(wide)
}

fn decode(element_type: ElementType, bits: u64) -> f64 {
    match FloatFormat::of(element_type) {
        Some(format) => format.decode(bits as u32),
        None => f64::from_bits(bits),
    }
}

/// A finite number in the fewest digits that read back as it.
fn decimal(element_type: ElementType, value: f64) -> String {
    let short = format!("{}", value as f32);
    match reads_back(element_type, &short, value) {
        true => short,
        false => format!("{value}"),
    }
}

/// The same, with an exponent.
fn scientific(element_type: ElementType, value: f64) -> String {
    let short = format!("{:e}", value as f32);
    match reads_back(element_type, &short, value) {
        true => short,
        false => format!("{value:e}"),
    }
}

/// Whether a text is read as this number of the type: the fewest digits of F32 may, rounded to F64 first, round to a neighbour.
fn reads_back(element_type: ElementType, text: &str, value: f64) -> bool {
    let read = text.parse().ok().filter(|read: &f64| read.is_finite());
    read.and_then(|read| finite_bits(element_type, read)) == finite_bits(element_type, value)
}

/// `nan`, `-nan`, or with the mantissa if it is not the usual one.
fn nan(element_type: ElementType, bits: u64) -> String {
    let format = FloatFormat::of(element_type);
    let usual = |negative| match format {
        Some(format) => format.nan(negative, None).map(u64::from),
        None => Some(
            f64::NAN
                .copysign(if negative { -1.0 } else { 1.0 })
                .to_bits(),
        ),
    };
    if let Some(negative) = [false, true].into_iter().find(|n| usual(*n) == Some(bits)) {
        return if negative { "-nan" } else { "nan" }.to_owned();
    }
    let mantissa_bits = format.map_or(52, FloatFormat::mantissa_bits);
    let sign = match bits >> (element_type.bit_width() - 1) & 1 {
        1 => "-",
        _ => "",
    };
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    format!("{sign}nan(0x{mantissa:x})")
}
