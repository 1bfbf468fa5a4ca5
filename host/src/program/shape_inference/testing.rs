//! What the tests of shape inference share: shapes as text in, a shape or a message out.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use super::{Callee, infer};
use crate::program::Opcode;
use crate::{Result, Shape, StatusCode};

/// A computation's signature as text: parameters and result.
pub(super) type Signature<'a> = (&'a [&'a str], &'a str);

/// Infers a shape where computation `i` has the signature `callees[i]`.
pub(super) fn infer_text(
    opcode: &Opcode,
    operands: &[&str],
    declared: Option<&str>,
    callees: &[Signature<'_>],
) -> Result<Shape> {
    let shape = |text: &&str| text.parse::<Shape>().unwrap();
    let operands: Vec<_> = operands.iter().map(shape).collect();
    let operands: Vec<_> = operands.iter().collect();
    let declared = declared.as_ref().map(shape);
    let callees: Vec<(Vec<_>, _)> = callees
        .iter()
        .map(|(parameters, result)| (parameters.iter().map(shape).collect(), shape(result)))
        .collect();
    infer(opcode, &operands, declared.as_ref(), &|computation| {
        let (parameters, result) = &callees[computation.index()];
        Callee {
            parameters: parameters.iter().collect(),
            result,
        }
    })
}

/// Checks which shape an operation gives that declares none.
pub(super) fn check(opcode: &Opcode, operands: &[&str], result: &str) {
    check_declared(opcode, operands, None, result);
}

/// Checks which shape an operation gives that declares `declared`.
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

/// Checks that an operation does not take these operands, and what is said of it.
pub(super) fn refused(opcode: &Opcode, operands: &[&str], message: &str) {
    refused_as(StatusCode::InvalidArgument, opcode, operands, message);
}

/// [`refused`] with another code.
pub(super) fn refused_as(code: StatusCode, opcode: &Opcode, operands: &[&str], message: &str) {
    refused_declared(code, opcode, operands, None, message);
}

/// [`refused_as`] of an operation that declares `declared`.
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
