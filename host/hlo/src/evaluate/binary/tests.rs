#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use num_complex::Complex;

use crate::evaluate::tests::{assert_same, raw, reals, row, run, to_f64};
use crate::instruction::{BinaryOperation as B, Opcode};
use callbox_core::values::{ElementType, Literal, NativeType};

const INFINITY: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn binary(operation: B, x: Literal, y: Literal) -> Literal {
    let shape = x.shape().to_string();
    run(Opcode::Binary(operation), &shape, &[x, y])
}

fn check<T: NativeType>(operation: B, x: &[T], y: &[T], expected: &[T]) {
    let found = binary(operation, row(x), row(y)).to_vec::<T>().unwrap();
    assert_eq!(found, expected, "{operation:?} {x:?} {y:?}");
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn operations_on_signed_integers_are_xlas() {
    let x = [-128, -128, 7, -7, 7, -7, 5, 0, -1, 127];
    let y = [-1, 0, 0, 0, -3, 3, 2, 0, -128, 1];
    let tables: [(B, [i8; 10]); 11] = [
        (B::Divide, [-128, -1, -1, -1, -2, -2, 2, -1, 0, 127]),
        (B::Remainder, [0, -128, 7, -7, 1, -1, 1, 0, -1, 0]),
        (B::ShiftLeft, [0, -128, 7, -7, 0, -56, 20, 0, 0, -2]),
        (
            B::ShiftRightArithmetic,
            [-1, -128, 7, -7, 0, -1, 1, 0, -1, 63],
        ),
        (B::ShiftRightLogical, [0, -128, 7, -7, 0, 31, 1, 0, 0, 63]),
        (B::Power, [0, 1, 1, 1, 0, -87, 25, 1, 1, 127]),
        (B::Maximum, [-1, 0, 7, 0, 7, 3, 5, 0, -1, 127]),
        (B::Minimum, [-128, -128, 0, -7, -3, -7, 2, 0, -128, 1]),
        (B::Add, [127, -128, 7, -7, 4, -4, 7, 0, 127, -128]),
        (B::Multiply, [-128, 0, 0, 0, -21, -21, 10, 0, -128, 127]),
        (B::Subtract, [-127, -128, 7, -7, 10, -10, 3, 0, 127, 126]),
    ];
    for (operation, expected) in tables {
        check(operation, &x, &y, &expected);
    }
    check(B::Divide, &[i64::MIN, i64::MIN], &[-1, 0], &[i64::MIN, -1]);
    check(
        B::Remainder,
        &[i64::MIN, i64::MIN],
        &[-1, 0],
        &[0, i64::MIN],
    );
    check(B::Divide, &[i32::MIN, 7], &[-1, -2], &[i32::MIN, -3]);
    check(B::And, &[-4i16, 5], &[6, -1], &[4, 5]);
    check(B::Or, &[-4i16, 5], &[6, -1], &[-2, -1]);
    check(B::Xor, &[-4i16, 5], &[6, -1], &[-6, -6]);
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn shifts_past_the_width_are_xlas() {
    let (x, y) = ([-8, -8, -8, 7, 3], [1, 31, 32, 33, -1]);
    check(B::ShiftLeft, &x, &y, &[-16, 0, 0, 0, 0]);
    check(B::ShiftRightArithmetic, &x, &y, &[-4, -1, -1, 0, 0]);
    check(B::ShiftRightLogical, &x, &y, &[2_147_483_644, 1, 0, 0, 0]);
    let (x, y) = ([i64::MIN, -1, 1], [63, 64, -64]);
    check(B::ShiftLeft, &x, &y, &[0, 0, 0]);
    check(B::ShiftRightArithmetic, &x, &y, &[-1, -1, 0]);
    check(B::ShiftRightLogical, &x, &y, &[1, 0, 0]);
    let (x, y) = ([200u8, 7, 5, 255, 8], [0, 3, 9, 8, 7]);
    check(B::ShiftLeft, &x, &y, &[200, 56, 0, 0, 0]);
    check(B::ShiftRightArithmetic, &x, &y, &[200, 0, 0, 255, 0]);
    check(B::ShiftRightLogical, &x, &y, &[200, 0, 0, 0, 0]);
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn operations_on_unsigned_integers_are_xlas() {
    let (x, y) = ([200, 7, 7, 5, 255, 8], [0, 3, 0, 9, 8, 7]);
    let tables: [(B, [u8; 6]); 7] = [
        (B::Divide, [255, 2, 255, 0, 31, 1]),
        (B::Remainder, [200, 1, 7, 5, 7, 1]),
        (B::Power, [1, 87, 1, 101, 1, 0]),
        (B::Maximum, [200, 7, 7, 9, 255, 8]),
        (B::Add, [200, 10, 7, 14, 7, 15]),
        (B::Multiply, [0, 21, 0, 45, 248, 56]),
        (B::Subtract, [200, 4, 7, 252, 247, 1]),
    ];
    for (operation, expected) in tables {
        check(operation, &x, &y, &expected);
    }
    check(
        B::Divide,
        &[u64::MAX, 3],
        &[2, 0],
        &[u64::MAX / 2, u64::MAX],
    );
    check(B::Maximum, &[u64::MAX], &[1], &[u64::MAX]);
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn powers_of_integers_are_xlas() {
    let x = [0, 0, 0, 1, -1, -1, 2, 2, -2, -2, 3, 2, 2, -1, 5];
    let y = [0, 1, -1, -1, -1, -2, -1, 3, 3, -3, 20, 31, 64, i32::MIN, -5];
    let expected = [
        1,
        0,
        0,
        1,
        -1,
        1,
        0,
        8,
        -8,
        0,
        -808_182_895,
        i32::MIN,
        0,
        1,
        0,
    ];
    check(B::Power, &x, &y, &expected);
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn operations_on_pred_are_xlas() {
    let (x, y) = ([false, false, true, true], [false, true, false, true]);
    let (or, and) = ([false, true, true, true], [false, false, false, true]);
    for operation in [B::Add, B::Maximum, B::Or] {
        check(operation, &x, &y, &or);
    }
    for operation in [B::Multiply, B::Minimum, B::And] {
        check(operation, &x, &y, &and);
    }
    check(B::Xor, &x, &y, &[false, true, true, false]);
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn integers_narrower_than_a_byte_wrap() {
    let s4 = |operation, x: [i8; 6], y: [i8; 6]| {
        let operand = |x: [i8; 6]| raw("s4[6]", &x.map(|x| x as u8));
        let result = binary(operation, operand(x), operand(y));
        result
            .bytes()
            .unwrap()
            .iter()
            .map(|&x| x as i8)
            .collect::<Vec<_>>()
    };
    let (x, y) = ([-8, -8, 7, -7, 3, 0], [-1, 0, 0, 2, 3, -1]);
    assert_eq!(s4(B::Divide, x, y), [-8, -1, -1, -3, 1, 0]);
    assert_eq!(s4(B::Remainder, x, y), [0, -8, 7, -1, 0, 0]);
    assert_eq!(s4(B::Power, x, y), [0, 1, 1, 1, -5, 0]);
    assert_eq!(s4(B::Add, x, y), [7, -8, 7, -5, 6, -1]);
    assert_eq!(s4(B::Multiply, x, y), [-8, 0, 0, 2, -7, 0]);
    assert_eq!(s4(B::Subtract, x, y), [-7, -8, 7, 7, 0, 1]);
    let (x, y) = ([-8, -8, -8, 7, 3, 1], [1, 3, 4, 5, -1, 2]);
    assert_eq!(s4(B::ShiftLeft, x, y), [0, 0, 0, 0, 0, 4]);
    assert_eq!(s4(B::ShiftRightArithmetic, x, y), [-4, -1, -1, 0, 0, 0]);
    assert_eq!(s4(B::ShiftRightLogical, x, y), [4, 1, 0, 0, 0, 0]);
    let u4 = binary(B::Divide, raw("u4[2]", &[9, 9]), raw("u4[2]", &[0, 2]));
    assert_eq!(u4.bytes().unwrap(), [15, 4]);
}

/// From XLA:CPU of JAX 0.10.2, for every type.
#[test]
fn the_larger_and_the_smaller_are_xlas() {
    let x = [0.0, -0.0, NAN, 1.0, INFINITY, -INFINITY, NAN, -0.0, 0.0];
    let y = [-0.0, 0.0, 1.0, NAN, NAN, INFINITY, NAN, -0.0, 0.0];
    let larger = [0.0, 0.0, NAN, NAN, NAN, INFINITY, NAN, -0.0, 0.0];
    let smaller = [-0.0, -0.0, NAN, NAN, NAN, -INFINITY, NAN, -0.0, 0.0];
    for element_type in [
        ElementType::F64,
        ElementType::F32,
        ElementType::F16,
        ElementType::Bf16,
    ] {
        let found = |operation| {
            to_f64(&binary(
                operation,
                reals(element_type, &x),
                reals(element_type, &y),
            ))
        };
        assert_same(&found(B::Maximum), &larger, "maximum");
        assert_same(&found(B::Minimum), &smaller, "minimum");
    }
}

/// From XLA:CPU of JAX 0.10.2, which follows IEEE 754. Each row: base, exponent, power.
#[test]
fn powers_have_xlas_corners() {
    let table = [
        [0.0, 0.0, 1.0],
        [NAN, 0.0, 1.0],
        [1.0, NAN, 1.0],
        [NAN, 1.0, NAN],
        [-1.0, INFINITY, 1.0],
        [-1.0, -INFINITY, 1.0],
        [-8.0, 1.0 / 3.0, NAN],
        [0.0, -1.0, INFINITY],
        [-0.0, -1.0, -INFINITY],
        [-0.0, -2.0, INFINITY],
        [-0.0, 3.0, -0.0],
        [INFINITY, -1.0, 0.0],
        [-INFINITY, 3.0, -INFINITY],
        [-INFINITY, 2.0, INFINITY],
        [-INFINITY, -3.0, -0.0],
        [2.0, INFINITY, INFINITY],
        [0.5, INFINITY, 0.0],
        [2.0, -INFINITY, 0.0],
        [0.5, -INFINITY, INFINITY],
        [-2.0, 3.0, -8.0],
        [-2.0, 2.5, NAN],
        [-INFINITY, 0.5, INFINITY],
        [0.0, INFINITY, 0.0],
        [0.0, -INFINITY, INFINITY],
        [-0.0, 0.5, 0.0],
        [-0.0, -0.5, INFINITY],
        [4.0, 0.5, 2.0],
        [-INFINITY, -0.5, 0.0],
    ];
    check_rows(B::Power, &table);
}

/// From XLA:CPU of JAX 0.10.2. Each row: the dividend, the divisor, the remainder.
#[test]
fn remainders_have_the_dividends_sign() {
    let table = [
        [5.5, 2.0, 1.5],
        [-5.5, 2.0, -1.5],
        [5.5, -2.0, 1.5],
        [-5.5, -2.0, -1.5],
        [1.0, 0.0, NAN],
        [INFINITY, 1.0, NAN],
        [1.0, INFINITY, 1.0],
        [-0.0, 1.0, -0.0],
        [NAN, 1.0, NAN],
        [-6.0, 3.0, -0.0],
        [6.0, -3.0, 0.0],
        [-1.0, INFINITY, -1.0],
    ];
    check_rows(B::Remainder, &table);
}

/// From XLA:CPU of JAX 0.10.2. Each row: y, x, the angle.
#[test]
fn angles_have_xlas_corners() {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};
    let table = [
        [0.0, 0.0, 0.0],
        [0.0, -0.0, PI],
        [-0.0, 0.0, -0.0],
        [-0.0, -0.0, -PI],
        [1.0, 0.0, FRAC_PI_2],
        [-1.0, 0.0, -FRAC_PI_2],
        [INFINITY, INFINITY, FRAC_PI_4],
        [INFINITY, -INFINITY, 3.0 * FRAC_PI_4],
        [NAN, 1.0, NAN],
        [0.0, -1.0, PI],
        [1.0, INFINITY, 0.0],
        [-1.0, -INFINITY, -PI],
    ];
    let found = |i: usize| row(&table.map(|row| row[i]));
    assert_same(
        &to_f64(&binary(B::Atan2, found(0), found(1))),
        &table.map(|row| row[2]),
        "atan2",
    );
}

fn check_rows<const N: usize>(operation: B, table: &[[f64; 3]; N]) {
    for element_type in [ElementType::F64, ElementType::F32, ElementType::Bf16] {
        let column = |i: usize| reals(element_type, &table.map(|row| row[i]));
        let found = to_f64(&binary(operation, column(0), column(1)));
        assert_same(
            &found,
            &table.map(|row| row[2]),
            &format!("{operation:?} {element_type}"),
        );
    }
}

/// The native operations of `f32`, and those of the crate `half` through it, round once, too.
#[test]
fn sums_products_and_quotients_are_rounded_once() {
    let bits = (0u32..2000).map(|i| i.wrapping_mul(2_654_435_761) ^ (i << 7));
    let x = bits.clone().map(f32::from_bits).collect::<Vec<_>>();
    let y = bits
        .map(|bits| f32::from_bits(bits.rotate_left(9) & 0xbfff_ffff))
        .collect::<Vec<_>>();
    type Native = fn(f32, f32) -> f32;
    let native: [(B, Native); 4] = [
        (B::Add, |x, y| x + y),
        (B::Subtract, |x, y| x - y),
        (B::Multiply, |x, y| x * y),
        (B::Divide, |x, y| x / y),
    ];
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    for (operation, native) in native {
        let expected = std::iter::zip(&x, &y)
            .map(|(&x, &y)| native(x, y))
            .collect::<Vec<_>>();
        let found = binary(operation, row(&x), row(&y));
        assert_same(&to_f64(&found), &wide(&expected), &format!("{operation:?}"));
        let short = |x: &[f32]| {
            x.iter()
                .map(|&x| half::bf16::from_f32(x))
                .collect::<Vec<_>>()
        };
        let (x, y) = (short(&x), short(&y));
        let expected =
            std::iter::zip(&x, &y).map(|(&x, &y)| half::bf16::from_f32(native(x.into(), y.into())));
        let expected = expected.map(f64::from).collect::<Vec<_>>();
        let found = binary(operation, row(&x), row(&y));
        assert_same(&to_f64(&found), &expected, &format!("{operation:?} bf16"));
    }
}

#[test]
fn complex_numbers_are_made_and_computed() {
    let complex = run(
        Opcode::Binary(B::Complex),
        "c64[2]",
        &[row(&[1f32, -0.0]), row(&[2f32, 3.0])],
    );
    let z = [Complex::new(1f32, 2.0), Complex::new(-0.0, 3.0)];
    assert_eq!(complex.to_vec::<Complex<f32>>().unwrap(), z);
    let w = [Complex::new(3f32, -4.0), Complex::new(0.0, 1.0)];
    check(
        B::Multiply,
        &z,
        &w,
        &[Complex::new(11.0, 2.0), Complex::new(-3.0, 0.0)],
    );
    check(
        B::Add,
        &z,
        &w,
        &[Complex::new(4.0, -2.0), Complex::new(0.0, 4.0)],
    );
    check(
        B::Subtract,
        &z,
        &w,
        &[Complex::new(-2.0, 6.0), Complex::new(0.0, 2.0)],
    );
    check(
        B::Divide,
        &z,
        &w,
        &[Complex::new(-0.2, 0.4), Complex::new(3.0, 0.0)],
    );
}

#[test]
fn arrays_longer_than_a_block_are_computed_whole() {
    let x = (0..5000).collect::<Vec<i32>>();
    let found = binary(B::Add, row(&x), row(&x)).to_vec::<i32>().unwrap();
    assert!(std::iter::zip(found, x).all(|(found, x)| found == 2 * x));
    let empty = binary(B::Add, row::<f32>(&[]), row::<f32>(&[]));
    assert!(empty.bytes().unwrap().is_empty());
}
