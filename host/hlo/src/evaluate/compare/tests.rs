#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use num_complex::Complex;

use crate::evaluate::tests::{raw, reals, row, run};
use crate::instruction::{Comparison as C, ComparisonOrder as O, Opcode};
use callbox_core::values::{ElementType, Literal, NativeType};

const ALL: [C; 6] = [C::Eq, C::Ne, C::Lt, C::Le, C::Gt, C::Ge];
const NAN: f64 = f64::NAN;
const INFINITY: f64 = f64::INFINITY;

/// Each digit is one result.
fn compare(direction: C, order: O, x: &Literal, y: &Literal) -> String {
    let shape = format!("pred[{}]", x.shape().as_array().unwrap().element_count());
    let found = run(
        Opcode::Compare(direction, order),
        &shape,
        &[x.clone(), y.clone()],
    );
    let found = found.to_vec::<bool>().unwrap();
    found
        .iter()
        .map(|&found| if found { '1' } else { '0' })
        .collect()
}

fn check<T: NativeType>(x: &[T], y: &[T], expected: [&str; 6]) {
    let found = ALL.map(|direction| compare(direction, O::Partial, &row(x), &row(y)));
    assert_eq!(found, expected, "{x:?} {y:?}");
}

/// From XLA:CPU of JAX 0.10.2, for every type.
#[test]
fn orders_of_floating_point_numbers_are_xlas() {
    let x = [0.0, -0.0, NAN, -NAN, INFINITY, -INFINITY, NAN, 1.0];
    let y = [-0.0, 0.0, NAN, -INFINITY, NAN, -NAN, -NAN, NAN];
    let partial = [
        "11000000", "00111111", "00000000", "11000000", "00000000", "11000000",
    ];
    let total = [
        "00100000", "11011111", "01011001", "01111001", "10000110", "10100110",
    ];
    let types = [
        ElementType::F64,
        ElementType::F32,
        ElementType::F16,
        ElementType::Bf16,
        ElementType::F8e5m2,
    ];
    for element_type in types {
        let (x, y) = (reals(element_type, &x), reals(element_type, &y));
        for (order, expected) in [(O::Partial, partial), (O::Total, total)] {
            let found = ALL.map(|direction| compare(direction, order, &x, &y));
            assert_eq!(found, expected, "{element_type} {order:?}");
        }
    }
}

/// IEEE 754's `totalOrder` on the bits of `f32`, in which NaNs differ.
#[test]
fn the_total_order_is_one() {
    let bits: [u32; 12] = [
        0xffff_ffff,
        0xffc0_0000,
        0xff80_0000,
        0xff7f_ffff,
        0x8000_0001,
        0x8000_0000,
        0,
        1,
        0x3f80_0000,
        0x7f80_0000,
        0x7fc0_0000,
        0x7fff_ffff,
    ];
    for (i, &x) in bits.iter().enumerate() {
        for (j, &y) in bits.iter().enumerate() {
            let operand = |bits: u32| raw("f32[1]", &bits.to_le_bytes());
            let found = ALL.map(|d| compare(d, O::Total, &operand(x), &operand(y)) == "1");
            assert_eq!(
                found,
                [i == j, i != j, i < j, i <= j, i > j, i >= j],
                "{x:x} {y:x}"
            );
        }
    }
}

/// From XLA:CPU of JAX 0.10.2: bits in their types' total order.
///
/// The one NaN of a type without -0 is the least value, that of a type without a sign the largest.
#[test]
fn narrow_types_have_a_total_order() {
    let orders: [(&str, &[u8]); 6] = [
        ("f8e4m3fn[1]", &[0xff, 0xfe, 0x81, 0x80, 0, 1, 0x7e, 0x7f]),
        ("f8e4m3fnuz[1]", &[0x80, 0xff, 0x81, 0, 1, 0x7f]),
        ("f8e5m2fnuz[1]", &[0x80, 0xff, 0x81, 0, 1, 0x7f]),
        ("f8e4m3b11fnuz[1]", &[0x80, 0xff, 0x81, 0, 1, 0x7f]),
        ("f8e8m0fnu[1]", &[0, 0x7f, 0x80, 0xfe, 0xff]),
        ("f4e2m1fn[1]", &[15, 9, 8, 0, 1, 7]),
    ];
    for (shape, order) in orders {
        for (i, &x) in order.iter().enumerate() {
            for (j, &y) in order.iter().enumerate() {
                let operand = |bits: u8| raw(shape, &[bits]);
                let found = ALL.map(|d| compare(d, O::Total, &operand(x), &operand(y)) == "1");
                assert_eq!(
                    found,
                    [i == j, i != j, i < j, i <= j, i > j, i >= j],
                    "{shape} {x:x} {y:x}"
                );
            }
        }
    }
}

#[test]
fn integers_are_compared_with_their_signs() {
    check(
        &[-1i8, 5, 5],
        &[1, 5, -5],
        ["010", "101", "100", "110", "001", "011"],
    );
    check(
        &[u64::MAX, 5, 5],
        &[1, 5, 6],
        ["010", "101", "001", "011", "100", "110"],
    );
    check(
        &[i64::MIN, 0],
        &[i64::MAX, 0],
        ["01", "10", "10", "11", "00", "01"],
    );
    check(
        &[false, false, true, true],
        &[false, true, false, true],
        ["1001", "0110", "0100", "1101", "0010", "1011"],
    );
    let (x, y) = (raw("s4[2]", &[0x0f, 7]), raw("s4[2]", &[0xff, 0xf8]));
    assert_eq!(compare(C::Gt, O::Partial, &x, &y), "01");
    assert_eq!(compare(C::Eq, O::Total, &x, &y), "10");
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn complex_numbers_are_equal_or_not() {
    let (one, nan) = (Complex::new(1f64, 2.0), Complex::new(f64::NAN, 0.0));
    let (x, y) = (row(&[one, nan, one]), row(&[one, nan, one.conj()]));
    assert_eq!(compare(C::Eq, O::Partial, &x, &y), "100");
    assert_eq!(compare(C::Ne, O::Partial, &x, &y), "011");
}
