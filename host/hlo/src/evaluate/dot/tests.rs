#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use num_complex::Complex;

use crate::evaluate::tests::{counting, raw, reals, row, run, to_f64};
use crate::instruction::{DotDimensions, Opcode};
use callbox_core::values::{ElementType, Literal, NativeType};

fn contracting(lhs: &[usize], rhs: &[usize]) -> DotDimensions {
    DotDimensions {
        lhs_contracting: lhs.to_vec(),
        rhs_contracting: rhs.to_vec(),
        ..DotDimensions::default()
    }
}

fn dot<T: NativeType>(dimensions: DotDimensions, shape: &str, x: &Literal, y: &Literal) -> Vec<T> {
    run(Opcode::Dot(dimensions), shape, &[x.clone(), y.clone()])
        .to_vec()
        .unwrap()
}

#[test]
fn matrices_are_multiplied() {
    let (x, y) = (counting("s32[2,3]"), counting("s32[3,2]"));
    let product = [10, 13, 28, 40];
    assert_eq!(
        dot::<i32>(contracting(&[1], &[0]), "s32[2,2]", &x, &y),
        product
    );
    // The same with either operand the other way round.
    let x_turned = run(
        Opcode::Transpose(vec![1, 0]),
        "s32[3,2]",
        std::slice::from_ref(&x),
    );
    let y_turned = run(
        Opcode::Transpose(vec![1, 0]),
        "s32[2,3]",
        std::slice::from_ref(&y),
    );
    assert_eq!(
        dot::<i32>(contracting(&[0], &[0]), "s32[2,2]", &x_turned, &y),
        product
    );
    assert_eq!(
        dot::<i32>(contracting(&[1], &[1]), "s32[2,2]", &x, &y_turned),
        product
    );
    // Both contracted, and none: an inner and an outer product.
    assert_eq!(
        dot::<i32>(contracting(&[0, 1], &[0, 1]), "s32[]", &x, &x),
        [55]
    );
    assert_eq!(
        dot::<i32>(
            contracting(&[], &[]),
            "s32[2,3]",
            &row(&[1, 2]),
            &row(&[3, 4, 5])
        ),
        [3, 4, 5, 6, 8, 10]
    );
}

/// Compares with the definition, for sizes that are not multiples of a block.
#[test]
fn batches_and_blocks_are_summed_whole() {
    let (batch, rows, inner, columns) = (3, 5, 130, 7);
    let x = (0..batch * rows * inner)
        .map(|i| (i * 7 % 23) as i32 - 11)
        .collect::<Vec<_>>();
    let y = (0..batch * inner * columns)
        .map(|i| (i * 5 % 19) as i32 - 9)
        .collect::<Vec<_>>();
    // The batch is the left operand's last dimension, and the right operand's middle one.
    let (lhs, rhs) = (
        Literal::array(&[rows, inner, batch], &x),
        Literal::array(&[columns, batch, inner], &y),
    );
    let mut expected = Vec::new();
    for b in 0..batch {
        for i in 0..rows {
            for j in 0..columns {
                let term = |k| x[(i * inner + k) * batch + b] * y[(j * batch + b) * inner + k];
                expected.push((0..inner).map(term).sum::<i32>());
            }
        }
    }
    let dimensions = DotDimensions {
        lhs_batch: vec![2],
        rhs_batch: vec![1],
        lhs_contracting: vec![1],
        rhs_contracting: vec![2],
    };
    assert_eq!(
        dot::<i32>(
            dimensions.clone(),
            "s32[3,5,7]",
            &lhs.unwrap(),
            &rhs.unwrap()
        ),
        expected
    );
    let floats = |x: &[i32]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
    let (lhs, rhs) = (
        Literal::array(&[rows, inner, batch], &floats(&x)),
        Literal::array(&[columns, batch, inner], &floats(&y)),
    );
    assert_eq!(
        dot::<f32>(dimensions, "f32[3,5,7]", &lhs.unwrap(), &rhs.unwrap()),
        floats(&expected)
    );
}

#[test]
fn sums_are_rounded_once() {
    let x = [1e8f32, 1.0, -1e8, 0.5];
    assert_eq!(
        dot::<f32>(contracting(&[0], &[0]), "f32[]", &row(&x), &row(&[1f32; 4])),
        [1.5]
    );
    let ones = reals(ElementType::Bf16, &[1.0; 300]);
    let found = run(
        Opcode::Dot(contracting(&[0], &[0])),
        "bf16[]",
        &[ones.clone(), ones.clone()],
    );
    assert_eq!(to_f64(&found), [300.0]);
    // A result may be wider than the operands.
    assert_eq!(
        dot::<f32>(contracting(&[0], &[0]), "f32[]", &ones, &ones),
        [300.0]
    );
    let bytes = row(&[127i8; 100]);
    assert_eq!(
        dot::<i32>(contracting(&[0], &[0]), "s32[]", &bytes, &bytes),
        [1_612_900]
    );
    assert_eq!(
        dot::<f32>(contracting(&[0], &[0]), "f32[]", &bytes, &bytes),
        [1_612_900.0]
    );
    assert_eq!(
        dot::<i8>(contracting(&[0], &[0]), "s8[]", &bytes, &bytes),
        [1_612_900i32 as i8]
    );
    assert_eq!(
        dot::<i32>(
            contracting(&[0], &[0]),
            "s32[]",
            &row(&[200u8]),
            &row(&[-1i8])
        ),
        [-200]
    );
}

