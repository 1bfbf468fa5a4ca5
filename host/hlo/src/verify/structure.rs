//! Checks that ids are in range and names are unique.

use std::collections::HashSet;

use super::{Position, Unsound};
use crate::instruction::{Computation, ComputationId, Instruction, InstructionId, parameters};
use callbox_core::text::shortened;
use callbox_core::values::{Blame, Result, Status, StatusCode};

/// The most parameters of a computation, which a call passes on between two looks at a deadline.
const MAX_PARAMETERS: usize = 1 << 17;

/// Checks each computation by itself, and the exports.
pub(super) fn check(
    computations: &[Computation],
    exports: &[ComputationId],
) -> Result<(), Unsound> {
    let mut names = HashSet::new();
    for (number, computation) in computations.iter().enumerate() {
        named("computation", &computation.name)?;
        if !names.insert(computation.name.as_str()) {
            return Err(Status::invalid_argument(format!(
                "expected computations of different names, found two %{}",
                shortened(&computation.name)
            ))
            .into());
        }
        check_computation(number, computations)?;
    }
    Ok(check_exports(computations, exports)?)
}

fn check_exports(computations: &[Computation], exports: &[ComputationId]) -> Result<()> {
    if exports.is_empty() {
        return Err(Status::invalid_argument(
            "expected an exported function at least, found none",
        ));
    }
    let mut seen = HashSet::new();
    for export in exports {
        let Some(computation) = computations.get(export.index()) else {
            return Err(unknown_computation(*export, computations.len()));
        };
        if !seen.insert(export) {
            return Err(Status::invalid_argument(format!(
                "expected each exported function once, found %{} twice",
                shortened(&computation.name)
            )));
        }
    }
    Ok(())
}

fn check_computation(number: usize, computations: &[Computation]) -> Result<(), Unsound> {
    let computation = &computations[number];
    let instructions = &computation.instructions;
    let here = |status: Status| {
        status.context(format_args!(
            "computation %{}",
            shortened(&computation.name)
        ))
    };
    let mut names = HashSet::new();
    for (instruction_number, instruction) in instructions.iter().enumerate() {
        named("instruction", &instruction.name).map_err(here)?;
        if !names.insert(instruction.name.as_str()) {
            return Err(here(Status::invalid_argument(format!(
                "expected instructions of different names, found two %{}",
                shortened(&instruction.name)
            )))
            .into());
        }
        check_instruction(instruction_number, instructions, computations.len()).map_err(
            |status| {
                let position = Position {
                    computation: number,
                    instruction: instruction_number,
                };
                Unsound::at(position, computations, status)
            },
        )?;
    }
    if computation.root.index() >= instructions.len() {
        return Err(here(Status::invalid_argument(format!(
            "expected a root below {}, found {}",
            instructions.len(),
            computation.root.index()
        )))
        .into());
    }
    let found = parameters(instructions).map_err(here)?;
    if found.len() > MAX_PARAMETERS {
        return Err(here(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!(
                "expected at most {MAX_PARAMETERS} parameters, found {}",
                found.len()
            ),
        ))
        .into());
    }
    if found != computation.parameters {
        return Err(here(Status::internal(format!(
            "expected {} parameters in order, found {}",
            found.len(),
            computation.parameters.len()
        )))
        .into());
    }
    Ok(())
}

/// Checks that the dependencies of an instruction come before it, so that there is no cycle, and
/// that the computations that it calls exist.
fn check_instruction(
    number: usize,
    instructions: &[Instruction],
    computations: usize,
) -> Result<()> {
    let instruction = &instructions[number];
    for (kind, ids) in [
        ("operands", &instruction.operands),
        ("control predecessors", &instruction.control_predecessors),
    ] {
        let late = |id: &&InstructionId| id.index() >= number;
        if let Some(id) = ids.iter().find(late) {
            let found = match instructions.get(id.index()) {
                Some(other) => format!("%{}", shortened(&other.name)),
                None => format!("number {} of {}", id.index(), instructions.len()),
            };
            return Err(Status::invalid_argument(format!(
                "expected {kind} that come before it, found {found}"
            )));
        }
    }
    let mut called = instruction.opcode.called_computations().into_iter();
    match called.find(|callee| callee.index() >= computations) {
        Some(callee) => Err(unknown_computation(callee, computations)),
        None => Ok(()),
    }
}

fn named(what: &str, name: &str) -> Result<()> {
    match name {
        "" => Err(Status::invalid_argument(format!(
            "expected a name for each {what}, found an empty one"
        ))),
        _ => Ok(()),
    }
}

fn unknown_computation(id: ComputationId, computations: usize) -> Status {
    Status::invalid_argument(format!(
        "expected a computation below {computations}, found {}",
        id.index()
    ))
}
