#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use super::*;
use crate::program::evaluate::tests::assert_same;

/// Made by `testdata/generate.py` with ml_dtypes.
const REFERENCE: &str = include_str!("../testdata/minifloats.txt");

fn decode(element_type: ElementType, bits: u16) -> f64 {
    match Format::of(element_type) {
        Some(format) => format.decode(bits),
        None => decode_e8m0(bits as u8),
    }
}

fn encode(element_type: ElementType, value: f64) -> u16 {
    match Format::of(element_type) {
        Some(format) => format.encode(value),
        None => encode_e8m0(value).into(),
    }
}

fn lines(kind: &str) -> impl Iterator<Item = (ElementType, &str)> {
    let lines = REFERENCE
        .lines()
        .filter_map(move |line| line.strip_prefix(kind));
    lines.map(|line| {
        let (name, rest) = line.trim_start().split_once(' ').unwrap();
        (name.parse().unwrap(), rest)
    })
}

#[test]
fn all_values_are_those_of_ml_dtypes() {
    let mut types = 0;
    for (element_type, values) in lines("decode") {
        for (bits, expected) in values.split(' ').enumerate() {
            let expected = f32::from_bits(u32::from_str_radix(expected, 16).unwrap());
            let found = decode(element_type, bits as u16);
            assert_same(
                &[found],
                &[expected.into()],
                &format!("{element_type} {bits:#x}"),
            );
        }
        types += 1;
    }
    assert_eq!(types, 9);
}

#[test]
fn rounding_is_that_of_ml_dtypes() {
    let inputs = REFERENCE
        .lines()
        .find_map(|line| line.strip_prefix("inputs "))
        .unwrap();
    let inputs = inputs
        .split(' ')
        .map(|x| f32::from_bits(u32::from_str_radix(x, 16).unwrap()));
    let inputs = inputs.map(f64::from).collect::<Vec<_>>();
    let mut types = 0;
    for (element_type, expected) in lines("encode") {
        assert_eq!(expected.len(), 2 * inputs.len());
        for (i, &input) in inputs.iter().enumerate() {
            let expected = u16::from_str_radix(&expected[2 * i..2 * i + 2], 16).unwrap();
            let found = encode(element_type, input);
            assert_eq!(found, expected, "{element_type} of {input:e}");
        }
        types += 1;
    }
    assert_eq!(types, 9);
}

#[test]
fn what_is_read_is_written_back() {
    let wide = [ElementType::F16, ElementType::Bf16];
    let types = wide
        .into_iter()
        .chain(lines("decode").map(|(element_type, _)| element_type));
    for element_type in types {
        for bits in 0..=u16::MAX >> (16 - element_type.bit_width()) {
            let value = decode(element_type, bits);
            if !value.is_nan() {
                assert_eq!(encode(element_type, value), bits, "{element_type} {value}");
            }
        }
    }
}

/// IEEE 754, and the upper half of binary32.
#[test]
fn the_types_of_16_bits_are_those_of_the_crate_half() {
    for bits in 0..=u16::MAX {
        let f16 = half::f16::from_bits(bits).to_f64();
        let bf16 = half::bf16::from_bits(bits).to_f64();
        assert_same(&[decode(ElementType::F16, bits)], &[f16], "f16");
        assert_same(&[decode(ElementType::Bf16, bits)], &[bf16], "bf16");
    }
}

#[test]
fn numbers_are_rounded_once() {
    let cases = [
        // By way of f32 these would be halfway, and be rounded to even.
        (
            ElementType::F16,
            1.0 + 2f64.powi(-11) + 2f64.powi(-40),
            0x3c01,
        ),
        (
            ElementType::Bf16,
            1.0 + 2f64.powi(-8) + 2f64.powi(-40),
            0x3f81,
        ),
        (
            ElementType::Bf16,
            -1.0 - 2f64.powi(-8) - 2f64.powi(-40),
            0xbf81,
        ),
        (
            ElementType::F8e4m3fn,
            1.0 + 2f64.powi(-4) + 2f64.powi(-40),
            0x39,
        ),
        // Halfway to what would come after the largest number, and just below.
        (ElementType::F16, 65520.0, 0x7c00),
        (ElementType::F16, 65519.999, 0x7bff),
        (ElementType::F16, f64::MAX, 0x7c00),
        // The smallest number, half of it, and more than half of it.
        (ElementType::F16, 2f64.powi(-24), 1),
        (ElementType::F16, 2f64.powi(-25), 0),
        (ElementType::F16, 1.001 * 2f64.powi(-25), 1),
        (ElementType::Bf16, -f64::from_bits(1), 0x8000),
        (ElementType::Bf16, f64::NAN, 0x7fc0),
    ];
    for (element_type, value, expected) in cases {
        assert_eq!(
            encode(element_type, value),
            expected,
            "{element_type} of {value}"
        );
    }
}

/// As XLA:CPU of JAX 0.10.2 has it. ml_dtypes gives the two NaNs two zeros.
#[test]
fn nan_is_a_negative_zero_where_there_is_no_nan() {
    for nan in [f64::NAN, -f64::NAN] {
        assert_eq!(encode(ElementType::F4e2m1fn, nan), 8);
    }
}