#[test]
fn other_types_have_products() {
    let z = row(&[Complex::new(0f32, 1.0), Complex::new(2.0, 0.0)]);
    assert_eq!(
        dot::<Complex<f32>>(contracting(&[0], &[0]), "c64[]", &z, &z),
        [Complex::new(3.0, 0.0)]
    );
    let p = raw("pred[2,2]", &[1, 0, 1, 1]);
    assert_eq!(
        dot::<bool>(contracting(&[1], &[0]), "pred[2,2]", &p, &p),
        [true, false, true, true]
    );
    let infinite = dot::<f32>(
        contracting(&[0], &[0]),
        "f32[]",
        &row(&[f32::INFINITY, 1.0]),
        &row(&[0f32, 1.0]),
    );
    assert!(infinite[0].is_nan());
}

#[test]
fn empty_operands_have_products() {
    assert_eq!(
        dot::<f32>(
            contracting(&[1], &[0]),
            "f32[2,3]",
            &counting("f32[2,0]"),
            &counting("f32[0,3]")
        ),
        [0.0; 6]
    );
    assert!(
        dot::<f32>(
            contracting(&[1], &[0]),
            "f32[0,3]",
            &counting("f32[0,2]"),
            &counting("f32[2,3]")
        )
        .is_empty()
    );
    assert!(
        dot::<f32>(
            contracting(&[1], &[0]),
            "f32[2,0]",
            &counting("f32[2,2]"),
            &counting("f32[2,0]")
        )
        .is_empty()
    );
}

/// A product of integers is exact in any order, so that both ways give the same bits.
#[test]
fn large_products_are_those_of_small_ones() {
    let (rows, depth, columns) = (300, 70, 50);
    let numbers = |count: usize, from: f64| {
        Vec::from_iter((0..count).map(|i| (i * 31 % 257) as f64 * from - 60.0))
    };
    let (x, y) = (
        numbers(2 * rows * depth, 1.0),
        numbers(2 * depth * columns, 0.5),
    );
    let three = |sizes: &str, x: &[f64]| raw(sizes, reals(ElementType::F32, x).bytes().unwrap());
    let found = dot::<f32>(
        DotDimensions {
            lhs_batch: vec![0],
            rhs_batch: vec![0],
            ..contracting(&[2], &[1])
        },
        "f32[2,300,50]",
        &three("f32[2,300,70]", &x),
        &three("f32[2,70,50]", &y),
    );
    for (row, found) in found.chunks(columns).enumerate() {
        let matrix = row / rows * depth * columns;
        let expected = dot::<f32>(
            contracting(&[1], &[0]),
            "f32[1,50]",
            &three("f32[1,70]", &x[row * depth..][..depth]),
            &three("f32[70,50]", &y[matrix..][..depth * columns]),
        );
        assert_eq!(found, expected, "row {row}");
    }
}

/// The sum of an F64 product in another order, or with a fused multiplication, has other last bits.
#[test]
fn many_tiny_products_are_summed_in_order() {
    let (batch, depth) = (1 << 15, 8);
    let numbers = |step: usize| {
        Vec::from_iter((0..batch * depth).map(|i| 1.0 / ((i * step % 1009) as f64 + 3.0)))
    };
    let (x, y) = (numbers(31), numbers(57));
    let found = dot::<f64>(
        DotDimensions {
            lhs_batch: vec![0],
            rhs_batch: vec![0],
            ..contracting(&[2], &[1])
        },
        "f64[32768,1,1]",
        &raw(
            "f64[32768,1,8]",
            reals(ElementType::F64, &x).bytes().unwrap(),
        ),
        &raw(
            "f64[32768,8,1]",
            reals(ElementType::F64, &y).bytes().unwrap(),
        ),
    );
    let pairs = std::iter::zip(x.chunks(depth), y.chunks(depth));
    let expected = pairs.map(|(x, y)| std::iter::zip(x, y).fold(0.0, |sum, (x, y)| sum + x * y));
    assert_eq!(found, Vec::from_iter(expected));
}
