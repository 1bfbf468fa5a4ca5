#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use num_complex::Complex;

use super::*;
use crate::evaluate::tests::{assert_same, raw, reals, row, run, to_f64};
use crate::instruction::Opcode;
use callbox_core::values::{Literal, NativeType};

const NAN: f64 = f64::NAN;
const INFINITY: f64 = f64::INFINITY;

fn to(element_type: ElementType, x: Literal) -> Literal {
    let count = x.shape().as_array().unwrap().element_count();
    run(Opcode::Convert, &format!("{element_type}[{count}]"), &[x])
}

fn check<A: NativeType, B: NativeType>(x: &[A], expected: &[B]) {
    let found = to(B::ELEMENT_TYPE, row(x)).to_vec::<B>().unwrap();
    assert_eq!(found, expected, "{x:?}");
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn floating_point_numbers_become_the_nearest_bound() {
    let x = [
        NAN, -NAN, INFINITY, -INFINITY, 1e20, -1e20, 3e9, -3e9, 256.9, -0.5, -1.5, 127.9, 128.0,
        -0.0,
    ];
    check(
        &x,
        &[
            0i8, 0, 127, -128, 127, -128, 127, -128, 127, 0, -1, 127, 127, 0,
        ],
    );
    check(
        &x,
        &[0u8, 0, 255, 0, 255, 0, 255, 0, 255, 0, 0, 127, 128, 0],
    );
    let (max, min) = (i16::MAX, i16::MIN);
    check(
        &x,
        &[0, 0, max, min, max, min, max, min, 256, 0, -1, 127, 128, 0],
    );
    let (max, min) = (i32::MAX, i32::MIN);
    check(
        &x,
        &[0, 0, max, min, max, min, max, min, 256, 0, -1, 127, 128, 0],
    );
    let max = u32::MAX;
    check(
        &x,
        &[
            0,
            0,
            max,
            0,
            max,
            0,
            3_000_000_000,
            0,
            256,
            0,
            0,
            127,
            128,
            0,
        ],
    );
    let (max, min) = (i64::MAX, i64::MIN);
    check(
        &x,
        &[
            0,
            0,
            max,
            min,
            max,
            min,
            3_000_000_000,
            -3_000_000_000,
            256,
            0,
            -1,
            127,
            128,
            0,
        ],
    );
    let max = u64::MAX;
    check(
        &x,
        &[
            0,
            0,
            max,
            0,
            max,
            0,
            3_000_000_000,
            0,
            256,
            0,
            0,
            127,
            128,
            0,
        ],
    );
    let narrow = |element_type| {
        let found = to(element_type, row(&x)).bytes().unwrap().to_vec();
        found.iter().map(|&x| x as i8).collect::<Vec<_>>()
    };
    assert_eq!(
        narrow(ElementType::S4),
        [0, 0, 7, -8, 7, -8, 7, -8, 7, 0, -1, 7, 7, 0]
    );
    assert_eq!(
        narrow(ElementType::U4),
        [0, 0, 15, 0, 15, 0, 15, 0, 15, 0, 0, 15, 15, 0]
    );
    assert_eq!(
        narrow(ElementType::S2),
        [0, 0, 1, -2, 1, -2, 1, -2, 1, 0, -1, 1, 1, 0]
    );
    assert_eq!(
        narrow(ElementType::U2),
        [0, 0, 3, 0, 3, 0, 3, 0, 3, 0, 0, 3, 3, 0]
    );
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn what_is_not_zero_is_true() {
    check(
        &[NAN, INFINITY, 0.5, 0.0, -0.0, 1e-300],
        &[true, true, true, false, false, true],
    );
    check(&[0, 1, 256, -1], &[false, true, true, true]);
    check(&[false, true], &[0f32, 1.0]);
    check(&[false, true], &[0i64, 1]);
    // A target may have written any byte.
    let any = to(ElementType::S32, raw("pred[3]", &[0, 1, 200]));
    assert_eq!(any.to_vec::<i32>().unwrap(), [0, 1, 1]);
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn integers_keep_their_low_bits() {
    check(&[-1i8, 127], &[u64::MAX, 127]);
    check(&[200u8], &[200i32]);
    check(&[300i32, -300], &[44u8, 212]);
    check(&[u64::MAX, 1 << 40], &[-1i32, 0]);
    let x = [7i8, 8, -8, -9, 15, 16, 127];
    let narrow = |element_type| to(element_type, row(&x)).bytes().unwrap().to_vec();
    assert_eq!(narrow(ElementType::S4), [7, 0xf8, 0xf8, 7, 0xff, 0, 0xff]);
    assert_eq!(narrow(ElementType::U4), [7, 8, 8, 7, 15, 0, 15]);
    assert_eq!(narrow(ElementType::S2), [0xff, 0, 0, 0xff, 0xff, 0, 0xff]);
    let wide = to(ElementType::S8, raw("s4[2]", &[0x08, 0xf7]));
    assert_eq!(wide.to_vec::<i8>().unwrap(), [-8, 7]);
}

#[test]
fn large_integers_are_rounded_once() {
    let middle = (1i64 << 62) + (1 << 54);
    let bf16 = |x: i64| to_f64(&to(ElementType::Bf16, row(&[x])))[0];
    let (even, odd) = ((1i64 << 62) as f64, ((1i64 << 62) + (1 << 55)) as f64);
    assert_eq!(bf16(middle), even);
    assert_eq!(bf16(middle + 1), odd);
    assert_eq!(bf16(-middle - 1), -odd);
    check(
        &[2051i64, 65519, 65520],
        &[2052.0, 65504.0, INFINITY].map(half::f16::from_f64),
    );
    // The native conversions round once.
    let near = [
        0,
        1,
        -1,
        1 << 24,
        (1 << 24) + 1,
        (1 << 54) + (1 << 30) + 1,
        (1 << 54) + (1 << 30),
        i64::MIN,
        i64::MAX,
    ];
    check(&near, &near.map(|x| x as f32));
    check(&near, &near.map(|x| x as f64));
    let near = near.map(|x| x as u64);
    check(&near, &near.map(|x| x as f32));
    check(&near, &near.map(|x| Complex::new(x as f32, 0.0)));
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn integers_become_e8m0() {
    let found = to(ElementType::F8e8m0fnu, row(&[0i32, -1, 3, 5, 6]));
    assert_eq!(found.bytes().unwrap(), [255, 255, 129, 129, 130]);
}

#[test]
fn real_numbers_become_complex_ones() {
    check(
        &[1.5f32, -0.0],
        &[Complex::new(1.5f64, 0.0), Complex::new(-0.0, 0.0)],
    );
    check(&[1.5f64], &[Complex::new(1.5f32, 0.0)]);
    check(&[-3i8], &[Complex::new(-3f32, 0.0)]);
    check(
        &[Complex::new(1e300, 0.1)],
        &[Complex::new(f32::INFINITY, 0.1)],
    );
}

#[test]
fn between_narrow_formats_values_are_kept_or_rounded() {
    let x = reals(ElementType::F8e5m2, &[1.25, -57344.0, 2f64.powi(-16), NAN]);
    let found = to_f64(&to(ElementType::F8e4m3fn, x.clone()));
    assert_same(&found, &[1.25, NAN, 0.0, NAN], "f8e4m3fn");
    assert_same(
        &to_f64(&to(ElementType::F16, x)),
        &[1.25, -57344.0, 2f64.powi(-16), NAN],
        "f16",
    );
}
