#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::evaluate::tests::{assert_same, raw, reals, run, to_f64};
use crate::instruction::Opcode;
use callbox_core::values::ElementType;

const NAN: f64 = f64::NAN;
const INFINITY: f64 = f64::INFINITY;

fn check(
    element_type: ElementType,
    (exponent_bits, mantissa_bits): (u32, u32),
    x: &[f64],
    expected: &[f64],
) {
    let opcode = Opcode::ReducePrecision {
        exponent_bits,
        mantissa_bits,
    };
    let shape = format!("{element_type}[{}]", x.len());
    let found = to_f64(&run(opcode, &shape, &[reals(element_type, x)]));
    assert_same(
        &found,
        expected,
        &format!("{element_type} {exponent_bits} {mantissa_bits}"),
    );
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn roundings_are_xlas() {
    let lowest = 2f64.powi(-14);
    let below = lowest * (1.0 - 2f64.powi(-12));
    let x = [
        1.0, 1.0625, 1.1875, 65504.0, 65520.0, 1e-5, 6e-5, 6.1e-5, -6e-8, NAN, INFINITY, -0.0,
        1e30, 3.1, lowest, below,
    ];
    let inf = INFINITY;
    let tables = [
        (
            (5, 10),
            [
                1.0,
                1.0625,
                1.1875,
                65504.0,
                inf,
                0.0,
                0.0,
                0.0,
                -0.0,
                NAN,
                inf,
                -0.0,
                inf,
                3.099609375,
                lowest,
                lowest,
            ],
        ),
        (
            (5, 3),
            [
                1.0, 1.0, 1.25, inf, inf, 0.0, lowest, lowest, -0.0, NAN, inf, -0.0, inf, 3.0,
                lowest, lowest,
            ],
        ),
        (
            (4, 3),
            [
                1.0, 1.0, 1.25, inf, inf, 0.0, 0.0, 0.0, -0.0, NAN, inf, -0.0, inf, 3.0, 0.0, 0.0,
            ],
        ),
        (
            (1, 0),
            [
                0.0, 0.0, 0.0, inf, inf, 0.0, 0.0, 0.0, -0.0, NAN, inf, -0.0, inf, inf, 0.0, 0.0,
            ],
        ),
        (
            (2, 0),
            [
                1.0, 1.0, 1.0, inf, inf, 0.0, 0.0, 0.0, -0.0, NAN, inf, -0.0, inf, inf, 0.0, 0.0,
            ],
        ),
        (
            (5, 0),
            [
                1.0, 1.0, 1.0, inf, inf, 0.0, lowest, lowest, -0.0, NAN, inf, -0.0, inf, 4.0,
                lowest, lowest,
            ],
        ),
    ];
    for (bits, expected) in tables {
        check(ElementType::F32, bits, &x, &expected);
        check(ElementType::F64, bits, &x, &expected);
    }
    check(ElementType::F64, (11, 52), &x, &x);
    check(ElementType::F64, (20, 60), &x, &x);
    let bf16 = [1.0, 1.1875, 65536.0, 6.1e-5];
    check(
        ElementType::Bf16,
        (5, 10),
        &bf16,
        &[1.0, 1.1875, INFINITY, lowest],
    );
    check(ElementType::Bf16, (8, 7), &[3.1], &[3.09375]);
}

/// From XLA:CPU of JAX 0.10.2: subnormal numbers stay if the exponent keeps its number of bits.
#[test]
fn subnormal_numbers_are_rounded_bit_by_bit() {
    let x = [1e-5, 6e-5, -6e-8, 1e30, 3.1];
    check(
        ElementType::F16,
        (5, 3),
        &x,
        &[7.62939453125e-06, 2f64.powi(-14), -0.0, INFINITY, 3.0],
    );
    check(
        ElementType::F16,
        (5, 2),
        &x,
        &[1.52587890625e-05, 2f64.powi(-14), -0.0, INFINITY, 3.0],
    );
    check(
        ElementType::F16,
        (4, 3),
        &x,
        &[0.0, 0.0, -0.0, INFINITY, 3.0],
    );
    check(
        ElementType::F16,
        (8, 23),
        &[1e-5],
        &[1.0013580322265625e-05],
    );
}

#[test]
fn narrow_types_are_rounded_as_numbers() {
    check(
        ElementType::F8e4m3fn,
        (4, 1),
        &[1.125, 1.25, 1.75, 448.0],
        &[1.0, 1.0, 2.0, NAN],
    );
    check(
        ElementType::F8e5m2,
        (5, 1),
        &[1.25, 1.75, 57344.0],
        &[1.0, 2.0, INFINITY],
    );
}

/// From XLA:CPU of JAX 0.10.2: the numbers with the bits 1, 2, 3, 5 and 0x41 (F4: 0 to 4), reduced
/// to their own format.
#[test]
fn narrow_types_have_the_subnormal_numbers_of_a_wider_one() {
    let e = |significand: f64, exponent: i32| significand * 2f64.powi(exponent);
    let table = [
        (
            ElementType::F8e5m2,
            (5, 2),
            [e(1.0, -16), e(2.0, -16), e(3.0, -16), e(5.0, -16), 2.5],
        ),
        (
            ElementType::F8e5m2,
            (5, 1),
            [0.0, e(2.0, -16), e(4.0, -16), e(4.0, -16), 2.0],
        ),
        (ElementType::F8e4m3fn, (4, 3), [0.0, 0.0, 0.0, 0.0, 2.25]),
        (ElementType::F8e3m4, (3, 4), [0.0, 0.0, 0.0, 0.0, 2.125]),
        (
            ElementType::F8e3m4,
            (5, 10),
            [e(1.0, -6), e(2.0, -6), e(3.0, -6), e(5.0, -6), 2.125],
        ),
        (
            ElementType::F8e5m2fnuz,
            (5, 2),
            [0.0, e(2.0, -17), e(4.0, -17), e(4.0, -17), 1.25],
        ),
        (
            ElementType::F8e4m3b11fnuz,
            (4, 2),
            [0.0, 0.0, 0.0, 0.0, 0.125],
        ),
        (ElementType::F8e8m0fnu, (5, 10), [NAN; 5]),
        (ElementType::F4e2m1fn, (2, 1), [0.0, 0.0, 1.0, 1.5, 2.0]),
        (ElementType::F4e2m1fn, (2, 0), [0.0, 0.0, 1.0, 2.0, 2.0]),
        (ElementType::F4e2m1fn, (5, 10), [0.0, 0.5, 1.0, 1.5, 2.0]),
    ];
    for (element_type, (exponent_bits, mantissa_bits), expected) in table {
        let shape = format!("{element_type}[5]");
        let bits = match element_type {
            ElementType::F4e2m1fn => [0, 1, 2, 3, 4],
            _ => [1, 2, 3, 5, 0x41],
        };
        let opcode = Opcode::ReducePrecision {
            exponent_bits,
            mantissa_bits,
        };
        let found = to_f64(&run(opcode, &shape, &[raw(&shape, &bits)]));
        assert_same(&found, &expected, &format!("{element_type}"));
    }
}
