//! Computations of scalars, evaluated on whole arrays: each instruction once for all elements.

use super::array::{Elements, array, repeat};
use super::{Check, bug, evaluate_alone, leaf, with_capacity};
use crate::instruction::{Computation, ComputationId, Instruction, Opcode, Program};
use callbox_core::values::{ArrayShape, Literal, Result, Shape};

/// The most instructions of such a computation, those of its callees included, where one that gives
/// a tuple counts for each of its arrays. The executor, which checks deadlines, runs larger ones.
const MAX_INSTRUCTIONS: usize = 256;

/// Whether a computation takes and gives scalars, and all its operations are elementwise on
/// scalars.
pub(super) fn is_scalar(computation: &Computation, program: &Program) -> bool {
    is_scalar_within(computation, program, &mut { MAX_INSTRUCTIONS })
}

/// The elements that all instructions of a computation are evaluated on before the next ones. Their
/// values fit into the cache, and few are kept at a time.
const TILE: usize = 1 << 14;

/// Evaluates such a computation on arrays of `count` elements. Its results are arrays of `count`
/// elements. Looks at the deadline before each instruction of each tile.
pub(super) fn run(
    computation: &Computation,
    arguments: &[Literal],
    count: usize,
    program: &Program,
    check: &dyn Check,
) -> Result<Literal> {
    if count <= TILE {
        return run_tile(computation, arguments, count, program, check);
    }
    let shape = lifted(computation.result_shape(), count)?;
    let leaves = shape.leaves().into_iter();
    let leaves = leaves.map(|leaf| with_capacity(leaf.byte_size()));
    let mut leaves: Vec<Vec<u8>> = leaves.collect::<Result<_>>()?;
    for start in (0..count).step_by(TILE) {
        let size = TILE.min(count - start);
        let parts = arguments.iter().map(|x| {
            check.check()?;
            part(x, start, size)
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let results = run_tile(computation, &parts, size, program, check)?;
        for (to, (_, from)) in std::iter::zip(&mut leaves, results.leaves()) {
            check.check()?;
            to.extend_from_slice(from);
        }
    }
    Literal::from_leaves(shape, leaves).map_err(bug)
}

/// The shape with an array of `count` elements for each scalar.
fn lifted(shape: &Shape, count: usize) -> Result<Shape> {
    shape.map_arrays(&mut |scalar| ArrayShape::new(scalar.element_type(), &[count]))
}

/// So many elements of each array, from a place on.
fn part(x: &Literal, start: usize, count: usize) -> Result<Literal> {
    let shape = lifted(x.shape(), count)?;
    let leaves = x.leaves().map(|(shape, bytes)| {
        let elements = Elements {
            element_type: shape.element_type(),
            bytes,
        };
        elements.part(start, count).map(<[u8]>::to_vec)
    });
    Literal::from_leaves(shape, leaves.collect::<Result<_>>()?).map_err(bug)
}

fn run_tile(
    computation: &Computation,
    arguments: &[Literal],
    count: usize,
    program: &Program,
    check: &dyn Check,
) -> Result<Literal> {
    let instructions = &computation.instructions;
    let last_uses = last_uses(computation);
    // `None` for those that nothing reads any more.
    let mut values: Vec<Option<Literal>> = Vec::with_capacity(instructions.len());
    for (number, instruction) in instructions.iter().enumerate() {
        check.check()?;
        let ids = instruction.operands.iter();
        let operands = ids.map(|id| values.get(id.index()).cloned().flatten());
        let operands = operands.collect::<Option<Vec<_>>>();
        let operands = operands.ok_or_else(|| bug("an operand comes after its use"))?;
        let shape = lifted(&instruction.shape, count)?;
        let value = match &instruction.opcode {
            Opcode::Parameter(number) => {
                let argument = arguments.get(*number).cloned();
                argument.ok_or_else(|| bug("an argument is missing"))?
            }
            Opcode::Constant(scalar) => leaf(&shape, repeat(array(scalar)?.bytes, count)?)?,
            Opcode::Call(called) | Opcode::Fusion(_, called) => run_tile(
                called_by(program, *called)?,
                &operands,
                count,
                program,
                check,
            )?,
            opcode => evaluate_alone(&of_arrays(opcode, shape), &operands)?,
        };
        values.push(Some(value));
        for id in &instruction.operands {
            if last_uses.get(id.index()) == Some(&number) {
                values[id.index()] = None;
            }
        }
    }
    let root = values.into_iter().nth(computation.root.index());
    root.flatten()
        .ok_or_else(|| bug("a computation has no root"))
}

/// For each instruction, the last one that reads it. Nothing is the last to read the root.
fn last_uses(computation: &Computation) -> Vec<usize> {
    let instructions = &computation.instructions;
    let mut last_uses = vec![instructions.len(); instructions.len()];
    for (number, instruction) in instructions.iter().enumerate() {
        for operand in instruction
            .operands
            .iter()
            .filter(|id| **id != computation.root)
        {
            if let Some(last) = last_uses.get_mut(operand.index()) {
                *last = number;
            }
        }
    }
    last_uses
}

/// The computation with this id.
pub(super) fn called_by(program: &Program, id: ComputationId) -> Result<&Computation> {
    let computation = program.computations.get(id.index());
    computation.ok_or_else(|| bug(format_args!("there is no computation {}", id.index())))
}

fn is_scalar_within(computation: &Computation, program: &Program, budget: &mut usize) -> bool {
    computation.instructions.iter().all(|instruction| {
        // An instruction on a tuple copies a reference to each of its arrays.
        let Some(left) = budget.checked_sub(instruction.shape.leaf_count().max(1)) else {
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
    let leaves = instruction.shape.leaves();
    leaves.iter().all(|leaf| leaf.rank() == 0)
        && match &instruction.opcode {
            Opcode::Parameter(_)
            | Opcode::Tuple
            | Opcode::GetTupleElement(_)
            | Opcode::OptimizationBarrier
            | Opcode::Call(_)
            | Opcode::Fusion(..)
            | Opcode::Copy => true,
            // A select of tuples has one predicate for all elements.
            Opcode::Select
            | Opcode::Constant(_)
            | Opcode::Unary(_)
            | Opcode::Binary(_)
            | Opcode::Compare(..)
            | Opcode::Clamp
            | Opcode::ReducePrecision { .. }
            | Opcode::Convert
            | Opcode::BitcastConvert
            | Opcode::Reshape
            | Opcode::Bitcast
            | Opcode::Broadcast(_) => instruction.shape.as_array().is_some(),
            _ => false,
        }
}

/// The same operation on arrays. On scalars, a broadcast changes nothing.
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

#[cfg(test)]
mod tests;
