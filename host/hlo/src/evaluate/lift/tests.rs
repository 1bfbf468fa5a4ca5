#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::super::teamwork::THREE;
use super::*;
use crate::evaluate::tests::{computation, counting, instruction, row};
use crate::instruction::{BinaryOperation, FusionKind, UnaryOperation};
use callbox_core::values::ElementType;

fn program(computations: Vec<Computation>) -> Program {
    Program {
        name: "test".into(),
        computations: computations.into(),
        exports: vec![ComputationId(0)],
    }
}

fn parameter(scalar: &str) -> Instruction {
    instruction(Opcode::Parameter(0), scalar, &[])
}

fn calling(opcode: Opcode) -> Computation {
    computation(vec![parameter("f32[]"), instruction(opcode, "f32[]", &[0])])
}

fn double() -> Computation {
    computation(vec![
        parameter("f32[]"),
        instruction(Opcode::Binary(BinaryOperation::Add), "f32[]", &[0, 0]),
    ])
}

#[test]
fn scalar_operations_run_on_arrays() {
    let program = program(vec![
        computation(vec![
            parameter("f32[]"),
            instruction(Opcode::Constant(Literal::scalar(0.5f32)), "f32[]", &[]),
            instruction(Opcode::Broadcast(vec![]), "f32[]", &[1]),
            instruction(Opcode::Binary(BinaryOperation::Add), "f32[]", &[0, 2]),
            instruction(Opcode::Call(ComputationId(1)), "f32[]", &[3]),
            instruction(
                Opcode::Fusion(FusionKind::Loop, ComputationId(1)),
                "f32[]",
                &[4],
            ),
            instruction(Opcode::Convert, "s32[]", &[5]),
            instruction(Opcode::Tuple, "(f32[], s32[])", &[5, 6]),
            instruction(Opcode::OptimizationBarrier, "(f32[], s32[])", &[7]),
            instruction(Opcode::GetTupleElement(1), "s32[]", &[8]),
            instruction(Opcode::Bitcast, "s32[]", &[9]),
        ]),
        double(),
    ]);
    let called = &program.computations[0];
    assert!(is_scalar(called, &program));
    let found = run(called, &[counting("f32[5]")], 5, &program, THREE.check).unwrap();
    assert_eq!(found, row(&[2, 6, 10, 14, 18]));
    let found = run(called, &[counting("f32[0]")], 0, &program, THREE.check).unwrap();
    assert_eq!(
        found.shape().as_array().unwrap().element_type(),
        ElementType::S32
    );
}

#[test]
fn other_operations_are_not_taken_for_scalar_ones() {
    let others = [
        calling(Opcode::While {
            condition: ComputationId(0),
            body: ComputationId(0),
        }),
        calling(Opcode::Conditional(vec![])),
        calling(Opcode::Map(ComputationId(0))),
        calling(Opcode::Reshape),
        calling(Opcode::Call(ComputationId(9))),
    ];
    let expected = [false, false, false, true, false];
    for (other, expected) in std::iter::zip(others, expected) {
        let program = program(vec![other]);
        assert_eq!(
            is_scalar(&program.computations[0], &program),
            expected,
            "{program:?}"
        );
    }
    let wide = program(vec![computation(vec![parameter("f32[1]")])]);
    assert!(!is_scalar(&wide.computations[0], &wide));
    let tuples = program(vec![computation(vec![
        instruction(Opcode::Parameter(0), "pred[]", &[]),
        instruction(Opcode::Parameter(1), "(f32[])", &[]),
        instruction(Opcode::Select, "(f32[])", &[0, 1, 1]),
    ])]);
    assert!(!is_scalar(&tuples.computations[0], &tuples));
}

/// In a chain where each computation calls the next twice, the number of calls is exponential.
#[test]
fn computations_without_end_are_left_to_deadlines() {
    let twice = |callee: u32| {
        let call = Opcode::Call(ComputationId(callee));
        computation(vec![
            parameter("f32[]"),
            instruction(call.clone(), "f32[]", &[0]),
            instruction(call, "f32[]", &[1]),
        ])
    };
    let mut computations = (1..64).map(twice).collect::<Vec<_>>();
    computations.push(double());
    let program = program(computations);
    assert!(!is_scalar(&program.computations[0], &program));
    assert!(is_scalar(&program.computations[60], &program));
    let long = (0..300).map(|i| instruction(Opcode::Unary(UnaryOperation::Negate), "f32[]", &[i]));
    let long = computation(std::iter::once(parameter("f32[]")).chain(long).collect());
    assert!(!is_scalar(&long, &program));
}
