//! Conversions, checked at every number of the smaller types and at every point where rounding
//! changes from one number to the next. Rounding is monotone, so that nothing else can be wrong.

use callbox_maths::convert::{Source, Target, convert};

use super::go_on;

/// Converts to 16 bits.
fn narrowed(x: &[f32], target: for<'a> fn(&'a mut [u16]) -> Target<'a>) -> Vec<u16> {
    let mut y = vec![1; x.len()];
    convert(Source::F32(x), target(&mut y), &mut go_on).unwrap();
    y
}

fn widened(source: Source<'_>, length: usize) -> Vec<f32> {
    let mut y = vec![1.0; length];
    convert(source, Target::F32(&mut y), &mut go_on).unwrap();
    y
}

/// The number with these bits, by the definition of a format with this many bits of mantissa.
fn by_definition(bits: u16, mantissa_bits: u32) -> f64 {
    let exponent_bits = 15 - mantissa_bits;
    let bias = (1 << (exponent_bits - 1)) - 1;
    let (mantissa, exponent) = (
        bits & ((1 << mantissa_bits) - 1),
        (bits & 0x7fff) >> mantissa_bits,
    );
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let fraction = f64::from(mantissa) / f64::from(1_u32 << mantissa_bits);
    let power = |exponent: i32| 2.0_f64.powi(exponent);
    sign * match i32::from(exponent) {
        0 => fraction * power(1 - bias),
        all if all == (1 << exponent_bits) - 1 && mantissa == 0 => f64::INFINITY,
        all if all == (1 << exponent_bits) - 1 => f64::NAN,
        some => (1.0 + fraction) * power(some - bias),
    }
}

#[test]
fn every_number_of_16_bits_is_widened_exactly() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for (source, mantissa) in [(Source::F16(&all), 10), (Source::Bf16(&all), 7)] {
        for (bits, found) in all.iter().zip(widened(source, all.len())) {
            let expected = by_definition(*bits, mantissa);
            if expected.is_nan() {
                assert_eq!(found.to_bits(), 0x7fc0_0000, "{bits:#x}");
            } else {
                assert_eq!(found.to_bits(), (expected as f32).to_bits(), "{bits:#x}");
            }
        }
    }
}

#[test]
fn numbers_are_rounded_to_the_nearest_and_ties_to_even() {
    let f16: for<'a> fn(&'a mut [u16]) -> Target<'a> = |y| Target::F16(y);
    let bf16: for<'a> fn(&'a mut [u16]) -> Target<'a> = |y| Target::Bf16(y);
    for (target, mantissa, infinity) in [(f16, 10, 0x7c00_u16), (bf16, 7, 0x7f80)] {
        for sign in [0, 0x8000] {
            let (mut x, mut expected) = (Vec::new(), Vec::new());
            for lower in 0..infinity {
                let upper = lower + 1;
                let below = by_definition(lower, mantissa);
                // What the next number would be if exponents went on.
                let above = if upper == infinity {
                    2.0 * by_definition(lower & !((1 << mantissa) - 1), mantissa)
                } else {
                    by_definition(upper, mantissa)
                };
                let middle = f64::midpoint(below, above) as f32;
                let even = if lower & 1 == 0 { lower } else { upper };
                for (number, bits) in [
                    (below as f32, lower),
                    (middle.next_down(), lower),
                    (middle, even),
                    (middle.next_up(), upper),
                ] {
                    x.push(if sign == 0 { number } else { -number });
                    expected.push(bits | sign);
                }
            }
            for (number, bits) in [(f32::MAX, infinity), (f32::INFINITY, infinity)] {
                x.push(if sign == 0 { number } else { -number });
                expected.push(bits | sign);
            }
            assert_eq!(narrowed(&x, target), expected);
        }
        let nan = f32::from_bits(0xffc1_2345);
        let low = f32::from_bits(0x7f80_0001);
        let quiet = infinity | 1 << (mantissa - 1);
        assert_eq!(narrowed(&[nan, low], target), [quiet; 2]);
    }
}

#[test]
fn integers_are_truncated_and_saturated() {
    let all: Vec<i8> = (i8::MIN..=i8::MAX).collect();
    let wide = widened(Source::S8(&all), all.len());
    assert!(wide.iter().zip(-128..).all(|(x, n)| *x == n as f32));
    let x = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        127.99,
        128.0,
        -128.99,
        -129.0,
        1e30,
        -0.99,
        2.5,
        -3.5,
        f32::MIN_POSITIVE,
    ];
    let mut y = [1; 12];
    convert(Source::F32(&x), Target::S8(&mut y), &mut go_on).unwrap();
    assert_eq!(y, [0, 127, -128, 127, 127, -128, -128, 127, 0, 2, -3, 0]);
    let mut back = vec![0; all.len()];
    convert(Source::F32(&wide), Target::S8(&mut back), &mut go_on).unwrap();
    assert_eq!(back, all);
}

#[test]
fn conversions_between_small_types_round_once() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for (source, target) in [
        (
            Source::F16(&all),
            (|y| Target::Bf16(y)) as for<'a> fn(&'a mut [u16]) -> Target<'a>,
        ),
        (Source::Bf16(&all), |y| Target::F16(y)),
        (Source::F16(&all), |y| Target::F16(y)),
    ] {
        let mut found = vec![1; all.len()];
        convert(source, target(&mut found), &mut go_on).unwrap();
        assert_eq!(found, narrowed(&widened(source, all.len()), target));
    }
    let (x, mut y) = ([0x3c00, 0xd800, 0x7e00], [1; 3]);
    convert(Source::F16(&x), Target::S8(&mut y), &mut go_on).unwrap();
    assert_eq!(y, [1, -128, 0]);
}

#[test]
fn arrays_of_any_length_are_converted_in_pieces() {
    for length in (0..70).chain([4095, 4096, 4097, 10_000]) {
        let x: Vec<f32> = (0..length).map(|i| i as f32 / 8.0 - 60.0).collect();
        let (mut y, mut pauses) = (vec![1; length], 0);
        let mut pause = || {
            pauses += 1;
            go_on()
        };
        convert(Source::F32(&x), Target::F16(&mut y), &mut pause).unwrap();
        assert_eq!(pauses, length.div_ceil(4096));
        let back = widened(Source::F16(&y), length);
        let expected: Vec<f32> = x.iter().map(|x| f16_by_halves(*x)).collect();
        assert_eq!(back, expected);
    }
}

/// Rounds to 11 significant bits, by the rounding of a sum. For numbers from 2^-13 to 2^15.
fn f16_by_halves(x: f32) -> f32 {
    let unit = 2.0_f32.powi(x.abs().max(1.0 / 8192.0).log2().floor() as i32 - 10);
    let steps = f64::from(x / unit);
    (steps.round_ties_even() * f64::from(unit)) as f32
}

#[test]
fn a_stop_leaves_the_rest() {
    let (x, mut y) = (vec![1.0_f32; 10_000], vec![0_i8; 10_000]);
    let mut left = 1;
    let mut pause = || {
        left -= 1;
        if left < 0 { Err("stopped") } else { Ok(()) }
    };
    let found = convert(Source::F32(&x), Target::S8(&mut y), &mut pause);
    assert_eq!(found, Err("stopped"));
    assert_eq!((y[8191], y[8192]), (1, 0));
}
