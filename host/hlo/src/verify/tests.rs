//! Invalid programs, each with its error.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::Position;
use crate::instruction::{Computation, ComputationId, Instruction, InstructionId, Opcode, Program};
use crate::{BinaryOperation, CustomCall};
use callbox_core::{Literal, Result, StatusCode};

fn id(number: u32) -> InstructionId {
    InstructionId(number)
}

fn callee(number: u32) -> ComputationId {
    ComputationId(number)
}

fn instruction(name: &str, shape: &str, opcode: Opcode, operands: &[u32]) -> Instruction {
    Instruction {
        name: name.to_owned(),
        shape: shape.parse().unwrap(),
        opcode,
        operands: operands.iter().map(|&operand| id(operand)).collect(),
        control_predecessors: Vec::new(),
    }
}

fn parameter(name: &str, number: usize) -> Instruction {
    instruction(name, "f32[2]", Opcode::Parameter(number), &[])
}

fn add(name: &str, operands: &[u32]) -> Instruction {
    instruction(
        name,
        "f32[2]",
        Opcode::Binary(BinaryOperation::Add),
        operands,
    )
}

fn call(number: u32) -> Instruction {
    let name = format!("call.{number}");
    instruction(&name, "f32[2]", Opcode::Call(callee(number)), &[0])
}

/// A computation whose root is its last instruction.
fn computation(name: &str, instructions: Vec<Instruction>) -> Computation {
    let root = id(instructions.len() as u32 - 1);
    Computation::new(name.to_owned(), instructions, root).unwrap()
}

fn verified(computations: Vec<Computation>) -> Result<Program> {
    Ok(Program::verified(
        "test".to_owned(),
        computations,
        vec![callee(0)],
    )?)
}

fn refused(computations: Vec<Computation>, message: &str) {
    let err = verified(computations).unwrap_err();
    assert_eq!(err.message(), message);
    assert_eq!(err.code(), StatusCode::InvalidArgument);
}

#[test]
fn a_program_says_what_its_functions_are() {
    let computations = vec![
        computation(
            "main",
            vec![parameter("x", 0), parameter("y", 1), add("z", &[0, 1])],
        ),
        computation("twice", vec![parameter("x", 0), add("z", &[0, 0])]),
    ];
    let exports = vec![callee(1), callee(0)];
    let program = Program::verified("test".to_owned(), computations, exports).unwrap();
    assert_eq!(program.name(), "test");
    let functions = program.functions();
    let names: Vec<_> = functions
        .iter()
        .map(|f| (f.ordinal, f.name.as_str()))
        .collect();
    assert_eq!(names, [(0, "twice"), (1, "main")]);
    assert_eq!(functions[1].parameters.len(), 2);
    assert_eq!(functions[1].result.to_string(), "f32[2]");
    let z = &program.computations()[0].instructions()[2];
    assert_eq!((z.name(), z.opcode().name()), ("z", "add"));
}

#[test]
fn operands_come_first() {
    refused(
        vec![computation(
            "main",
            vec![add("x", &[0, 1]), parameter("y", 0)],
        )],
        "instruction %x (add) in computation %main: expected operands that come before it, found %x",
    );
    refused(
        vec![computation(
            "main",
            vec![add("x", &[1, 1]), parameter("y", 0)],
        )],
        "instruction %x (add) in computation %main: expected operands that come before it, found %y",
    );
    refused(
        vec![computation(
            "main",
            vec![parameter("x", 0), add("y", &[0, 7])],
        )],
        "instruction %y (add) in computation %main: expected operands that come before it, \
         found number 7 of 2",
    );
    let mut late = parameter("x", 0);
    late.control_predecessors = vec![id(1)];
    refused(
        vec![computation("main", vec![late, add("y", &[0, 0])])],
        "instruction %x (parameter) in computation %main: \
         expected control predecessors that come before it, found %y",
    );
}

#[test]
fn the_position_is_that_of_the_instruction() {
    let main = computation("main", vec![parameter("x", 0)]);
    let wrong = instruction("z", "f32[3]", Opcode::Copy, &[0]);
    let other = computation("other", vec![parameter("x", 0), add("y", &[0, 0]), wrong]);
    let exports = vec![callee(0)];
    let err = Program::verified("test".to_owned(), vec![main, other], exports).unwrap_err();
    let position = Position {
        computation: 1,
        instruction: 2,
    };
    assert_eq!(err.position, Some(position));
}

#[test]
fn names_are_each_ones_own() {
    refused(
        vec![computation(
            "main",
            vec![parameter("x", 0), add("x", &[0, 0])],
        )],
        "computation %main: expected instructions of different names, found two %x",
    );
    refused(
        vec![computation("main", vec![parameter("", 0)])],
        "computation %main: expected a name for each instruction, found an empty one",
    );
    let twin = || computation("main", vec![parameter("x", 0)]);
    refused(
        vec![twin(), twin()],
        "expected computations of different names, found two %main",
    );
}

#[test]
fn the_number_of_parameters_is_bounded() {
    let parameters = (0..(1 << 17) + 1).map(|number| parameter(&format!("p{number}"), number));
    let status = verified(vec![computation("main", parameters.collect())]).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted);
    assert_eq!(
        status.message(),
        "computation %main: expected at most 131072 parameters, found 131073"
    );
}

