//! Runs one instruction on the Host: every opcode but those that move control.
//!
//! An array's elements are dense and row-major whatever its layout says, so a layout matters to `bitcast` alone. Arithmetic is
//! done in one of four wide types ([`wide`]) and rounded once: a `bf16` sum is the exact sum, rounded to `bf16`. Numbers
//! are therefore XLA's wherever XLA's definition leaves one answer (integers, rounding, conversions, NaN and infinities),
//! and at least as close to the exact answer as XLA's where it leaves several (transcendental functions, the order of a
//! sum). Two things that XLA:CPU does are left out on purpose: it takes subnormal `f32` for zero, and it converts some
//! pairs of types by way of `f32`, which rounds twice.
//!
//! What comes here has been verified. Whatever contradicts that is a bug of the host and is reported as one.

mod array;
mod binary;
mod bitcast;
mod compare;
mod complex;
mod convert;
mod dot;
mod elementwise;
mod layout;
mod lift;
mod movement;
mod reduce;
mod reduce_precision;
mod strided;
mod unary;
mod wide;

use std::fmt;

use super::instruction::{ComputationId, Instruction, Opcode, Program};
use crate::values::{Literal, Result, Shape, Status};

use array::{array, leaf};

pub(crate) use crate::values::zeroed;
pub(crate) use layout::{from_layout, to_layout};

/// What runs the computations that `reduce` and `map` call.
pub(crate) trait Callee {
    /// The program that they are computations of. One that computes scalar from scalar is run on whole arrays from here.
    fn program(&self) -> &Program;

    /// Runs a computation that cannot be run on whole arrays.
    fn run(&mut self, id: ComputationId, arguments: &[Literal]) -> Result<Literal>;
}

/// Runs a verified instruction on its operands' values. The result has the instruction's shape.
///
/// # Errors
/// What a called computation reports; RESOURCE_EXHAUSTED if there is no memory for the result; INTERNAL if the instruction is
/// not one that [`super::verify`] lets through, or if it moves control: parameters, calls, loops and branches are not
/// run here.
pub(crate) fn evaluate(
    instruction: &Instruction,
    operands: &[Literal],
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let shape = &instruction.shape;
    match &instruction.opcode {
        Opcode::Reduce {
            dimensions,
            computation,
        } => reduce::reduce(shape, operands, dimensions, *computation, callee),
        Opcode::Map(computation) => reduce::map(shape, operands, *computation, callee),
        _ => evaluate_alone(instruction, operands),
    }
}

/// [`evaluate`] for operations that call no computation.
fn evaluate_alone(instruction: &Instruction, operands: &[Literal]) -> Result<Literal> {
    let shape = &instruction.shape;
    match (&instruction.opcode, operands) {
        (Opcode::Constant(literal), []) => share(shape, &[literal]),
        (Opcode::Tuple | Opcode::OptimizationBarrier, _) => share(shape, &Vec::from_iter(operands)),
        (Opcode::GetTupleElement(index), [tuple]) => tuple_element(shape, tuple, *index),
        (Opcode::AfterAll, _) => leaf(shape, Vec::new()),
        (_, [operand]) if keeps_bytes(&instruction.opcode, operand.shape(), shape) => {
            share(shape, &[operand])
        }
        (Opcode::Select, [predicate, on_true, on_false]) => {
            elementwise::select(shape, predicate, on_true, on_false)
        }
        _ => evaluate_array(instruction, operands),
    }
}

