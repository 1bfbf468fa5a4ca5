#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use num_complex::Complex;

use super::*;
use crate::evaluate::teamwork::THREE;
use crate::evaluate::tests::{computation, counting, instruction, raw, reals, row, to_f64};
use crate::evaluate::{Team, evaluate};
use crate::instruction::BinaryOperation;
use crate::instruction::{Comparison, ComparisonOrder, Program};

const ID: ComputationId = ComputationId(0);

/// A program of these computations. Calls that need the executor are counted and return `answer`.
pub(in super::super) struct Calls {
    program: Program,
    pub(in super::super) count: usize,
    answer: fn(&[Literal]) -> Literal,
}

impl Calls {
    pub(in super::super) fn new(
        computations: Vec<Computation>,
        answer: fn(&[Literal]) -> Literal,
    ) -> Self {
        let program = Program {
            name: "test".into(),
            computations: computations.into(),
            exports: vec![ID],
        };
        Self {
            program,
            count: 0,
            answer,
        }
    }
}

impl Callee for Calls {
    fn program(&self) -> &Program {
        &self.program
    }

    fn team(&self) -> Team<'_> {
        THREE
    }

    fn run(&mut self, _: ComputationId, arguments: &[Literal]) -> Result<Literal> {
        self.count += 1;
        Ok((self.answer)(arguments))
    }
}

fn none(_: &[Literal]) -> Literal {
    unreachable!("this computation is run on arrays")
}

fn two(operation: BinaryOperation, scalar: &str, operands: &[u32]) -> Computation {
    computation(vec![
        instruction(Opcode::Parameter(0), scalar, &[]),
        instruction(Opcode::Parameter(1), scalar, &[]),
        instruction(Opcode::Binary(operation), scalar, operands),
    ])
}

fn reduced(calls: &mut Calls, dimensions: &[usize], shape: &str, operands: &[Literal]) -> Literal {
    let opcode = Opcode::Reduce {
        dimensions: dimensions.to_vec(),
        computation: ID,
    };
    let result = evaluate(&instruction(opcode, shape, &[]), operands, calls).unwrap();
    assert_eq!(result.shape().to_string(), shape);
    result
}

fn by(
    operation: BinaryOperation,
    dimensions: &[usize],
    shape: &str,
    x: &Literal,
    first: Literal,
) -> Literal {
    let scalar = format!("{}[]", x.shape().as_array().unwrap().element_type());
    let mut calls = Calls::new(vec![two(operation, &scalar, &[1, 0])], none);
    reduced(&mut calls, dimensions, shape, &[x.clone(), first])
}

#[test]
fn any_dimensions_vanish() {
    let x = counting("s32[2,3,4]");
    let sum = |dimensions: &[usize], shape: &str| {
        let sums = by(
            BinaryOperation::Add,
            dimensions,
            shape,
            &x,
            Literal::scalar(100),
        );
        sums.to_vec::<i32>()
            .unwrap()
            .iter()
            .map(|sum| sum - 100)
            .collect::<Vec<_>>()
    };
    assert_eq!(sum(&[0, 1, 2], "s32[]"), [276]);
    assert_eq!(sum(&[2, 0, 1], "s32[]"), [276]);
    assert_eq!(sum(&[2], "s32[2,3]"), [6, 22, 38, 54, 70, 86]);
    assert_eq!(sum(&[1], "s32[2,4]"), [12, 15, 18, 21, 48, 51, 54, 57]);
    assert_eq!(
        sum(&[0], "s32[3,4]"),
        [12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34]
    );
    assert_eq!(sum(&[0, 2], "s32[3]"), [60, 92, 124]);
    assert_eq!(sum(&[], "s32[2,3,4]"), (0..24).collect::<Vec<_>>());
}

