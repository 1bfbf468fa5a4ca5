//! Helpers for tests of shape inference: shapes as text in, a shape or a message out.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use super::infer;
use crate::{Computation, Instruction, InstructionId, Opcode};
use callbox_core::{Result, Shape, StatusCode};

/// A computation's signature as text: parameters and result.
pub(super) type Signature<'a> = (&'a [&'a str], &'a str);

/// Infers a shape where computation `i` has the signature `callees[i]`.
pub(super) fn infer_text(
    opcode: &Opcode,
    operands: &[&str],
    declared: Option<&str>,
    callees: &[Signature<'_>],
) -> Result<Shape> {
    let shape = |text: &str| text.parse::<Shape>().unwrap();
    let operands = Vec::from_iter(operands.iter().map(|text| shape(text)));
    let declared = declared.map(shape);
    let callees = Vec::from_iter(callees.iter().map(computation));
    let operands = Vec::from_iter(&operands);
    infer(opcode, &operands, declared.as_ref(), &callees)
}

/// A computation with this signature. Its root is not an operation on the parameters.
fn computation((parameters, result): &Signature<'_>) -> Computation {
    let instruction = |(i, shape): (usize, &&str)| Instruction {
        name: i.to_string(),
        shape: shape.parse().unwrap(),
        opcode: if i < parameters.len() {
            Opcode::Parameter(i)
        } else {
            Opcode::AfterAll
        },
        operands: Vec::new(),
        control_predecessors: Vec::new(),
    };
    let shapes = parameters.iter().chain([result]).enumerate();
    let root = InstructionId(parameters.len() as u32);
    Computation::new("f".to_owned(), shapes.map(instruction).collect(), root).unwrap()
}

/// Checks the shape of an operation without a declared shape.
pub(super) fn check(opcode: &Opcode, operands: &[&str], result: &str) {
    check_declared(opcode, operands, None, result);
}

/// Checks the shape of an operation with the declared shape `declared`.
pub(super) fn check_declared(
    opcode: &Opcode,
    operands: &[&str],
    declared: Option<&str>,
    result: &str,
) {
    match infer_text(opcode, operands, declared, &[]) {
        Ok(shape) => assert_eq!(shape.to_string(), result, "{opcode:?} of {operands:?}"),
        Err(err) => panic!("{opcode:?} of {operands:?}: {err}"),
    }
}

/// Checks that an operation refuses these operands with INVALID_ARGUMENT and this message.
pub(super) fn refused(opcode: &Opcode, operands: &[&str], message: &str) {
    refused_as(StatusCode::InvalidArgument, opcode, operands, message);
}

/// [`refused`] with another code.
pub(super) fn refused_as(code: StatusCode, opcode: &Opcode, operands: &[&str], message: &str) {
    refused_declared(code, opcode, operands, None, message);
}

/// [`refused_as`] with the declared shape `declared`.
pub(super) fn refused_declared(
    code: StatusCode,
    opcode: &Opcode,
    operands: &[&str],
    declared: Option<&str>,
    message: &str,
) {
    match infer_text(opcode, operands, declared, &[]) {
        Ok(shape) => panic!("{opcode:?} of {operands:?} gave {shape}"),
        Err(err) => assert_eq!((err.code(), err.message()), (code, message), "{opcode:?}"),
    }
}
