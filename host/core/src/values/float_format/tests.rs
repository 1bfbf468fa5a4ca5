#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use half::{bf16, f16};

use super::*;

/// The output of `testdata/generate.py`, made with ml_dtypes.
const REFERENCE: &str = include_str!("testdata/minifloats.txt");

/// All types except F32, which has too many numbers to test each.
const NARROW: [&str; 11] = [
    "f16",
    "bf16",
    "f8e5m2",
    "f8e4m3",
    "f8e3m4",
    "f8e4m3fn",
    "f8e5m2fnuz",
    "f8e4m3fnuz",
    "f8e4m3b11fnuz",
    "f4e2m1fn",
    "f8e8m0fnu",
];

fn format(name: &str) -> FloatFormat {
    FloatFormat::of(name.parse().unwrap()).unwrap()
}

fn formats() -> impl Iterator<Item = (&'static str, FloatFormat)> {
    NARROW.into_iter().map(|name| (name, format(name)))
}

/// The reference's lines of this kind: a type's name, its format and the rest.
fn lines(kind: &str) -> impl Iterator<Item = (&str, FloatFormat, &str)> {
    let lines = REFERENCE
        .lines()
        .filter_map(move |line| line.strip_prefix(kind));
    lines.map(|line| {
        let (name, rest) = line.trim_start().split_once(' ').unwrap();
        (name, format(name), rest)
    })
}

/// The number with these magnitude bits, computed from the definition without rounding.
fn exact(format: FloatFormat, bits: u32) -> f64 {
    let mantissa =
        f64::from(bits & ((1 << format.mantissa_bits) - 1)) / f64::from(1 << format.mantissa_bits);
    let exponent = (bits >> format.mantissa_bits).cast_signed();
    match exponent {
        0 if format.specials == Specials::PowersOfTwo => 2_f64.powi(-format.bias),
        0 => mantissa * 2_f64.powi(1 - format.bias),
        _ => (1.0 + mantissa) * 2_f64.powi(exponent - format.bias),
    }
}

/// Whether both are the same number with the same sign, or both NaN.
fn is_same(x: f64, y: f64) -> bool {
    x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan())
}

#[test]
fn every_narrow_floating_point_type_has_a_format() {
    for &element_type in &ElementType::ALL {
        let has_format = element_type.is_floating() && element_type != ElementType::F64;
        let format = FloatFormat::of(element_type);
        assert_eq!(format.is_some(), has_format, "{element_type}");
        if let Some(format) = format {
            let sign = u32::from(format.specials != Specials::PowersOfTwo);
            let bits = sign + format.exponent_bits() + format.mantissa_bits();
            assert_eq!(bits, element_type.bit_width(), "{element_type}");
        }
    }
}

#[test]
fn every_number_reads_back() {
    for (name, format) in formats() {
        for bits in 0..=format.largest() {
            let value = exact(format, bits);
            assert!(is_same(format.decode(bits), value), "{name} {bits:#x}");
            assert_eq!(format.round(value), Some(bits), "{name} {value}");
            let negative = match format.specials {
                Specials::PowersOfTwo => None,
                Specials::NegativeZero if bits == 0 => Some(0),
                _ => Some(bits | format.sign(true)),
            };
            assert_eq!(format.round(-value), negative, "{name} -{value}");
        }
        assert_eq!(format.round(1e300), None, "{name}");
    }
}

/// Every NaN is encoded as the default one.
#[test]
fn what_is_read_is_written_back() {
    for (name, format) in formats() {
        let element_type: ElementType = name.parse().unwrap();
        for bits in 0..=u32::MAX >> (32 - element_type.bit_width()) {
            let value = format.decode(bits);
            let expected = if value.is_nan() {
                format.nan(value.is_sign_negative(), None).unwrap()
            } else {
                bits
            };
            assert_eq!(format.encode(value), expected, "{name} {value}");
        }
    }
}

/// Ties go to even. The F64 next to a tie goes to the nearer number.
#[test]
fn numbers_round_to_the_nearest() {
    for (name, format) in formats().filter(|(_, format)| format.specials != Specials::PowersOfTwo) {
        for bits in 1..=format.largest() {
            let midpoint = f64::midpoint(exact(format, bits - 1), exact(format, bits));
            for (value, expected) in [
                (midpoint, bits - (bits & 1)),
                (midpoint.next_down(), bits - 1),
                (midpoint.next_up(), bits),
            ] {
                assert_eq!(format.round(value), Some(expected), "{name} {value}");
                assert_eq!(format.encode(value), expected, "{name} {value}");
            }
        }
    }
}

/// The reference is `numeric_limits::max` of ml_dtypes.
#[test]
fn largest_numbers_are_the_definitions() {
    let largest = [
        65504.0,
        3.3895313892515355e38,
        57344.0,
        240.0,
        15.5,
        448.0,
        57344.0,
        240.0,
        30.0,
        6.0,
        2_f64.powi(127),
    ];
    for ((name, format), expected) in std::iter::zip(formats(), largest) {
        assert_eq!(exact(format, format.largest()), expected, "{name}");
    }
}

