//! Computations of scalars, run on whole arrays: each instruction once, for all elements.

use super::array::{array, repeat};
use super::{bug, evaluate_alone, leaf};
use crate::program::instruction::{Computation, ComputationId, Instruction, Opcode, Program};
use crate::values::{Literal, Result, Shape};

/// How many instructions such a computation may have, those of the computations that it calls included. What is larger
/// is run where deadlines are looked at.
const MAX_INSTRUCTIONS: usize = 256;

/// Whether a computation takes and gives scalars and is made of operations that are element-wise for them.
pub(super) fn is_scalar(computation: &Computation, program: &Program) -> bool {
    let mut budget = MAX_INSTRUCTIONS;
    is_scalar_within(computation, program, &mut budget)
}

/// Runs such a computation on arrays of `count` elements. Its results are arrays of as many.
pub(super) fn run(
    computation: &Computation,
    arguments: &[Literal],
    count: usize,
    program: &Program,
) -> Result<Literal> {
    let mut values: Vec<Literal> = Vec::with_capacity(computation.instructions.len());
    for instruction in &computation.instructions {
        let operands = instruction
            .operands
            .iter()
            .map(|id| values.get(id.index()).cloned());
        let operands = operands.collect::<Option<Vec<_>>>();
        let operands = operands.ok_or_else(|| bug("an operand comes after its use"))?;
        let shape = lifted(&instruction.shape, count)?;
        let value = match &instruction.opcode {
            Opcode::Parameter(number) => arguments.get(*number).cloned(),
            Opcode::Constant(scalar) => Some(leaf(&shape, repeat(array(scalar)?.bytes, count)?)?),
            Opcode::Call(called) | Opcode::Fusion(_, called) => Some(run(
                called_by(program, *called)?,
                &operands,
                count,
                program,
            )?),
            opcode => Some(evaluate_alone(&of_arrays(opcode, shape), &operands)?),
        };
        values.push(value.ok_or_else(|| bug("an argument is missing"))?);
    }
    let root = values.into_iter().nth(computation.root.index());
    root.ok_or_else(|| bug("a computation has no root"))
}

/// A computation that one of the program calls.
pub(super) fn called_by(program: &Program, id: ComputationId) -> Result<&Computation> {
    let computation = program.computations.get(id.index());
    computation.ok_or_else(|| bug(format_args!("there is no computation {}", id.index())))
}

fn is_scalar_within(computation: &Computation, program: &Program, budget: &mut usize) -> bool {
    computation.instructions.iter().all(|instruction| {
        let Some(left) = budget.checked_sub(1) else {
            return false;
        };
        *budget = left;
        is_liftable(instruction)
            && match &instruction.opcode {
                Opcode::Call(called) | Opcode::Fusion(_, called) => called_by(program, *called)
                    .is_ok_and(|called| is_scalar_within(called, program, budget)),
                _ => true,
            }
    })
}

fn is_liftable(instruction: &Instruction) -> bool {
    let scalars = instruction
        .shape
        .leaves()
        .iter()
        .all(|leaf| leaf.rank() == 0);
    let array = instruction.shape.as_array();
    scalars
        && match &instruction.opcode {
            Opcode::Parameter(_)
            | Opcode::Tuple
            | Opcode::GetTupleElement(_)
            | Opcode::OptimizationBarrier
            | Opcode::Call(_)
            | Opcode::Fusion(..)
            | Opcode::Copy => true,
            Opcode::Constant(_)
            | Opcode::Unary(_)
            | Opcode::Binary(_)
            | Opcode::Compare(..)
            // A select of tuples is by one predicate for all.
            | Opcode::Select
            | Opcode::Clamp
            | Opcode::ReducePrecision { .. }
            | Opcode::Convert
            | Opcode::BitcastConvert
            | Opcode::Reshape => array.is_some(),
            Opcode::Bitcast | Opcode::Broadcast(_) => array.is_some(),
            _ => false,
        }
}

/// The same operation on arrays. On scalars the operations that only name other dimensions do nothing.
fn of_arrays(opcode: &Opcode, shape: Shape) -> Instruction {
    Instruction {
        name: String::new(),
        shape,
        opcode: match opcode {
            Opcode::Broadcast(_) => Opcode::Reshape,
            other => other.clone(),
        },
        operands: Vec::new(),
        control_predecessors: Vec::new(),
    }
}

fn lifted(shape: &Shape, count: usize) -> Result<Shape> {
    match shape {
        Shape::Array(scalar) => Shape::array(scalar.element_type(), &[count]),
        Shape::Tuple(tuple) => {
            let elements = tuple.elements().iter().map(|shape| lifted(shape, count));
            Shape::tuple(elements.collect::<Result<Vec<_>>>()?)
        }
    }
}

#[cfg(test)]
mod tests;
