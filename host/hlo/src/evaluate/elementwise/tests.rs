#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::evaluate::tests::{assert_same, counting, raw, reals, row, run, to_f64};
use crate::instruction::{BinaryOperation, Opcode, UnaryOperation};
use callbox_core::values::{ElementType, Literal, Result, Shape};

const NAN: f64 = f64::NAN;
const INFINITY: f64 = f64::INFINITY;

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn clamps_are_xlas() {
    let low = [0.0, NAN, 0.0, 3.0, NAN, 0.0, -0.0, 0.0, -INFINITY];
    let x = [NAN, 1.0, 1.0, 2.0, NAN, -0.0, 0.0, -0.0, INFINITY];
    let high = [1.0, 2.0, NAN, 1.0, NAN, 1.0, 0.0, 0.0, INFINITY];
    let expected = [NAN, NAN, NAN, 1.0, NAN, 0.0, 0.0, 0.0, INFINITY];
    for element_type in [ElementType::F32, ElementType::Bf16] {
        let operands = [low, x, high].map(|x| reals(element_type, &x));
        let found = run(Opcode::Clamp, &format!("{element_type}[9]"), &operands);
        assert_same(&to_f64(&found), &expected, "clamp");
    }
    let found = run(
        Opcode::Clamp,
        "s32[3]",
        &[row(&[0, 0, 5]), row(&[-3, 9, 2]), row(&[4, 4, 1])],
    );
    assert_eq!(found.to_vec::<i32>().unwrap(), [0, 4, 1]);
}

#[test]
fn bounds_may_be_scalars() {
    let x = counting("u8[2,3]");
    let found = run(
        Opcode::Clamp,
        "u8[2,3]",
        &[Literal::scalar(1u8), x.clone(), Literal::scalar(3u8)],
    );
    assert_eq!(found.to_vec::<u8>().unwrap(), [1, 1, 2, 3, 3, 3]);
    let low = raw("u8[2,3]", &[2; 6]);
    let found = run(Opcode::Clamp, "u8[2,3]", &[low, x, Literal::scalar(9u8)]);
    assert_eq!(found.to_vec::<u8>().unwrap(), [2, 2, 2, 3, 4, 5]);
}

#[test]
fn a_select_chooses_elements() {
    // Any byte but 0 is true.
    let which = raw("pred[4]", &[1, 0, 200, 0]);
    for element_type in ["s4", "pred", "bf16", "f32", "f64", "c128"] {
        let shape = format!("{element_type}[4]");
        let x = raw(&shape, &vec![1; counting(&shape).bytes().unwrap().len()]);
        let y = raw(&shape, &vec![0; x.bytes().unwrap().len()]);
        let found = run(Opcode::Select, &shape, &[which.clone(), x.clone(), y]);
        let width = x.bytes().unwrap().len() / 4;
        let expected = [1, 0, 1, 0].into_iter().flat_map(|byte| vec![byte; width]);
        assert_eq!(
            found.bytes().unwrap(),
            expected.collect::<Vec<u8>>(),
            "{element_type}"
        );
    }
}

#[test]
fn a_scalar_predicate_chooses_the_whole() {
    let tuple = |x| Literal::tuple(vec![x, Literal::scalar(2f64)]).unwrap();
    let (x, y) = (tuple(counting("s8[3]")), tuple(raw("s8[3]", &[7; 3])));
    let choose = |which: bool| {
        run(
            Opcode::Select,
            "(s8[3], f64[])",
            &[Literal::scalar(which), x.clone(), y.clone()],
        )
    };
    assert_eq!((choose(true), choose(false)), (x.clone(), y.clone()));
}

/// For all elements, an operation in the type's domain succeeds, and any other is reported as a
/// bug.
#[test]
fn no_elements_make_an_operation_panic() {
    let special = [
        0.0, -0.0, 1.0, -1.0, NAN, INFINITY, -INFINITY, 1e308, -1e-308, 5e-324, 0.5, 1e20,
    ];
    let special = row(&special);
    for &element_type in ElementType::ALL
        .iter()
        .filter(|&&t| t != ElementType::Token)
    {
        let x = run(
            Opcode::Convert,
            &format!("{element_type}[12]"),
            std::slice::from_ref(&special),
        );
        let turned = run(
            Opcode::Reverse(vec![0]),
            &format!("{element_type}[12]"),
            std::slice::from_ref(&x),
        );
        let mut results = 0;
        for operation in UnaryOperation::ALL.iter().copied() {
            results += usize::from(attempt(Opcode::Unary(operation), &[&x]).is_ok());
        }
        for operation in BinaryOperation::ALL.iter().copied() {
            results += usize::from(attempt(Opcode::Binary(operation), &[&x, &turned]).is_ok());
        }
        assert!(results > 10, "{element_type}");
    }
}

/// Complex numbers of all pairs of parts.
#[test]
fn no_complex_numbers_make_an_operation_panic() {
    let parts = [
        0.0, -0.0, 1.0, -1e308, NAN, INFINITY, -INFINITY, 5e-324, 1e-30,
    ];
    let pairs = parts
        .iter()
        .flat_map(|&re| parts.map(|im| num_complex::Complex::new(re, im)));
    let x = row(&pairs.collect::<Vec<_>>());
    let y = run(
        Opcode::Reverse(vec![0]),
        "c128[81]",
        std::slice::from_ref(&x),
    );
    for operation in UnaryOperation::ALL.iter().copied() {
        drop(attempt(Opcode::Unary(operation), &[&x]));
    }
    for operation in BinaryOperation::ALL.iter().copied() {
        drop(attempt(Opcode::Binary(operation), &[&x, &y]));
    }
}

fn attempt(opcode: Opcode, operands: &[&Literal]) -> Result<Literal> {
    use crate::evaluate::{evaluate_alone, tests::instruction};
    let shape: Shape = operands[0].shape().clone();
    let operands = operands.iter().copied().cloned().collect::<Vec<_>>();
    evaluate_alone(&instruction(opcode, &shape.to_string(), &[]), &operands)
}