#[test]
fn all_values_are_those_of_ml_dtypes() {
    let mut types = 0;
    for (name, format, values) in lines("decode") {
        for (bits, expected) in (0..).zip(values.split(' ')) {
            let expected = f32::from_bits(u32::from_str_radix(expected, 16).unwrap());
            let found = format.decode(bits);
            assert!(
                is_same(found, expected.into()),
                "{name} {bits:#x}: expected {expected}, found {found}"
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
    for (name, format, expected) in lines("encode") {
        assert_eq!(expected.len(), 2 * inputs.len());
        for (i, &input) in inputs.iter().enumerate() {
            let expected = u32::from_str_radix(&expected[2 * i..2 * i + 2], 16).unwrap();
            assert_eq!(format.encode(input), expected, "{name} of {input:e}");
        }
        types += 1;
    }
    assert_eq!(types, 9);
}

/// F16 and BF16 agree with the crate half.
#[test]
fn the_types_of_16_bits_are_those_of_the_crate_half() {
    for bits in 0..=u16::MAX {
        for (name, expected) in [
            ("f16", f16::from_bits(bits).to_f64()),
            ("bf16", bf16::from_bits(bits).to_f64()),
        ] {
            let found = format(name).decode(bits.into());
            assert!(is_same(found, expected), "{name} {bits:#x}");
            if expected.is_finite() {
                assert_eq!(format(name).round(expected), Some(bits.into()), "{name}");
            }
        }
    }
}

/// F32 agrees with Rust's own conversions, for each exponent and around ties.
#[test]
fn the_type_of_32_bits_is_rusts() {
    let format = format("f32");
    for exponent in 0..=u32::from(u8::MAX) {
        for mantissa in [0, 1, 2, 0x2a_aaaa, 0x40_0000, 0x7f_fffe, 0x7f_ffff] {
            let bits = exponent << 23 | mantissa;
            for bits in [bits, bits | 1 << 31] {
                let value = f32::from_bits(bits);
                assert!(is_same(format.decode(bits), value.into()), "{value:e}");
                let midpoint = f64::midpoint(value.into(), value.next_up().into());
                for x in [
                    value.into(),
                    midpoint,
                    midpoint.next_up(),
                    midpoint.next_down(),
                ] {
                    let narrow = x as f32;
                    let finite = narrow.is_finite().then(|| narrow.to_bits());
                    assert_eq!(format.round(x), finite, "{x:e}");
                    if !narrow.is_nan() {
                        assert_eq!(format.encode(x), narrow.to_bits(), "{x:e}");
                    }
                }
            }
        }
    }
    for (x, expected) in [
        (f64::MAX, f32::INFINITY),
        (-1e300, f32::NEG_INFINITY),
        (f64::from_bits(1), 0.0),
    ] {
        assert_eq!(format.encode(x), expected.to_bits(), "{x:e}");
    }
}

#[test]
fn numbers_are_rounded_once() {
    let cases = [
        // Rounded to f32 first, these would be ties and go to even.
        ("f16", 1.0 + 2f64.powi(-11) + 2f64.powi(-40), 0x3c01),
        ("bf16", 1.0 + 2f64.powi(-8) + 2f64.powi(-40), 0x3f81),
        ("bf16", -1.0 - 2f64.powi(-8) - 2f64.powi(-40), 0xbf81),
        ("f8e4m3fn", 1.0 + 2f64.powi(-4) + 2f64.powi(-40), 0x39),
        // Halfway from the largest number to the next power of two, and just below.
        ("f16", 65520.0, 0x7c00),
        ("f16", 65519.999, 0x7bff),
        ("f16", f64::MAX, 0x7c00),
        // The smallest number, its half, and slightly more than its half.
        ("f16", 2f64.powi(-24), 1),
        ("f16", 2f64.powi(-25), 0),
        ("f16", 1.001 * 2f64.powi(-25), 1),
        ("bf16", -f64::from_bits(1), 0x8000),
        ("bf16", f64::NAN, 0x7fc0),
    ];
    for (name, value, expected) in cases {
        assert_eq!(format(name).encode(value), expected, "{name} of {value}");
    }
}

/// Ties between powers of two, which the tables of ml_dtypes lack.
#[test]
fn powers_of_two_are_rounded_up_where_two_are_near() {
    let format = format("f8e8m0fnu");
    for (value, expected) in [
        (1.5, Some(128)),
        (1.5_f64.next_down(), Some(127)),
        (1.5 * 2_f64.powi(126), Some(254)),
        (1.5 * 2_f64.powi(127), None),
        (1.5 * 2_f64.powi(-127), Some(1)),
        (2_f64.powi(-127).next_up(), Some(1)),
        (2_f64.powi(-127), Some(0)),
        (f64::from_bits(1), Some(0)),
        (0.0, None),
        (-1.0, None),
        (f64::INFINITY, None),
        (f64::NAN, None),
    ] {
        assert_eq!(format.round(value), expected, "{value:e}");
        assert_eq!(format.encode(value), expected.unwrap_or(0xff), "{value:e}");
    }
}

/// As in XLA:CPU of JAX 0.10.2. ml_dtypes encodes the two NaNs as two zeros.
#[test]
fn nan_is_a_negative_zero_where_there_is_no_nan() {
    for nan in [f64::NAN, -f64::NAN] {
        assert_eq!(format("f4e2m1fn").encode(nan), 8);
        assert_eq!(format("f4e2m1fn").round(nan), None);
    }
}
