//! Targets that call functions of the program.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and targets of tests need no documentation"
)]

use std::cell::Cell;
use std::rc::Rc;

use callbox_guest::native::{Call, Value};
use callbox_guest::{
    AnyOperand, AnyResult, Context, Failure, FunctionRef, Operand, RemainingOperands,
    RemainingResults, ResultBuffer, StatusCode, target,
};

/// A function of the program: adds two arrays.
fn add(operands: &[AnyOperand<'_>], results: &mut [AnyResult<'_>]) -> Result<(), Failure> {
    let [a, b] = operands else {
        return Err(Failure::invalid_argument("expected 2 operands"));
    };
    let (a, b) = (a.as_typed::<f32>()?, b.as_typed::<f32>()?);
    let mut y = results[0].as_typed::<f32>()?;
    y.expect_dimensions(a.dimensions())?;
    for (y, (a, b)) in y.iter_mut().zip(a.iter().zip(b.iter())) {
        *y = a + b;
    }
    Ok(())
}

#[target]
fn call_twice(
    a: &Operand<f32>,
    b: &Operand<f32>,
    y: &mut ResultBuffer<f32>,
    #[attr] func: FunctionRef,
) -> Result<(), Failure> {
    let mut sum = vec![0.0_f32; a.len()];
    func.call(
        &[a.into(), b.into()],
        &mut [AnyResult::new(&mut sum, a.dimensions())?],
    )?;
    let sum = AnyOperand::new(&sum, a.dimensions())?;
    func.call(&[sum, b.into()], &mut [y.into()])
}

#[test]
fn a_function_is_called_with_memory_of_any_kind() {
    let mut call = Call::new();
    call.operand(&[1.0_f32, 2.0], &[2])
        .operand(&[10.0_f32, 20.0], &[2])
        .result::<f32>(&[2])
        .function_attribute("func", add);
    assert_eq!(call.run::<call_twice>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), [21.0, 42.0]);
}

#[target(name = "xla.graph.launch")]
fn launch(
    rest: RemainingOperands,
    mut results: RemainingResults,
    #[attr] capture: FunctionRef,
) -> Result<(), Failure> {
    capture.call(rest.as_slice(), results.as_mut_slice())
}

#[test]
fn remaining_buffers_are_handed_on_whole() {
    let mut call = Call::new();
    call.operand(&[1.0_f32], &[1])
        .operand(&[2.0_f32], &[1])
        .result::<f32>(&[1])
        .function_attribute("capture", add);
    assert_eq!(call.run::<launch>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), [3.0]);
}

fn failing(_: &[AnyOperand<'_>], results: &mut [AnyResult<'_>]) -> Result<(), Failure> {
    for result in results {
        result.bytes_mut().fill(0);
    }
    Err(Failure::data_loss("the function's own words").recoverable())
}

#[test]
fn a_functions_failure_is_handed_on_as_it_is() {
    let mut call = Call::new();
    call.operand(&[1.0_f32], &[1])
        .result::<f32>(&[1])
        .function_attribute("capture", failing);
    // The target does not know that the failure is recoverable; the host does.
    let expected = Failure::data_loss("the function's own words").recoverable();
    assert_eq!(call.run::<launch>(), Err(expected));
    assert_eq!(
        call.result_elements::<f32>(0),
        [f32::from_bits(0xaaaa_aaaa)],
        "a function that fails writes nothing"
    );
}

/// Calls the functions in turn. The attribute `how` selects how it handles their failures.
#[target]
fn handle(context: &Context, #[attr] how: &str) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for function in context.called_functions() {
        failures.extend(function.call(&[], &mut []).err());
    }
    match how {
        "catch" => Ok(()),
        "first" => Err(failures.swap_remove(0)),
        "last" => Err(failures.pop().unwrap()),
        "own" => {
            context.set_failure(&Failure::aborted("set before"));
            Err(failures.pop().unwrap())
        }
        _ => Err(Failure::internal(format!("wrapped: {}", failures[0]))),
    }
}

