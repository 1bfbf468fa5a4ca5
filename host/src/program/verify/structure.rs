//! Whether ids lead anywhere and names are each one's own.

use std::collections::HashSet;

use super::place;
use crate::program::instruction::{
    Computation, ComputationId, Instruction, InstructionId, parameters,
};
use crate::values::{Result, Status};

/// Checks computations each by itself, and the exports.
pub(super) fn check(computations: &[Computation], exports: &[ComputationId]) -> Result<()> {
    let mut names = HashSet::new();
    for computation in computations {
        named("computation", &computation.name)?;
        if !names.insert(computation.name.as_str()) {
            return Err(Status::invalid_argument(format!(
                "expected computations of different names, found two %{}",
                computation.name
            )));
        }
        check_computation(computation, computations.len())?;
    }
    check_exports(computations, exports)
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
                computation.name
            )));
        }
    }
    Ok(())
}

fn check_computation(computation: &Computation, computations: usize) -> Result<()> {
    let instructions = &computation.instructions;
    let here = |status: Status| status.context(format_args!("computation %{}", computation.name));
    let mut names = HashSet::new();
    for (number, instruction) in instructions.iter().enumerate() {
        named("instruction", &instruction.name).map_err(here)?;
        if !names.insert(instruction.name.as_str()) {
            return Err(here(Status::invalid_argument(format!(
                "expected instructions of different names, found two %{}",
                instruction.name
            ))));
        }
        let place = || place(&instruction.name, &instruction.opcode, &computation.name);
        check_instruction(number, instruction, instructions).map_err(|s| s.context(place()))?;
        let called = instruction.opcode.called_computations();
        if let Some(callee) = called.into_iter().find(|c| c.index() >= computations) {
            return Err(unknown_computation(callee, computations).context(place()));
        }
    }
    if computation.root.index() >= instructions.len() {
        return Err(here(Status::invalid_argument(format!(
            "expected a root below {}, found {}",
            instructions.len(),
            computation.root.index()
        ))));
    }
    let found = parameters(instructions).map_err(here)?;
    match found == computation.parameters {
        true => Ok(()),
        false => Err(here(Status::internal(format!(
            "expected the parameters {found:?}, found {:?}",
            computation.parameters
        )))),
    }
}

/// Checks that all that an instruction needs comes before it, so that there is no cycle.
fn check_instruction(
    number: usize,
    instruction: &Instruction,
    instructions: &[Instruction],
) -> Result<()> {
    let predecessors = &instruction.control_predecessors;
    for (kind, ids) in [
        ("operands", &instruction.operands),
        ("control predecessors", predecessors),
    ] {
        let late = |id: &&InstructionId| id.index() >= number;
        if let Some(id) = ids.iter().find(late) {
            let found = match instructions.get(id.index()) {
                Some(other) => format!("%{}", other.name),
                None => format!("number {} of {}", id.index(), instructions.len()),
            };
            return Err(Status::invalid_argument(format!(
                "expected {kind} that come before it, found {found}"
            )));
        }
    }
    Ok(())
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