#[test]
fn every_operation_reduces() {
    use crate::instruction::BinaryOperation as B;
    let x = row(&[12i16, -7, 9]);
    let s16 = |operation, first: i16| {
        by(operation, &[0], "s16[]", &x, Literal::scalar(first))
            .to_vec::<i16>()
            .unwrap()
    };
    assert_eq!(s16(B::Multiply, 100), [-10064]);
    assert_eq!(s16(B::Maximum, 3), [12]);
    assert_eq!(s16(B::Minimum, -20), [-20]);
    assert_eq!(s16(B::And, -1), [8]);
    assert_eq!(s16(B::Or, 0), [-3]);
    assert_eq!(s16(B::Xor, 0), [12 ^ -7 ^ 9]);
    let p = row(&[true, false, true]);
    let pred = |operation, first: bool| {
        by(operation, &[0], "pred[]", &p, Literal::scalar(first))
            .to_vec::<bool>()
            .unwrap()
    };
    assert_eq!(
        (pred(B::And, true), pred(B::Or, false)),
        (vec![false], vec![true])
    );
    assert_eq!(
        (pred(B::Add, false), pred(B::Multiply, true)),
        (vec![true], vec![false])
    );
    let f = |operation, x: &[f32], first: f32| {
        to_f64(&by(
            operation,
            &[0],
            "f32[]",
            &row(x),
            Literal::scalar(first),
        ))[0]
    };
    assert_eq!(f(B::Maximum, &[1.0, 5.0, -3.0], f32::NEG_INFINITY), 5.0);
    assert!(f(B::Minimum, &[1.0, f32::NAN, -3.0], f32::INFINITY).is_nan());
    assert_eq!(f(B::Multiply, &[1.5, -2.0], 2.0), -6.0);
    let z = row(&[Complex::new(0f64, 1.0), Complex::new(2.0, 0.0)]);
    let c = |operation, first: f64| {
        by(
            operation,
            &[0],
            "c128[]",
            &z,
            Literal::scalar(Complex::from(first)),
        )
    };
    assert_eq!(
        c(B::Add, 0.0).to_vec::<Complex<f64>>().unwrap(),
        [Complex::new(2.0, 1.0)]
    );
    assert_eq!(
        c(B::Multiply, 1.0).to_vec::<Complex<f64>>().unwrap(),
        [Complex::new(0.0, 2.0)]
    );
}

#[test]
fn sums_are_rounded_once() {
    let sum = |x: Literal, shape: &str, zero: Literal| {
        to_f64(&by(BinaryOperation::Add, &[0], shape, &x, zero))[0]
    };
    let ones = |t, first: f64| reals(t, &[&[first], &[1.0; 1000][..]].concat());
    let zero = |t| raw(&format!("{t}[]"), reals(t, &[0.0]).bytes().unwrap());
    let (bf16, f16, f32) = (ElementType::Bf16, ElementType::F16, ElementType::F32);
    assert_eq!(sum(ones(bf16, 256.0), "bf16[]", zero(bf16)), 1256.0);
    assert_eq!(sum(ones(f16, 2048.0), "f16[]", zero(f16)), 3048.0);
    assert_eq!(
        sum(ones(f32, 16_777_216.0), "f32[]", zero(f32)),
        16_778_216.0
    );
}

#[test]
fn rows_longer_and_shorter_than_a_block_are_summed() {
    for (rows, count) in [(1, 5000), (5000, 1), (7, 1023), (1025, 3)] {
        let x = counting(&format!("s64[{rows},{count}]"));
        let found = by(
            BinaryOperation::Add,
            &[1],
            &format!("s64[{rows}]"),
            &x,
            Literal::scalar(0i64),
        );
        let expected = (0..rows).map(|row| (row * count..(row + 1) * count).sum::<i64>());
        assert_eq!(found.to_vec::<i64>().unwrap(), expected.collect::<Vec<_>>());
    }
}

#[test]
fn nothing_reduces_to_the_initial_value() {
    let x = counting("f32[2,0]");
    let found = by(
        BinaryOperation::Add,
        &[1],
        "f32[2]",
        &x,
        Literal::scalar(7f32),
    );
    assert_eq!(to_f64(&found), [7.0, 7.0]);
    assert!(
        to_f64(&by(
            BinaryOperation::Add,
            &[0],
            "f32[0]",
            &x,
            Literal::scalar(7f32)
        ))
        .is_empty()
    );
    let mut calls = Calls::new(vec![two(BinaryOperation::Subtract, "f32[]", &[0, 1])], none);
    let found = reduced(&mut calls, &[1], "f32[2]", &[x, Literal::scalar(7f32)]);
    assert_eq!(to_f64(&found), [7.0, 7.0]);
}

/// The reducer that JAX makes for `argmax`: the larger value, and of equal ones the smaller index.
fn argmax() -> Computation {
    let compare = |direction| Opcode::Compare(direction, ComparisonOrder::Partial);
    computation(vec![
        instruction(Opcode::Parameter(0), "f32[]", &[]),
        instruction(Opcode::Parameter(1), "s32[]", &[]),
        instruction(Opcode::Parameter(2), "f32[]", &[]),
        instruction(Opcode::Parameter(3), "s32[]", &[]),
        instruction(compare(Comparison::Gt), "pred[]", &[0, 2]),
        instruction(compare(Comparison::Eq), "pred[]", &[0, 2]),
        instruction(compare(Comparison::Lt), "pred[]", &[1, 3]),
        instruction(Opcode::Binary(BinaryOperation::And), "pred[]", &[5, 6]),
        instruction(Opcode::Binary(BinaryOperation::Or), "pred[]", &[4, 7]),
        instruction(Opcode::Select, "f32[]", &[4, 0, 2]),
        instruction(Opcode::Select, "s32[]", &[8, 1, 3]),
        instruction(Opcode::Tuple, "(f32[], s32[])", &[9, 10]),
    ])
}

