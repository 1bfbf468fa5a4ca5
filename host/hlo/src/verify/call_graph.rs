//! Checks that no computation calls itself, directly or through others.

use super::{Position, Unsound};
use crate::dependency_order::{dependency_order, describe_cycle};
use crate::instruction::{Computation, ComputationId};
use callbox_core::values::Status;

/// Returns the computations' numbers, each after those of the computations that it calls.
///
/// # Errors
/// INVALID_ARGUMENT if a computation calls itself.
pub(crate) fn callees_first(computations: &[Computation]) -> Result<Vec<usize>, Unsound> {
    let calls: Vec<_> = computations.iter().map(callees).collect();
    let cycle = match dependency_order(&calls) {
        Ok(order) => return Ok(order),
        Err(cycle) => cycle,
    };
    let (caller, callee) = (cycle[0], cycle[1 % cycle.len()]);
    let names = describe_cycle(&cycle, |number| &computations[number].name);
    let status = Status::invalid_argument(format!(
        "expected computations that do not call themselves, found {names}"
    ));
    let calls_next = |number: &usize| {
        let instruction = &computations[caller].instructions[*number];
        let mut called = instruction.opcode.called_computations().into_iter();
        called.any(|called| called.index() == callee)
    };
    let instruction = (0..computations[caller].instructions.len()).find(calls_next);
    let position = Position {
        computation: caller,
        instruction: instruction.unwrap_or_default(),
    };
    Err(Unsound::at(position, computations, status))
}

fn callees(computation: &Computation) -> Vec<usize> {
    let instructions = computation.instructions.iter();
    let called = instructions.flat_map(|instruction| instruction.opcode.called_computations());
    called.map(ComputationId::index).collect()
}
