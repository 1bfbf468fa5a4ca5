//! Verification: what makes the instructions that a builder or a reader put together a program.
//!
//! Everything that runs a program relies on it: ids are in range, operands come first, shapes are what the operations give,
//! calls fit signatures and end. Nothing here calls itself, whatever the program looks like.

mod call_graph;
mod structure;

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod tests;

use super::instruction::{Computation, ComputationId, Instruction, Opcode, Program};
use super::shape_inference::{Callee, infer};
use crate::values::{Result, Status};

impl Program {
    /// The program of these computations, of which `exports` are its functions by ordinal.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, UNIMPLEMENTED or RESOURCE_EXHAUSTED for the first thing that is wrong. The message begins with where it
    /// is: `instruction %name (opcode) in computation %name: expected ..., found ...`.
    pub(crate) fn verified(
        name: String,
        computations: Vec<Computation>,
        exports: Vec<ComputationId>,
    ) -> Result<Self> {
        structure::check(&computations, &exports)?;
        call_graph::check(&computations)?;
        for computation in &computations {
            for instruction in &computation.instructions {
                shape(instruction, computation, &computations).map_err(|s| {
                    s.context(place(
                        &instruction.name,
                        &instruction.opcode,
                        &computation.name,
                    ))
                })?;
            }
        }
        Ok(Self {
            name,
            computations,
            exports,
        })
    }
}

/// Where something is wrong, as a message's beginning.
pub(super) fn place(name: &str, opcode: &Opcode, computation: &str) -> String {
    format!(
        "instruction %{name} ({}) in computation %{computation}",
        opcode.name()
    )
}

/// A computation of the program as those see it that call it. Its parameters and root exist.
pub(super) fn signature(computation: &Computation) -> Callee<'_> {
    Callee {
        parameters: computation.parameter_shapes().collect(),
        result: computation.result_shape(),
    }
}

/// Checks that an instruction, whose ids are known to be in range, has the shape that its operation gives.
fn shape(
    instruction: &Instruction,
    computation: &Computation,
    computations: &[Computation],
) -> Result<()> {
    let operands: Vec<_> = instruction
        .operands
        .iter()
        .map(|operand| &computation.instructions[operand.index()].shape)
        .collect();
    let declared = &instruction.shape;
    let inferred = infer(&instruction.opcode, &operands, Some(declared), &|callee| {
        signature(&computations[callee.index()])
    })?;
    match inferred.is_compatible(declared) {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "expected the shape {inferred}, found {declared}"
        ))),
    }
}
