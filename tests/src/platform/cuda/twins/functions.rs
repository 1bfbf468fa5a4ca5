//! Twins of `guests/functions/src/lib.rs`: they call functions of the program.

use std::sync::Arc;

use callbox::call::{DeviceBuffer, DeviceQueue, FunctionReference};
use callbox::cuda::{CudaCall, CudaTarget};
use callbox::{ArrayShape, Attribute, Result, Shape, Status, StatusCode};

use super::results::{copy, give_one};
use super::words::{asked, dictionary, failure, function, invalid_argument};
use super::{log, twin};

/// An array with its shape: an operand, or a result of a function.
pub(super) type Value = (ArrayShape, DeviceBuffer);

pub(super) fn twins() -> Vec<(&'static str, CudaTarget)> {
    vec![
        twin("call_ref", |call| {
            let func = named(call, "func")?;
            let all = operands(call);
            call_into(call, func, &all, 0)
        }),
        twin("call_ref_of_options", |call| {
            let options = asked(call.attributes(), "options", dictionary)?;
            let func = asked(options, "func", function)?;
            let func = number_of(call, func)?;
            let all = operands(call);
            call_into(call, func, &all, 0)
        }),
        twin("call_twice", |call| {
            let func = named(call, "func")?;
            let [a, b] = pair(call)?;
            let shape = a.0.clone();
            let inner = call_checked(call, func, &[a, b.clone()], &[shape])?;
            let inner = inner.into_iter().chain([b]).collect::<Vec<_>>();
            call_into(call, func, &inner, 0)
        }),
        twin("xla.graph.launch", |call| {
            let capture = named(call, "capture")?;
            let all = operands(call);
            let shapes: Vec<ArrayShape> = call
                .results()
                .iter()
                .map(|result| result.shape().clone())
                .collect();
            let found = call_checked(call, capture, &all, &shapes)?;
            for (number, value) in found.into_iter().enumerate() {
                give(call, number, &value)?;
            }
            Ok(())
        }),
        twin("descend", descend),
        twin("catch", |call| {
            let func = named(call, "func")?;
            let all = operands(call);
            let outcome = call_into(call, func, &all, 0);
            let code = outcome.as_ref().err().map_or(StatusCode::Ok, Status::code);
            give_one(call, 1, i32::from(code.number()))?;
            match outcome {
                Ok(()) => Ok(()),
                Err(status) => {
                    log("warn", status.message());
                    copy(call, 0, 0)
                }
            }
        }),
        twin("wrap", |call| {
            let func = named(call, "func")?;
            let all = operands(call);
            call_into(call, func, &all, 0)
                .map_err(|status| failure(StatusCode::DataLoss, format!("wrapped: {status}")))
        }),
        twin("first_of_two", |call| {
            let (first, second) = (named(call, "first")?, named(call, "second")?);
            let all = operands(call);
            let outcome = call_into(call, first, &all, 0);
            // The outcome is ignored.
            let _ = call_into(call, second, &all, 0);
            // The failure becomes the target's own, which is not recoverable.
            outcome.map_err(|status| failure(status.code(), status.message()))
        }),
        twin("chain", |call| {
            let mut value = operands(call).remove(0);
            let shape = value.0.clone();
            for &number in &call.site().called_computations {
                let mut found = call_checked(call, number, &[value], std::slice::from_ref(&shape))?;
                value = found.remove(0);
            }
            give(call, 0, &value)
        }),
    ]
}

/// 0 for 0, and otherwise one more than the function's result. The twin waits for its operand, to
/// branch on it.
fn descend(call: &mut CudaCall<'_>) -> Result<()> {
    let next = named(call, "next")?;
    let n = read_s32(call)?;
    if n <= 0 {
        return give_one(call, 0, 0_i32);
    }
    let shape = call.operands()[0].shape().clone();
    let below = call.queue().upload(&(n - 1).to_le_bytes())?;
    let operand = (shape.clone(), below);
    let found = call_checked(call, next, &[operand], &[shape])?;
    let input = Arc::clone(&found[0].1);
    super::results::compute(call, &[input], 0, |inputs, output| {
        let bytes = inputs.first().and_then(|bytes| bytes.first_chunk());
        let below = bytes.map_or(0, |bytes| i32::from_le_bytes(*bytes));
        output.copy_from_slice(&(below + 1).to_le_bytes());
        Ok(())
    })
}