#[test]
fn several_arrays_are_reduced_together() {
    let values = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9].map(|x: i8| f32::from(x));
    let x = Literal::array(&[3, 5], &values).unwrap();
    let first = [Literal::scalar(f32::NEG_INFINITY), Literal::scalar(0)];
    let iota = |dimension| crate::evaluate::tests::run(Opcode::Iota(dimension), "s32[3,5]", &[]);
    let mut calls = Calls::new(vec![argmax()], none);
    let operands = |dimension| [&[x.clone(), iota(dimension)], &first[..]].concat();
    let found = reduced(&mut calls, &[1], "(f32[3], s32[3])", &operands(1)).into_elements();
    assert_eq!(found[0].to_vec::<f32>().unwrap(), [5.0, 9.0, 9.0]);
    assert_eq!(found[1].to_vec::<i32>().unwrap(), [4, 0, 2]);
    let found = reduced(&mut calls, &[0], "(f32[5], s32[5])", &operands(0)).into_elements();
    assert_eq!(found[0].to_vec::<f32>().unwrap(), [9.0, 8.0, 9.0, 7.0, 9.0]);
    assert_eq!(found[1].to_vec::<i32>().unwrap(), [1, 2, 2, 2, 2]);
}

/// A reducer that is associative and not commutative: of two elements the first, unless it is 0.
#[test]
fn neighbours_are_combined_in_order() {
    let zero = Opcode::Constant(Literal::scalar(0));
    let first = computation(vec![
        instruction(Opcode::Parameter(0), "s32[]", &[]),
        instruction(Opcode::Parameter(1), "s32[]", &[]),
        instruction(zero, "s32[]", &[]),
        instruction(
            Opcode::Compare(Comparison::Ne, ComparisonOrder::Partial),
            "pred[]",
            &[0, 2],
        ),
        instruction(Opcode::Select, "s32[]", &[3, 0, 1]),
    ]);
    for count in 1..20usize {
        for start in 0..count {
            let x = (0..count)
                .map(|i| if i < start { 0 } else { i as i32 + 1 })
                .collect::<Vec<_>>();
            let mut calls = Calls::new(vec![first.clone()], none);
            let found = reduced(&mut calls, &[0], "s32[]", &[row(&x), Literal::scalar(0)]);
            assert_eq!(found.to_vec::<i32>().unwrap(), [start as i32 + 1]);
            let found = reduced(&mut calls, &[0], "s32[]", &[row(&x), Literal::scalar(77)]);
            assert_eq!(found.to_vec::<i32>().unwrap(), [77]);
        }
    }
}

/// A reducer that cannot be lifted, for example one with a loop.
#[test]
fn what_cannot_run_on_arrays_is_called_for_each_element() {
    let opaque = computation(vec![
        instruction(Opcode::Parameter(0), "s32[]", &[]),
        instruction(Opcode::Parameter(1), "s32[]", &[]),
        instruction(Opcode::Conditional(vec![]), "s32[]", &[0, 1]),
    ]);
    // Horner's rule, whose result depends on the order.
    let horner = |x: &[Literal]| {
        let [x, y] = [0, 1].map(|i| x[i].to_vec::<i32>().unwrap()[0]);
        Literal::scalar(10 * x + y)
    };
    let mut calls = Calls::new(vec![opaque.clone()], horner);
    let found = reduced(
        &mut calls,
        &[1],
        "s32[2]",
        &[counting("s32[2,3]"), Literal::scalar(9)],
    );
    assert_eq!(found.to_vec::<i32>().unwrap(), [9012, 9345]);
    assert_eq!(calls.count, 6);
    let mut calls = Calls::new(vec![opaque], horner);
    let map = instruction(Opcode::Map(ID), "s32[2,2]", &[]);
    let found = evaluate(
        &map,
        &[counting("s32[2,2]"), counting("s32[2,2]")],
        &mut calls,
    )
    .unwrap();
    assert_eq!(found.to_vec::<i32>().unwrap(), [0, 11, 22, 33]);
    assert_eq!(calls.count, 4);
}

