#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use num_complex::Complex;

use crate::evaluate::tests::{assert_same, raw, reals, row, run, to_f64};
use crate::instruction::{Opcode, UnaryOperation as U};
use callbox_core::values::{ElementType, Literal, NativeType};

const INFINITY: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn unary(operation: U, x: Literal) -> Literal {
    let shape = x.shape().to_string();
    run(Opcode::Unary(operation), &shape, &[x])
}

fn check<T: NativeType>(operation: U, x: &[T], expected: &[T]) {
    let found = unary(operation, row(x)).to_vec::<T>().unwrap();
    assert_eq!(found, expected, "{operation:?} {x:?}");
}

/// From XLA:CPU of JAX 0.10.2, for every type.
#[test]
fn functions_of_floating_point_numbers_have_xlas_corners() {
    let x = [
        0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, -2.5, NAN, INFINITY, -INFINITY,
    ];
    let nan = [NAN; 1];
    let tables: [(U, [f64; 11]); 8] = [
        (
            U::Sign,
            [0.0, -0.0, 1.0, -1.0, 1.0, 1.0, -1.0, -1.0, NAN, 1.0, -1.0],
        ),
        (
            U::Abs,
            [
                0.0, 0.0, 0.5, 0.5, 1.5, 2.5, 1.5, 2.5, NAN, INFINITY, INFINITY,
            ],
        ),
        (
            U::Negate,
            [
                -0.0, 0.0, -0.5, 0.5, -1.5, -2.5, 1.5, 2.5, NAN, -INFINITY, INFINITY,
            ],
        ),
        (
            U::RoundNearestAfz,
            [
                0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -2.0, -3.0, NAN, INFINITY, -INFINITY,
            ],
        ),
        (
            U::RoundNearestEven,
            [
                0.0, -0.0, 0.0, -0.0, 2.0, 2.0, -2.0, -2.0, NAN, INFINITY, -INFINITY,
            ],
        ),
        (
            U::Floor,
            [
                0.0, -0.0, 0.0, -1.0, 1.0, 2.0, -2.0, -3.0, NAN, INFINITY, -INFINITY,
            ],
        ),
        (
            U::Ceil,
            [
                0.0, -0.0, 1.0, -0.0, 2.0, 3.0, -1.0, -2.0, NAN, INFINITY, -INFINITY,
            ],
        ),
        (U::Real, x),
    ];
    for element_type in [
        ElementType::F64,
        ElementType::F32,
        ElementType::F16,
        ElementType::Bf16,
        ElementType::F8e5m2,
    ] {
        for (operation, expected) in &tables {
            let found = to_f64(&unary(*operation, reals(element_type, &x)));
            assert_same(&found, expected, &format!("{operation:?} {element_type}"));
        }
        let zeros = to_f64(&unary(U::Imag, reals(element_type, &nan)));
        assert_same(&zeros, &[0.0], "imag");
    }
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn transcendental_functions_have_xlas_corners() {
    let x = [0.0, -0.0, NAN, INFINITY, -INFINITY, -1.0];
    let tables: [(U, [f64; 5]); 14] = [
        (U::Cbrt, [0.0, -0.0, NAN, INFINITY, -INFINITY]),
        (U::Cosine, [1.0, 1.0, NAN, NAN, NAN]),
        (U::Erf, [0.0, -0.0, NAN, 1.0, -1.0]),
        (U::Exponential, [1.0, 1.0, NAN, INFINITY, 0.0]),
        (U::ExponentialMinusOne, [0.0, -0.0, NAN, INFINITY, -1.0]),
        (U::Log, [-INFINITY, -INFINITY, NAN, INFINITY, NAN]),
        (U::LogPlusOne, [0.0, -0.0, NAN, INFINITY, NAN]),
        (U::Logistic, [0.5, 0.5, NAN, 1.0, 0.0]),
        (U::Rsqrt, [INFINITY, -INFINITY, NAN, 0.0, NAN]),
        (U::Sine, [0.0, -0.0, NAN, NAN, NAN]),
        (U::Sqrt, [0.0, -0.0, NAN, INFINITY, NAN]),
        (U::Tan, [0.0, -0.0, NAN, NAN, NAN]),
        (U::Tanh, [0.0, -0.0, NAN, 1.0, -1.0]),
        (U::Abs, [0.0, 0.0, NAN, INFINITY, INFINITY]),
    ];
    for element_type in [ElementType::F64, ElementType::F32, ElementType::Bf16] {
        for (operation, expected) in &tables {
            let found = to_f64(&unary(*operation, reals(element_type, &x[..5])));
            assert_same(&found, expected, &format!("{operation:?} {element_type}"));
        }
    }
    let below = [
        (U::Log, NAN),
        (U::LogPlusOne, -INFINITY),
        (U::Sqrt, NAN),
        (U::Rsqrt, NAN),
    ];
    for (operation, expected) in below {
        let found = to_f64(&unary(operation, row(&x[5..])));
        assert_same(&found, &[expected], &format!("{operation:?}"));
    }
}

/// IEEE 754, computed by hand: 1/3 and sqrt(2) as each type rounds them.
#[test]
fn narrow_types_are_rounded_after_each_operation() {
    let sqrt = |element_type| to_f64(&unary(U::Sqrt, reals(element_type, &[2.0])))[0];
    assert_eq!(sqrt(ElementType::F16), 1.4140625);
    assert_eq!(sqrt(ElementType::Bf16), 1.4140625);
    assert_eq!(sqrt(ElementType::F8e4m3fn), 1.375);
    assert_eq!(sqrt(ElementType::F8e5m2), 1.5);
    assert_eq!(sqrt(ElementType::F4e2m1fn), 1.5);
    let exp = |element_type| to_f64(&unary(U::Exponential, reals(element_type, &[12.0])))[0];
    assert_eq!(exp(ElementType::F16), INFINITY);
    assert_eq!(exp(ElementType::F8e5m2), INFINITY);
    assert!(exp(ElementType::F8e4m3fn).is_nan());
    // 12 is halfway between two of its numbers and becomes 16.
    assert_eq!(exp(ElementType::F8e8m0fnu), 8_388_608.0);
}

/// From XLA:CPU of JAX 0.10.2, except `popcnt` of a negative S4: XLA:CPU counts the bits of the
/// sign extension, too.
#[test]
fn functions_of_integers_are_xlas() {
    let x = [i8::MIN, -1, 0, 1, 2, 127];
    check(U::Negate, &x, &[-128, 1, 0, -1, -2, -127]);
    check(U::Not, &x, &[127, 0, -1, -2, -3, -128]);
    check(U::Abs, &x, &[-128, 1, 0, 1, 2, 127]);
    check(U::Sign, &x, &[-1, -1, 0, 1, 1, 1]);
    check(U::PopulationCount, &x, &[1, 8, 0, 1, 1, 7]);
    check(U::CountLeadingZeros, &x, &[0, 0, 8, 7, 6, 1]);
    check(U::CountLeadingZeros, &[i32::MIN, 0, 127], &[0, 32, 25]);
    check(U::PopulationCount, &[-1i32, 127], &[32, 7]);
    check(U::Abs, &[i64::MIN, -5], &[i64::MIN, 5]);
    let x = [0u64, 1, 2, u64::MAX];
    check(U::Negate, &x, &[0, u64::MAX, u64::MAX - 1, 1]);
    check(U::Not, &x, &[u64::MAX, u64::MAX - 1, u64::MAX - 2, 0]);
    check(U::Sign, &x, &[0, 1, 1, 1]);
    check(U::CountLeadingZeros, &x, &[64, 63, 62, 0]);
    check(U::PopulationCount, &x, &[0, 1, 1, 64]);
    check(U::Not, &[false, true], &[true, false]);
}

#[test]
fn integers_narrower_than_a_byte_keep_to_their_bits() {
    let s4 = |operation| {
        unary(operation, raw("s4[4]", &[0xf8, 0xff, 0, 7]))
            .bytes()
            .unwrap()
            .to_vec()
    };
    assert_eq!(s4(U::Negate), [0xf8, 1, 0, 0xf9]);
    assert_eq!(s4(U::Not), [7, 0, 0xff, 0xf8]);
    assert_eq!(s4(U::PopulationCount), [1, 4, 0, 3]);
    assert_eq!(s4(U::CountLeadingZeros), [0, 0, 4, 1]);
    // The unused bits, which a target may have set, are ignored.
    let u2 = |operation| {
        unary(operation, raw("u2[3]", &[0xf1, 3, 0]))
            .bytes()
            .unwrap()
            .to_vec()
    };
    assert_eq!(u2(U::Negate), [3, 1, 0]);
    assert_eq!(u2(U::Not), [2, 0, 3]);
    assert_eq!(u2(U::CountLeadingZeros), [1, 0, 2]);
}

#[test]
fn only_numbers_are_finite() {
    let x = reals(
        ElementType::F16,
        &[1.0, -0.0, NAN, INFINITY, -INFINITY, 65504.0],
    );
    let finite = run(Opcode::Unary(U::IsFinite), "pred[6]", &[x]);
    assert_eq!(
        finite.to_vec::<bool>().unwrap(),
        [true, true, false, false, false, true]
    );
}

#[test]
fn complex_numbers_have_real_parts() {
    let z = row(&[Complex::new(3f32, -4.0), Complex::new(0.0, -0.0)]);
    let part = |operation| run(Opcode::Unary(operation), "f32[2]", std::slice::from_ref(&z));
    assert_eq!(to_f64(&part(U::Abs)), [5.0, 0.0]);
    assert_eq!(to_f64(&part(U::Real)), [3.0, 0.0]);
    assert_same(&to_f64(&part(U::Imag)), &[-4.0, -0.0], "imag");
}