/// Waits for the first operand, an s32.
pub(super) fn read_s32(call: &mut CudaCall<'_>) -> Result<i32> {
    let operand = Arc::clone(call.operands()[0].memory());
    let bytes = call.queue().download(&[operand])?;
    let bytes = bytes.first().and_then(|bytes| bytes.first_chunk().copied());
    bytes
        .map(i32::from_le_bytes)
        .ok_or_else(|| invalid_argument("expected four bytes"))
}

/// The operands' leaves.
pub(super) fn operands(call: &CudaCall<'_>) -> Vec<Value> {
    let operands = call.operands().into_iter();
    operands
        .map(|operand| (operand.shape().clone(), Arc::clone(operand.memory())))
        .collect()
}

fn pair(call: &CudaCall<'_>) -> Result<[Value; 2]> {
    let operands: Result<[Value; 2], _> = operands(call).try_into();
    operands.map_err(|_| Status::internal("expected two operands"))
}

/// The number of the function that an attribute names.
pub(super) fn named(call: &CudaCall<'_>, attribute: &str) -> Result<usize> {
    let name = asked(call.attributes(), attribute, |found: &Attribute| {
        function(found)
    })?;
    number_of(call, name)
}

fn number_of(call: &CudaCall<'_>, name: &str) -> Result<usize> {
    let mut functions = call.site().functions.iter();
    functions
        .position(|function| function.name == name)
        .ok_or_else(|| Status::internal(format!("expected the function {name:?} at the call site")))
}

/// Calls a function with arrays of these shapes, for results of these shapes. Device memory has no
/// shape that callbox could check.
///
/// # Errors
/// INVALID_ARGUMENT for other shapes than the function's; the function's failure.
pub(super) fn call_checked(
    call: &mut CudaCall<'_>,
    number: usize,
    operands: &[Value],
    results: &[ArrayShape],
) -> Result<Vec<Value>> {
    let function = call.site().functions.get(number).cloned();
    let function =
        function.ok_or_else(|| Status::internal("expected a function of this number"))?;
    let shapes: Vec<&ArrayShape> = operands.iter().map(|(shape, _)| shape).collect();
    check(&function, &shapes, &results.iter().collect::<Vec<_>>())
        .map_err(|text| invalid_argument(format!("function {:?}: {text}", function.name)))?;
    let buffers: Vec<DeviceBuffer> = operands
        .iter()
        .map(|(_, buffer)| Arc::clone(buffer))
        .collect();
    let found = call.call_function(number, &buffers)?;
    Ok(std::iter::zip(results.iter().cloned(), found).collect())
}

fn check(
    function: &FunctionReference,
    operands: &[&ArrayShape],
    results: &[&ArrayShape],
) -> std::result::Result<(), String> {
    let parameters: Vec<&ArrayShape> = function.parameters.iter().flat_map(Shape::leaves).collect();
    let leaves = function.result.leaves();
    for (what, expected, found) in [
        ("operand", parameters.as_slice(), operands),
        ("result", leaves.as_slice(), results),
    ] {
        if expected.len() != found.len() {
            return Err(format!(
                "expected {} {what}s, found {}",
                expected.len(),
                found.len()
            ));
        }
        for (number, (expected, found)) in std::iter::zip(expected, found).enumerate() {
            if !expected.is_compatible(found) {
                let (expected, rank) = ((*expected).clone().without_layout(), found.rank());
                return Err(format!(
                    "{what} {number}: expected {expected}, found {} of rank {rank}",
                    (*found).clone().without_layout()
                ));
            }
        }
    }
    Ok(())
}

/// Calls a function for one result.
pub(super) fn call_into(
    call: &mut CudaCall<'_>,
    function: usize,
    operands: &[Value],
    result: usize,
) -> Result<()> {
    let shape = call.results()[result].shape().clone();
    let found = call_checked(call, function, operands, &[shape])?;
    give(call, result, &found[0])
}

/// Copies an array to a result.
pub(super) fn give(call: &mut CudaCall<'_>, number: usize, value: &Value) -> Result<()> {
    let result = super::results::result(call, number)?;
    if result.size() == 0 {
        return Ok(());
    }
    call.queue().copy(&value.1, &result)
}