#[test]
fn maps_run_on_arrays() {
    let mut calls = Calls::new(vec![two(BinaryOperation::Subtract, "s32[]", &[1, 0])], none);
    let map = instruction(Opcode::Map(ID), "s32[2,2]", &[]);
    let x = raw("s32[2,2]", &[1; 16]);
    let found = evaluate(&map, &[x, counting("s32[2,2]")], &mut calls).unwrap();
    assert_eq!(
        found.to_vec::<i32>().unwrap(),
        [0, 1, 2, 3].map(|x| x - 0x0101_0101)
    );
    let negate = computation(vec![
        instruction(Opcode::Parameter(0), "f32[]", &[]),
        instruction(
            Opcode::Unary(crate::instruction::UnaryOperation::Negate),
            "f32[]",
            &[0],
        ),
    ]);
    let map = instruction(Opcode::Map(ID), "f32[0,2]", &[]);
    let found = evaluate(
        &map,
        &[counting("f32[0,2]")],
        &mut Calls::new(vec![negate], none),
    )
    .unwrap();
    assert!(found.bytes().unwrap().is_empty());
}

#[test]
fn only_single_operations_are_recognised() {
    let f32 = |operation, operands: &[u32]| single_operation(&two(operation, "f32[]", operands));
    assert_eq!(
        f32(BinaryOperation::Add, &[0, 1]),
        Some(BinaryOperation::Add)
    );
    assert_eq!(
        f32(BinaryOperation::Maximum, &[1, 0]),
        Some(BinaryOperation::Maximum)
    );
    assert_eq!(f32(BinaryOperation::Add, &[0, 0]), None);
    assert_eq!(f32(BinaryOperation::Subtract, &[0, 1]), None);
    assert_eq!(single_operation(&argmax()), None);
}

/// The product of a part can be infinite where the whole is 0.
#[test]
fn long_products_are_those_in_order() {
    for sizes in [[2, 600, 40], [2, 70_001, 1], [1, 600, 1]] {
        let [outer, count, inner] = sizes;
        let mut numbers = vec![1000.0; outer * count * inner];
        for matrix in numbers.chunks_mut(count * inner) {
            matrix[3 * inner..4 * inner].fill(0.0);
        }
        let x = reals(ElementType::F64, &numbers);
        let shape = ArrayShape::new(ElementType::F64, &sizes).unwrap();
        let x = Literal::from_bytes(shape, x.bytes().unwrap().to_vec()).unwrap();
        let one = raw("f64[]", &1.0f64.to_le_bytes());
        let shape = format!("f64[{outer},{inner}]");
        let found = to_f64(&by(BinaryOperation::Multiply, &[1], &shape, &x, one));
        assert_eq!(found, vec![0.0; outer * inner], "{sizes:?}");
    }
}

/// Sums of integers below 2^53 have one value in any order.
#[test]
fn long_rows_and_columns_have_their_exact_sums() {
    for sizes in [
        [3, 70_001, 1],
        [1, 64, 1],
        [2, 1040, 1],
        [5, 33, 20],
        [2, 9, 300],
        [2, 600, 40],
        [1, 300, 1100],
        [3, 4, 5],
    ] {
        let [outer, count, inner] = sizes;
        let numbers = (0..outer * count * inner).map(|i| (i * 7 % 1009) as f64 - 500.0);
        let numbers = Vec::from_iter(numbers);
        let x = reals(ElementType::F64, &numbers);
        let shape = ArrayShape::new(ElementType::F64, &sizes).unwrap();
        let x = Literal::from_bytes(shape, x.bytes().unwrap().to_vec()).unwrap();
        let zero = raw("f64[]", &[0; 8]);
        let shape = format!("f64[{outer},{inner}]");
        let found = to_f64(&by(BinaryOperation::Add, &[1], &shape, &x, zero));
        let most = raw("f64[]", &f64::NEG_INFINITY.to_le_bytes());
        let largest = to_f64(&by(BinaryOperation::Maximum, &[1], &shape, &x, most));
        for (i, (found, largest)) in std::iter::zip(found, largest).enumerate() {
            let column = numbers[i / inner * count * inner..].iter().skip(i % inner);
            let column = Vec::from_iter(column.step_by(inner).take(count).copied());
            assert_eq!(found, column.iter().sum::<f64>(), "{sizes:?}, sum {i}");
            let expected = column.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(largest, expected, "{sizes:?}, maximum {i}");
        }
    }
}
