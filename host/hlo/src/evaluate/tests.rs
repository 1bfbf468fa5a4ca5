//! Helpers for tests of operations, and tests of the operations that only forward values.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod functions;

use std::sync::Arc;

use super::teamwork::THREE;
use super::*;
use crate::instruction::{
    Computation, Convolution, ConvolutionDimensions, InstructionId, UnaryOperation, WindowDimension,
};
use callbox_core::values::{ArrayShape, ElementType, NativeType};
use callbox_core::values::{Blame, StatusCode};

/// Evaluates an operation that calls no computation. `shape` is text.
pub(super) fn run(opcode: Opcode, shape: &str, operands: &[Literal]) -> Literal {
    let result = evaluate(&instruction(opcode, shape, &[]), operands, &mut Nobody).unwrap();
    assert_eq!(result.shape().to_string(), shape);
    result
}

pub(super) fn instruction(opcode: Opcode, shape: &str, operands: &[u32]) -> Instruction {
    Instruction {
        name: "test".into(),
        shape: shape.parse().unwrap(),
        opcode,
        operands: operands.iter().copied().map(InstructionId).collect(),
        control_predecessors: Vec::new(),
    }
}

/// A computation whose last instruction is its root.
pub(super) fn computation(instructions: Vec<Instruction>) -> Computation {
    let root = InstructionId(u32::try_from(instructions.len()).unwrap() - 1);
    Computation::new("test".into(), instructions, root).unwrap()
}

/// A row of elements.
pub(super) fn row<T: NativeType>(elements: &[T]) -> Literal {
    Literal::array(&[elements.len()], elements).unwrap()
}

/// An array from its bytes, for types without a Rust type.
pub(super) fn raw(shape: &str, bytes: &[u8]) -> Literal {
    let shape: ArrayShape = shape.parse().unwrap();
    Literal::from_bytes(shape, bytes.to_vec()).unwrap()
}

/// An array whose element `i` is `i`.
pub(super) fn counting(shape: &str) -> Literal {
    let shape: ArrayShape = shape.parse().unwrap();
    let numbers = (0..shape.element_count() as u64).collect::<Vec<_>>();
    let bytes = convert::convert(
        array(&row(&numbers)).unwrap().elements(),
        shape.element_type(),
    );
    Literal::from_bytes(shape, bytes.unwrap()).unwrap()
}

/// Elements of a floating-point type, rounded from these.
pub(super) fn reals(element_type: ElementType, elements: &[f64]) -> Literal {
    let bytes = convert::convert(array(&row(elements)).unwrap().elements(), element_type);
    raw(
        &format!("{element_type}[{}]", elements.len()),
        &bytes.unwrap(),
    )
}

/// A floating-point array's elements.
pub(super) fn to_f64(x: &Literal) -> Vec<f64> {
    let bytes = convert::convert(array(x).unwrap().elements(), ElementType::F64).unwrap();
    bytes.chunks_exact(8).map(f64::read).collect()
}

/// Whether the numbers and the signs of zeros are equal. NaN equals NaN.
#[track_caller]
pub(super) fn assert_same(found: &[f64], expected: &[f64], what: &str) {
    let same = |(x, y): (&f64, &f64)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    let all = found.len() == expected.len() && std::iter::zip(found, expected).all(same);
    assert!(all, "{what}: expected {expected:?}, found {found:?}");
}

/// A callee that must not be used.
struct Nobody;

impl Callee for Nobody {
    fn program(&self) -> &Program {
        panic!("this operation calls no computation")
    }

    fn team(&self) -> Team<'_> {
        THREE
    }

    fn run(&mut self, _: ComputationId, _: &[Literal]) -> Result<Literal> {
        panic!("this operation calls no computation")
    }
}

#[test]
fn values_are_handed_on_without_a_copy() {
    let x = counting("f32[2,3]");
    let leaf = |x: &Literal| x.shared_leaves()[0].clone();
    let unchanged = [
        (Opcode::Copy, "f32[2,3]{0,1}"),
        (Opcode::Reshape, "f32[3,1,2]"),
        (Opcode::Convert, "f32[2,3]{0,1}"),
        (Opcode::BitcastConvert, "u8[2,3,4]"),
        (Opcode::Bitcast, "s32[6]"),
        (Opcode::OptimizationBarrier, "f32[2,3]{1,0}"),
    ];
    for (opcode, shape) in unchanged {
        let result = run(opcode.clone(), shape, std::slice::from_ref(&x));
        assert!(Arc::ptr_eq(&leaf(&result), &leaf(&x)), "{opcode:?}");
    }
    let constant = run(Opcode::Constant(x.clone()), "f32[2,3]{1,0}", &[]);
    assert!(Arc::ptr_eq(&leaf(&constant), &leaf(&x)));
}