#[test]
fn parameters_are_complete() {
    let err = Computation::new(
        "main".to_owned(),
        vec![parameter("x", 0), parameter("y", 2)],
        id(0),
    );
    assert_eq!(
        err.unwrap_err().message(),
        "computation %main: expected parameters with the numbers 0 to 1, each once, \
         found parameter 2 (%y)"
    );
    let err = Computation::new(
        "main".to_owned(),
        vec![parameter("x", 0), parameter("y", 0)],
        id(0),
    );
    assert_eq!(
        err.unwrap_err().message(),
        "computation %main: expected parameters with the numbers 0 to 1, each once, \
         found parameter 0 (%y)"
    );
    let mut main = computation("main", vec![parameter("x", 1), parameter("y", 0)]);
    assert_eq!(main.parameters(), [id(1), id(0)]);
    main.parameters.reverse();
    assert_eq!(
        verified(vec![main]).unwrap_err().code(),
        StatusCode::Internal
    );
}

#[test]
fn ids_lead_somewhere() {
    let mut main = computation("main", vec![parameter("x", 0)]);
    main.root = id(1);
    refused(
        vec![main],
        "computation %main: expected a root below 1, found 1",
    );
    refused(
        vec![computation("main", vec![parameter("x", 0), call(1)])],
        "instruction %call.1 (call) in computation %main: expected a computation below 1, found 1",
    );
    let empty = Computation {
        name: "main".to_owned(),
        instructions: Vec::new(),
        parameters: Vec::new(),
        root: id(0),
    };
    refused(
        vec![empty],
        "computation %main: expected a root below 0, found 0",
    );
}

#[test]
fn exports_exist_once() {
    let refused = |exports: &[u32], message: &str| {
        let exports = exports.iter().map(|&export| callee(export)).collect();
        let computations = vec![computation("main", vec![parameter("x", 0)])];
        let err = Program::verified("test".to_owned(), computations, exports).unwrap_err();
        assert_eq!((err.status.message(), err.position), (message, None));
    };
    refused(&[], "expected an exported function at least, found none");
    refused(&[0, 1], "expected a computation below 1, found 1");
    refused(
        &[0, 0],
        "expected each exported function once, found %main twice",
    );
}

#[test]
fn shapes_are_what_operations_give() {
    let two = |shape: &str, opcode| {
        let x = parameter("x", 0);
        vec![computation(
            "main",
            vec![x, instruction("y", shape, opcode, &[0])],
        )]
    };
    assert!(verified(two("f32[1,2]{0,1}", Opcode::Reshape)).is_ok());
    refused(
        two("f32[3]", Opcode::Copy),
        "instruction %y (copy) in computation %main: expected the shape f32[2], found f32[3]",
    );
    refused(
        two("f32[3]", Opcode::Reshape),
        "instruction %y (reshape) in computation %main: \
         expected 2 elements as in f32[2], found 3 in f32[3]",
    );
    refused(
        two("s8[3]", Opcode::Convert),
        "instruction %y (convert) in computation %main: expected the shape s8[2], found s8[3]",
    );
    refused(
        two(
            "f32[2]",
            Opcode::CustomCall(Box::new(CustomCall::new("$x"))),
        ),
        "instruction %y (custom-call) in computation %main: Invalid custom_call_target \"$x\": \
         Call targets that start with '$' are reserved for internal use.",
    );
    let constant = Opcode::Constant(Literal::scalar(1.0f32));
    refused(
        vec![computation(
            "main",
            vec![instruction("c", "s32[]", constant, &[])],
        )],
        "instruction %c (constant) in computation %main: expected the shape f32[], found s32[]",
    );
}

#[test]
fn calls_fit() {
    let wrong = instruction("c", "f32[2]", Opcode::Call(callee(1)), &[0, 0]);
    refused(
        vec![
            computation("main", vec![parameter("x", 0), wrong]),
            computation("callee", vec![parameter("x", 0)]),
        ],
        "instruction %c (call) in computation %main: \
         expected the computation to take (f32[2], f32[2]), found (f32[2])",
    );
}

#[test]
fn no_computation_calls_itself() {
    let calling = |name, callees: &[u32]| {
        let calls = callees.iter().map(|&number| call(number));
        computation(
            name,
            std::iter::once(parameter("x", 0)).chain(calls).collect(),
        )
    };
    refused(
        vec![calling("main", &[0])],
        "instruction %call.0 (call) in computation %main: expected computations that do not call \
         themselves, found %main -> %main",
    );
    refused(
        vec![
            calling("main", &[1, 2]),
            calling("a", &[2]),
            calling("b", &[3]),
            calling("c", &[1]),
        ],
        "instruction %call.2 (call) in computation %a: expected computations that do not call \
         themselves, found %a -> %b -> %c -> %a",
    );
    // Two paths to one computation are not a cycle.
    assert!(
        verified(vec![
            calling("main", &[1, 2]),
            calling("a", &[2]),
            calling("b", &[])
        ])
        .is_ok()
    );
    // Computations of custom calls count as well, and so do uncalled computations.
    let mut opaque = CustomCall::new("target");
    opaque.called_computations = vec![callee(1)];
    let opaque = Opcode::CustomCall(Box::new(opaque));
    refused(
        vec![
            calling("main", &[]),
            computation("a", vec![instruction("c", "f32[2]", opaque, &[])]),
        ],
        "instruction %c (custom-call) in computation %a: expected computations that do not call \
         themselves, found %a -> %a",
    );
}

#[test]
fn depth_does_not_matter() {
    const DEPTH: u32 = 100_000;
    let chain = (0..DEPTH).map(|number| {
        let mut instructions = vec![parameter("x", 0)];
        instructions.extend((number + 1 < DEPTH).then(|| call(number + 1)));
        computation(&format!("c{number}"), instructions)
    });
    assert!(verified(chain.collect()).is_ok());
}