/// [`evaluate`] for operations from arrays to one array.
fn evaluate_array(instruction: &Instruction, operands: &[Literal]) -> Result<Literal> {
    let Some(shape) = instruction.shape.as_array() else {
        return Err(unexpected(instruction, operands));
    };
    let arrays = operands.iter().map(array).collect::<Result<Vec<_>>>()?;
    let to = shape.element_type();
    let bytes = match (&instruction.opcode, arrays.as_slice()) {
        (Opcode::Unary(operation), [x]) => unary::unary(*operation, x.elements(), to),
        (Opcode::Binary(operation), [x, y]) => {
            binary::binary(*operation, x.elements(), y.elements(), to)
        }
        (Opcode::Compare(direction, order), [x, y]) => {
            compare::compare(*direction, *order, x.elements(), y.elements())
        }
        (Opcode::Clamp, [low, x, high]) => elementwise::clamp(shape, low, x, high),
        (
            Opcode::ReducePrecision {
                exponent_bits,
                mantissa_bits,
            },
            [x],
        ) => reduce_precision::reduce_precision(x.elements(), *exponent_bits, *mantissa_bits),
        (Opcode::Convert, [x]) => convert::convert(x.elements(), to),
        (Opcode::BitcastConvert, [x]) => bitcast::bitcast_convert(x.elements(), to),
        (Opcode::Bitcast, [x]) => layout::bitcast(x, shape),
        (Opcode::Iota(dimension), []) => movement::iota(shape, *dimension),
        (Opcode::Broadcast(dimensions), [x]) => movement::broadcast(x, shape, dimensions),
        (Opcode::Transpose(permutation), [x]) => movement::transpose(x, permutation),
        (Opcode::Reverse(dimensions), [x]) => movement::reverse(x, dimensions),
        (Opcode::Slice(slices), [x]) => movement::slice(x, shape, slices),
        (Opcode::DynamicSlice(_), [x, starts @ ..]) => movement::dynamic_slice(x, shape, starts),
        (Opcode::DynamicUpdateSlice, [x, update, starts @ ..]) => {
            movement::dynamic_update_slice(x, update, starts)
        }
        (Opcode::Concatenate(dimension), _) => movement::concatenate(&arrays, shape, *dimension),
        (Opcode::Pad(padding), [x, value]) => movement::pad(x, value, shape, padding),
        (Opcode::Dot(dimensions), [x, y]) => dot::dot(x, y, dimensions, to),
        _ => Err(unexpected(instruction, operands)),
    }?;
    leaf(&instruction.shape, bytes)
}

/// Whether the result's bytes are the operand's.
pub(crate) fn keeps_bytes(opcode: &Opcode, operand: &Shape, shape: &Shape) -> bool {
    let (Some(from), Some(to)) = (operand.as_array(), shape.as_array()) else {
        return matches!(opcode, Opcode::Copy);
    };
    match opcode {
        Opcode::Copy | Opcode::Reshape => true,
        Opcode::Convert => from.element_type() == to.element_type(),
        Opcode::Bitcast => layout::keeps_bytes(from, to),
        Opcode::BitcastConvert => bitcast::keeps_bytes(from.element_type(), to.element_type()),
        _ => false,
    }
}

/// A value of this shape whose leaves are those of the operands, not copied.
fn share(shape: &Shape, operands: &[&Literal]) -> Result<Literal> {
    let leaves = operands.iter().flat_map(|x| x.shared_leaves()).cloned();
    Literal::from_shared_leaves(shape.clone(), leaves.collect()).map_err(bug)
}

fn tuple_element(shape: &Shape, tuple: &Literal, index: usize) -> Result<Literal> {
    let elements = tuple.shape().as_tuple().unwrap_or_default();
    let start = elements
        .iter()
        .take(index)
        .map(|s| s.leaves().len())
        .sum::<usize>();
    let leaves = tuple
        .shared_leaves()
        .iter()
        .skip(start)
        .take(shape.leaves().len());
    Literal::from_shared_leaves(shape.clone(), leaves.cloned().collect()).map_err(bug)
}

fn unexpected(instruction: &Instruction, operands: &[Literal]) -> Status {
    let shapes = Vec::from_iter(operands.iter().map(|x| x.shape().to_string()));
    bug(format_args!(
        "expected an operation on verified operands, found {:?} of ({}) giving {}",
        instruction.opcode,
        shapes.join(", "),
        instruction.shape
    ))
}

/// The host contradicts itself.
fn bug(found: impl fmt::Display) -> Status {
    Status::internal(format!("host bug: {found}"))
}

#[cfg(test)]
mod tests;