#[test]
fn a_target_may_do_something_about_a_failure() {
    let run = |how| {
        let mut call = Call::new();
        call.attribute("how", how);
        for message in ["first", "second"] {
            call.called_function(move |_, _| Err(Failure::unavailable(message).recoverable()));
        }
        call.run::<handle>()
    };
    assert_eq!(run("catch"), Ok(()));
    assert_eq!(
        run("last"),
        Err(Failure::unavailable("second").recoverable())
    );
    // The host keeps the last failure only. Of an earlier one, only what the target knows is left.
    assert_eq!(run("first"), Err(Failure::unavailable("first")));
    assert_eq!(run("own"), Err(Failure::unavailable("second")));
    assert_eq!(
        run("wrap"),
        Err(Failure::internal("wrapped: UNAVAILABLE: first"))
    );
}

/// A call that succeeds clears the host's record of an earlier failure.
#[test]
fn a_failure_is_returned_after_a_success() {
    let mut call = Call::new();
    call.attribute("how", "first")
        .called_function(|_, _| Err(Failure::unavailable("first").recoverable()))
        .called_function(|_, _| Ok(()));
    assert_eq!(call.run::<handle>(), Err(Failure::unavailable("first")));
}

#[test]
fn a_program_may_have_no_called_computations() {
    let mut call = Call::new();
    call.attribute("how", "catch");
    assert_eq!(call.run::<handle>(), Ok(()));
    // The frame of a host of version 1.0 ends before these fields.
    call.called_function(|_, _| Err(Failure::internal("never called")));
    call.minor_version(0);
    assert_eq!(call.run::<handle>(), Ok(()));
}

#[test]
fn a_function_may_call_a_target() {
    let calls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&calls);
    let mut call = Call::new();
    call.operand(&[1.0_f32], &[1])
        .result::<f32>(&[1])
        .function_attribute("capture", move |operands, results| {
            counted.set(counted.get() + 1);
            let x = operands[0].as_typed::<f32>()?;
            let mut inner = Call::new();
            inner
                .operand(&x, x.dimensions())
                .operand(&[5.0_f32], &[1])
                .result::<f32>(&[1])
                .function_attribute("capture", add);
            inner.run::<launch>()?;
            results[0].as_typed::<f32>()?[0] = inner.result_elements(0)[0];
            Ok(())
        });
    assert_eq!(call.run::<launch>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), [6.0]);
    assert_eq!(calls.get(), 1);
}

#[test]
fn buffers_are_row_major() {
    let mut call = Call::new();
    call.operand(&[1.0_f32; 4], &[2, 2])
        .minor_to_major(&[0, 1])
        .result::<f32>(&[2, 2])
        .function_attribute("capture", add);
    assert_eq!(
        call.run::<launch>(),
        Err(Failure::invalid_argument(
            "operand 0 of a function: expected row-major order, found [2,2]{0,1}"
        ))
    );
}

#[test]
fn only_a_function_is_a_function() {
    let mut call = Call::new();
    call.attribute("capture", "add");
    let failure = call.run::<launch>().unwrap_err();
    assert_eq!(
        failure.message(),
        "[execute] Failed to decode all FFI handler attributes (bad attributes: capture)\nDiagnostics:\n\
         attribute capture: Wrong attribute type: expected function but got string"
    );
    let mut call = Call::new();
    call.attribute("capture", Value::Function(7));
    let failure = call.run::<launch>().unwrap_err();
    assert_eq!(failure.code(), StatusCode::NotFound);
}

#[test]
fn memory_has_to_be_as_large_as_its_dimensions() {
    assert_eq!(
        AnyOperand::new(&[1.0_f32; 3], &[2, 2]).map(drop),
        Err(Failure::invalid_argument(
            "wrong number of elements: expected as many as dimensions [2,2] have, found 3"
        ))
    );
    assert!(AnyResult::new(&mut [1.0_f32; 3], &[4]).is_err());
    assert!(AnyResult::new(&mut [1.0_f32; 4], &[4]).is_ok());
}
