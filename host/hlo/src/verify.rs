//! Verification: the checks that make instructions a program.
//!
//! A program that is verified can be run: ids are in range, operands come first, shapes are those
//! that the operations give, calls match signatures, and no computation calls itself. Nothing here
//! recurses, so that the depth of a program is not limited by the thread's stack.

mod call_graph;
mod structure;

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod tests;

use super::instruction::{Computation, ComputationId, Instruction, Opcode, Program};
use super::shape_inference::infer;
use callbox_core::text::shortened;
use callbox_core::values::{Blame, Result, Shape, Status, StatusCode};

pub(crate) use call_graph::callees_first;

/// The most arrays that the instructions of a program read, counted for each operand and each
/// called computation.
///
/// The text names these with a few bytes, however many arrays their tuples have: without a limit,
/// the time to compare and to bind them would be quadratic in the length of the text.
const MAX_ARRAYS_READ: usize = 1 << 24;

/// The reason why a program is refused.
#[derive(Debug)]
pub(crate) struct Unsound {
    pub(crate) status: Status,
    /// The instruction that is wrong, unless it is the program as a whole.
    pub(crate) position: Option<Position>,
}

/// An instruction, by the numbers of its computation and of itself in that computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) computation: usize,
    pub(crate) instruction: usize,
}

impl Unsound {
    /// The message starts with the names at the position.
    fn at(position: Position, computations: &[Computation], status: Status) -> Self {
        let computation = &computations[position.computation];
        let instruction = &computation.instructions[position.instruction];
        let place = place(&instruction.name, &instruction.opcode, &computation.name);
        Self {
            status: status.context(place),
            position: Some(position),
        }
    }
}

impl From<Status> for Unsound {
    fn from(status: Status) -> Self {
        Self {
            status,
            position: None,
        }
    }
}

impl From<Unsound> for Status {
    fn from(unsound: Unsound) -> Self {
        unsound.status
    }
}

impl Program {
    /// Verifies computations, of which `exports` are the program's functions by ordinal.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, UNIMPLEMENTED or RESOURCE_EXHAUSTED for the first error, with its
    /// position.
    pub(crate) fn verified(
        name: String,
        computations: Vec<Computation>,
        exports: Vec<ComputationId>,
    ) -> Result<Self, Unsound> {
        structure::check(&computations, &exports)?;
        call_graph::callees_first(&computations)?;
        let mut arrays_left = MAX_ARRAYS_READ;
        for (number, computation) in computations.iter().enumerate() {
            for (instruction_number, instruction) in computation.instructions.iter().enumerate() {
                let reads = reads(instruction, computation, &computations);
                let checked = take(&mut arrays_left, reads)
                    .and_then(|()| shape(instruction, computation, &computations));
                checked.map_err(|status| {
                    let position = Position {
                        computation: number,
                        instruction: instruction_number,
                    };
                    Unsound::at(position, &computations, status)
                })?;
            }
        }
        Ok(Self {
            name,
            computations: computations.into(),
            exports,
        })
    }
}

/// The names of an instruction at the beginning of a message.
pub(super) fn place(name: &str, opcode: &Opcode, computation: &str) -> String {
    format!(
        "instruction %{} ({}) in computation %{}",
        shortened(name),
        opcode.name(),
        shortened(computation)
    )
}

/// The number of arrays and tuples in the operands of an instruction and in the results of the
/// computations that it names. Its ids are in range.
fn reads(
    instruction: &Instruction,
    computation: &Computation,
    computations: &[Computation],
) -> usize {
    // Takes one element without a look at the others.
    if matches!(instruction.opcode, Opcode::GetTupleElement(_)) {
        return 1;
    }
    let operands = instruction.operands.iter().map(|&id| computation.shape(id));
    let called = instruction.opcode.called_computations().into_iter();
    let results = called.map(|id| computations[id.index()].result_shape());
    operands.chain(results).map(Shape::size).sum()
}

fn take(left: &mut usize, reads: usize) -> Result<()> {
    *left = left.checked_sub(reads).ok_or_else(|| {
        let message = format!(
            "expected a program whose instructions read at most {MAX_ARRAYS_READ} arrays in all, \
             found more: a tuple counts as its arrays for each instruction that it is an operand of"
        );
        Status::new(StatusCode::ResourceExhausted, Blame::Caller, message)
    })?;
    Ok(())
}

/// Checks that an instruction has the shape that its operation gives. Its ids are in range.
fn shape(
    instruction: &Instruction,
    computation: &Computation,
    computations: &[Computation],
) -> Result<()> {
    let operands = instruction.operands.iter().map(|&id| computation.shape(id));
    let declared = &instruction.shape;
    let inferred = infer(
        &instruction.opcode,
        &Vec::from_iter(operands),
        Some(declared),
        computations,
    )?;
    ensure!(
        inferred.is_compatible(declared),
        "expected the shape {inferred}, found {declared}"
    );
    Ok(())
}
