//! Runs steps on callbox's platforms: passes data in and collects the outcome.

use anyhow::{Result, ensure};
use callbox::call::{CallOptions, CallSite};
use callbox::program::{Executable, ExecuteOptions};
use callbox::{ArrayShape, Deadline, Shape, Status};

use super::layout::{from_layout, to_layout};
use super::results::Results;
use super::{Failure, Found, Outcome};
use crate::case::{ExpectedLog, Function, Phase, Step};

/// Returns a step's call options.
pub(super) fn options(step: &Step) -> CallOptions {
    CallOptions {
        deadline: step.deadline.map(Deadline::After),
        user_data: step.user_data.clone(),
        ..CallOptions::default()
    }
}

/// Runs a step of a program. `take_log` returns the messages that targets logged.
pub(super) fn execute(
    executable: &Executable,
    step: &Step,
    take_log: fn() -> Vec<ExpectedLog>,
) -> Outcome {
    let options = ExecuteOptions {
        call: options(step),
        ..ExecuteOptions::default()
    };
    let outcome = match &step.function {
        Function::Ordinal(ordinal) => executable.execute(*ordinal, &step.operands, &options),
        Function::Name(name) => executable.execute_named(name, &step.operands, &options),
    };
    let log = take_log();
    match outcome {
        Ok(result) => {
            let leaves = result.leaves();
            let leaves = leaves.map(|(shape, bytes)| (shape.clone(), bytes.to_vec()));
            Ok(Found::Results(leaves.collect(), log))
        }
        Err(status) => Err(Failure::new(Phase::Execute, status)),
    }
}

/// Runs a step of one call site. `call` takes the operands' leaves and writes the results' leaves.
///
/// # Errors
/// A call that wrote outside its results.
pub(super) fn call(
    site: &CallSite,
    step: &Step,
    call: impl FnOnce(&CallOptions, &[&[u8]], &mut [&mut [u8]]) -> Result<(), Status>,
    take_log: fn() -> Vec<ExpectedLog>,
) -> Result<Outcome> {
    let operands = operands(site, step);
    let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
    let shapes = site.result.leaves();
    // A scratch leaf has no buffer and is no result.
    let is_scratch = |leaf: usize| site.is_scratch(leaf);
    let sizes = shapes.iter().enumerate().map(|(leaf, shape)| {
        if is_scratch(leaf) {
            0
        } else {
            shape.byte_size()
        }
    });
    let mut results = Results::new(sizes.collect());
    let outcome = call(&options(step), &operands, &mut results.buffers());
    let log = take_log();
    ensure!(!results.were_left(), "the call wrote outside its results");
    Ok(match outcome {
        Ok(()) => {
            let leaves = std::iter::zip(shapes, results.contents()).enumerate();
            let leaves = leaves.filter(|(leaf, _)| !is_scratch(*leaf));
            let leaves =
                leaves.map(|(_, (shape, bytes))| (shape.clone(), from_layout(shape, bytes)));
            Ok(Found::Results(leaves.collect(), log))
        }
        Err(status) => Err(Failure {
            wrote_results: results.are_touched(),
            ..Failure::new(Phase::Execute, status)
        }),
    })
}

/// Returns the operands' leaves, in the call site's layouts where their shapes match.
fn operands(site: &CallSite, step: &Step) -> Vec<Vec<u8>> {
    let declared: Vec<&ArrayShape> = site.operands.iter().flat_map(Shape::leaves).collect();
    let leaves = step.operands.iter().flat_map(|operand| operand.leaves());
    leaves
        .enumerate()
        .map(|(i, (shape, bytes))| match declared.get(i) {
            Some(declared) if declared.is_compatible(shape) => to_layout(declared, bytes),
            _ => bytes.to_vec(),
        })
        .collect()
}
