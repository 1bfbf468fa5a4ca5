//! Signatures that fit, and messages for those that do not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::super::testing::{Signature, infer_text};
use crate::{ComputationId, FusionKind, Opcode};

fn check(opcode: &Opcode, operands: &[&str], callees: &[Signature<'_>], result: &str) {
    let shape = infer_text(opcode, operands, None, callees).unwrap();
    assert_eq!(shape.to_string(), result, "{opcode:?}");
}

fn refused(opcode: &Opcode, operands: &[&str], callees: &[Signature<'_>], message: &str) {
    let err = infer_text(opcode, operands, None, callees).unwrap_err();
    assert_eq!(err.message(), message, "{opcode:?}");
}

fn callee(number: u32) -> ComputationId {
    ComputationId(number)
}

fn while_loop() -> Opcode {
    Opcode::While {
        condition: callee(0),
        body: callee(1),
    }
}

fn conditional(branches: u32) -> Opcode {
    Opcode::Conditional((0..branches).map(callee).collect())
}

fn reduce(dimensions: &[usize]) -> Opcode {
    Opcode::Reduce {
        dimensions: dimensions.to_vec(),
        computation: callee(0),
    }
}

#[test]
fn calls_fit_signatures() {
    let signature: Signature<'_> = (&["f32[2]{0}", "(s32[])"], "pred[]");
    for opcode in [
        Opcode::Call(callee(0)),
        Opcode::Fusion(FusionKind::Loop, callee(0)),
    ] {
        check(&opcode, &["f32[2]", "(s32[])"], &[signature], "pred[]");
        refused(
            &opcode,
            &["f32[2]"],
            &[signature],
            "expected the computation to take (f32[2]), found (f32[2]{0}, (s32[]))",
        );
        refused(
            &opcode,
            &["f32[2]", "s32[]"],
            &[signature],
            "expected the computation to take (f32[2], s32[]), found (f32[2]{0}, (s32[]))",
        );
    }
    check(&Opcode::Call(callee(0)), &[], &[(&[], "()")], "()");
}

#[test]
fn loops_keep_their_state() {
    let state = "(s32[], token[])";
    let condition: Signature<'_> = (&[state], "pred[]");
    check(
        &while_loop(),
        &[state],
        &[condition, (&[state], state)],
        state,
    );
    refused(
        &while_loop(),
        &[state],
        &[condition, (&[state], "s32[]")],
        "expected a body that gives (s32[], token[]), found s32[]",
    );
    refused(
        &while_loop(),
        &[state],
        &[(&[state], "s32[]"), (&[state], state)],
        "expected a condition that gives pred[], found s32[]",
    );
    refused(
        &while_loop(),
        &[state],
        &[condition, (&[state, state], state)],
        "expected the body to take ((s32[], token[])), \
         found ((s32[], token[]), (s32[], token[]))",
    );
    refused(
        &while_loop(),
        &["s32[]"],
        &[condition, (&[state], state)],
        "expected the condition to take (s32[]), found ((s32[], token[]))",
    );
    refused(
        &while_loop(),
        &[state, state],
        &[condition, (&[state], state)],
        "expected 1 operand, found 2",
    );
}

#[test]
fn conditionals_choose_by_predicate_or_index() {
    let branch: Signature<'_> = (&["f32[2]"], "f32[]");
    let other: Signature<'_> = (&["()"], "f32[]");
    check(
        &conditional(2),
        &["pred[]", "f32[2]", "()"],
        &[branch, other],
        "f32[]",
    );
    check(&conditional(1), &["s32[]", "f32[2]"], &[branch], "f32[]");
    for (operands, callees, message) in [
        (
            &["u32[]", "f32[2]"][..],
            &[branch][..],
            "expected pred[] or s32[] to choose by, found u32[]",
        ),
        (
            &["pred[]", "f32[2]"],
            &[branch],
            "expected 2 branch computations for a predicate, found 1",
        ),
        (
            &["s32[]", "f32[2]"],
            &[branch, branch],
            "expected 2 operands behind the index, one for each branch, found 1",
        ),
        (
            &["s32[]", "f32[2]", "f32[2]"],
            &[branch, other],
            "expected branch 1 to take (f32[2]), found (())",
        ),
        (
            &["s32[]", "f32[2]", "f32[2]"],
            &[branch, (&["f32[2]"], "f32[2]")],
            "expected branches that all give f32[], found f32[2] of branch 1",
        ),
        (
            &["s32[]"],
            &[],
            "expected an operand and a branch at least, found 1 and 0 branch computations",
        ),
    ] {
        refused(
            &conditional(callees.len() as u32),
            operands,
            callees,
            message,
        );
    }
}

#[test]
fn maps_are_by_element() {
    let opcode = Opcode::Map(callee(0));
    let signature: Signature<'_> = (&["f32[]", "s32[]"], "pred[]");
    check(
        &opcode,
        &["f32[2,3]", "s32[2,3]"],
        &[signature],
        "pred[2,3]",
    );
    refused(
        &opcode,
        &["f32[2,3]", "s32[3]"],
        &[signature],
        "expected operands of the same dimensions, found f32[2,3] and s32[3]",
    );
    refused(
        &opcode,
        &["f32[2]"],
        &[signature],
        "expected the computation to take (f32[]), found (f32[], s32[])",
    );
    refused(
        &opcode,
        &["f32[2]"],
        &[(&["f32[]"], "(f32[])")],
        "expected a computation that gives a scalar, found (f32[])",
    );
    refused(&opcode, &[], &[signature], "expected operands, found none");
}

#[test]
fn reductions_drop_dimensions() {
    let add: Signature<'_> = (&["f32[]", "f32[]"], "f32[]");
    check(&reduce(&[1]), &["f32[2,3]", "f32[]"], &[add], "f32[2]");
    check(&reduce(&[2, 0]), &["f32[2,3,4]", "f32[]"], &[add], "f32[3]");
    check(&reduce(&[]), &["f32[2]", "f32[]"], &[add], "f32[2]");
    let pair: Signature<'_> = (&["f32[]", "s32[]", "f32[]", "s32[]"], "(f32[], s32[])");
    check(
        &reduce(&[0]),
        &["f32[2,3]", "s32[2,3]", "f32[]", "s32[]"],
        &[pair],
        "(f32[3], s32[3])",
    );
    let single: Signature<'_> = (&["s4[]", "s4[]"], "(s4[])");
    check(&reduce(&[0]), &["s4[2]", "s4[]"], &[single], "(s4[])");
}

#[test]
fn reductions_fit_their_computation() {
    let add: Signature<'_> = (&["f32[]", "f32[]"], "f32[]");
    for (dimensions, operands, callee, message) in [
        (
            &[0][..],
            &["f32[2]", "f32[2]"][..],
            add,
            "expected the initial value f32[], found f32[2]",
        ),
        (
            &[0],
            &["f32[2]", "s32[]"],
            add,
            "expected the initial value f32[], found s32[]",
        ),
        (
            &[1],
            &["f32[2]", "f32[]"],
            add,
            "expected a dimension of f32[2], found 1",
        ),
        (
            &[0, 0],
            &["f32[2]", "f32[]"],
            add,
            "expected each dimension once, found 0 twice",
        ),
        (
            &[0],
            &["f32[2]", "f32[]", "f32[]"],
            add,
            "expected arrays and as many initial values, found 3 operands",
        ),
        (
            &[0],
            &[],
            add,
            "expected arrays and as many initial values, found 0 operands",
        ),
        (
            &[0],
            &["f32[2]", "f32[3]", "f32[]", "f32[]"],
            add,
            "expected arrays of the same dimensions, found f32[2] and f32[3]",
        ),
        (
            &[0],
            &["s32[2]", "s32[]"],
            add,
            "expected the computation to take (s32[], s32[]), found (f32[], f32[])",
        ),
        (
            &[0],
            &["f32[2]", "f32[]"],
            (&["f32[]", "f32[]"], "f32[1]"),
            "expected a computation that gives f32[], found f32[1]",
        ),
        (
            &[0],
            &["f32[2]", "f32[2]", "f32[]", "f32[]"],
            (&["f32[]", "f32[]", "f32[]", "f32[]"], "f32[]"),
            "expected a computation that gives (f32[], f32[]), found f32[]",
        ),
    ] {
        refused(&reduce(dimensions), operands, &[callee], message);
    }
}