#[test]
fn a_bitcast_to_pred_gives_0_and_1() {
    let x = raw("u8[4]", &[0, 1, 2, 255]);
    for opcode in [Opcode::BitcastConvert, Opcode::Bitcast] {
        let result = run(opcode, "pred[4]", std::slice::from_ref(&x));
        assert_eq!(result.bytes(), Some([0, 1, 1, 1].as_slice()));
    }
}

#[test]
fn tuples_are_taken_apart() {
    let (x, y) = (counting("s8[2]"), counting("u16[3]"));
    let inner = run(
        Opcode::Tuple,
        "(u16[3], ())",
        &[y.clone(), Literal::tuple(vec![]).unwrap()],
    );
    let outer = run(
        Opcode::Tuple,
        "(s8[2], (u16[3], ()), s8[2])",
        &[x.clone(), inner.clone(), x.clone()],
    );
    let element = |index, shape| {
        run(
            Opcode::GetTupleElement(index),
            shape,
            std::slice::from_ref(&outer),
        )
    };
    assert_eq!(element(0, "s8[2]"), x);
    assert_eq!(element(1, "(u16[3], ())"), inner);
    assert_eq!(element(2, "s8[2]"), x);
    let barrier = run(Opcode::OptimizationBarrier, "(s8[2], u16[3])", &[x, y]);
    assert_eq!(barrier.leaves().len(), 2);
    assert_eq!(
        run(Opcode::Copy, "(s8[2], (u16[3]{0}, ()), s8[2])", &[outer])
            .leaves()
            .len(),
        3
    );
}

#[test]
fn tokens_have_no_elements() {
    let token = run(Opcode::AfterAll, "token[]", &[]);
    let after = run(Opcode::AfterAll, "token[]", &[token.clone(), token.clone()]);
    assert_eq!(after, token);
    let predicate = Literal::scalar(true);
    assert_eq!(
        run(
            Opcode::Select,
            "token[]",
            &[predicate, token.clone(), token.clone()]
        ),
        token
    );
}

#[test]
fn what_the_verifier_refuses_is_a_bug_of_the_host() {
    let x = Literal::scalar(true);
    let wrong: [(Opcode, &str, &[Literal]); 6] = [
        (Opcode::Parameter(0), "pred[]", &[]),
        (Opcode::Call(ComputationId(0)), "pred[]", &[]),
        (
            Opcode::Unary(UnaryOperation::Exponential),
            "pred[]",
            std::slice::from_ref(&x),
        ),
        (
            Opcode::Transpose(vec![1]),
            "pred[]",
            std::slice::from_ref(&x),
        ),
        (Opcode::Copy, "f32[]", std::slice::from_ref(&x)),
        (Opcode::Copy, "pred[]", &[]),
    ];
    for (opcode, shape, operands) in wrong {
        let status = evaluate(&instruction(opcode, shape, &[]), operands, &mut Nobody).unwrap_err();
        assert_eq!(status.code(), StatusCode::Internal);
        assert!(
            status.message().starts_with("host bug: "),
            "{}",
            status.message()
        );
    }
}

#[test]
fn what_does_not_fit_into_memory_is_refused() {
    let huge = instruction(Opcode::Iota(0), "f64[1000000000000000000]", &[]);
    let status = evaluate(&huge, &[], &mut Nobody).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted);
    assert_eq!(status.blame(), Blame::Caller);
}

/// The distance from one of a single position or element to the next may be any number.
#[test]
fn windows_of_one_element_have_any_distance() {
    let labels = || ConvolutionDimensions {
        outer: 0,
        features: 1,
        spatial: vec![2],
    };
    let convolved = |dimension: WindowDimension, shape: &str, x: &Literal| {
        let convolution = Convolution {
            window: vec![dimension],
            input: labels(),
            kernel: labels(),
            output: labels(),
            feature_groups: 1,
            batch_groups: 1,
        };
        let kernel = raw("f32[1,1,1]", &2_f32.to_le_bytes());
        let operands = [x.clone(), kernel];
        to_f64(&run(
            Opcode::Convolution(convolution.into()),
            shape,
            &operands,
        ))
    };
    let x = row(&[1_f32, 5.0, 7.0]);
    let x = raw("f32[1,1,3]", x.bytes().unwrap());
    for is_reversed in [false, true] {
        let dilated = WindowDimension {
            window_dilation: usize::MAX / 2,
            is_reversed,
            ..WindowDimension::of_size(1)
        };
        assert_eq!(convolved(dilated, "f32[1,1,3]", &x), [2.0, 10.0, 14.0]);
    }
    let once = WindowDimension {
        stride: usize::MAX / 2,
        ..WindowDimension::of_size(1)
    };
    assert_eq!(convolved(once, "f32[1,1,1]", &x), [2.0]);
}
