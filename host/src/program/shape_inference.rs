//! Shape inference: which shapes an operation takes and which it gives, by the rules of xla/service/shape_inference.cc and of XLA's
//! HLO verifier.
//!
//! The builder and the verifier have no other source of such rules, so that they cannot differ. What an operation takes is checked
//! here once; evaluation relies on it. Layouts play no part: an inferred array has none, unless it is an operand as
//! a whole.

mod calls;
mod contraction;
mod custom_call;
mod dimensions;
mod element_types;
mod elementwise;
#[cfg(test)]
mod properties;
mod reinterpretation;
mod slices;
#[cfg(test)]
mod testing;
mod tuples;

use super::instruction::{ComputationId, Opcode};
use crate::values::{ArrayShape, ElementType, Result, Shape, Status};

/// A computation as those see it that call it.
#[derive(Clone, Debug)]
pub(crate) struct Callee<'a> {
    /// The parameters' shapes, by number.
    pub(crate) parameters: Vec<&'a Shape>,
    /// The root's shape.
    pub(crate) result: &'a Shape,
}

/// The shape that an instruction has. What the operation leaves open (of a parameter all, of a convert the element type) is taken
/// from `declared`; the rest of `declared` is the caller's to compare. `callee` is asked only for computations that `opcode` names.
///
/// # Errors
/// INVALID_ARGUMENT if the operation does not take these operands; UNIMPLEMENTED if it does in XLA and does not here;
/// RESOURCE_EXHAUSTED for a tuple too large.
pub(crate) fn infer<'a>(
    opcode: &Opcode,
    operands: &[&Shape],
    declared: Option<&Shape>,
    callee: &dyn Fn(ComputationId) -> Callee<'a>,
) -> Result<Shape> {
    match opcode {
        Opcode::Parameter(_) => {
            let [] = exactly(operands)?;
            declaration(declared).cloned()
        }
        Opcode::Constant(literal) => {
            let [] = exactly(operands)?;
            Ok(literal.shape().clone())
        }
        Opcode::Tuple => tuples::tuple(operands, declared),
        Opcode::GetTupleElement(index) => tuples::get_tuple_element(*index, operands),
        Opcode::AfterAll => tuples::after_all(operands),
        Opcode::OptimizationBarrier => tuples::optimization_barrier(operands, declared),
        Opcode::CustomCall(call) => custom_call::custom_call(call, operands, declared),
        Opcode::Call(computation) | Opcode::Fusion(_, computation) => {
            calls::call(operands, &callee(*computation))
        }
        Opcode::While { condition, body } => {
            calls::while_loop(operands, &callee(*condition), &callee(*body))
        }
        Opcode::Conditional(branches) => {
            let branches: Vec<_> = branches.iter().map(|branch| callee(*branch)).collect();
            calls::conditional(operands, &branches)
        }
        Opcode::Reduce {
            dimensions,
            computation,
        } => calls::reduce(dimensions, operands, &callee(*computation)),
        Opcode::Map(computation) => calls::map(operands, &callee(*computation)),
        _ => infer_array(opcode, operands, declared),
    }
}

/// [`infer`] of the operations from arrays to an array that call nothing.
fn infer_array(opcode: &Opcode, operands: &[&Shape], declared: Option<&Shape>) -> Result<Shape> {
    match opcode {
        Opcode::Unary(operation) => elementwise::unary(*operation, operands),
        Opcode::Binary(operation) => elementwise::binary(*operation, operands),
        Opcode::Compare(comparison, order) => elementwise::compare(*comparison, *order, operands),
        Opcode::Select => elementwise::select(operands),
        Opcode::Clamp => elementwise::clamp(operands),
        Opcode::ReducePrecision { exponent_bits, .. } => {
            elementwise::reduce_precision(*exponent_bits, operands)
        }
        Opcode::Convert => reinterpretation::convert(operands, declared),
        Opcode::BitcastConvert => reinterpretation::bitcast_convert(operands, declared),
        Opcode::Bitcast => reinterpretation::bitcast(operands, declared),
        Opcode::Reshape => reinterpretation::reshape(operands, declared),
        Opcode::Iota(dimension) => dimensions::iota(*dimension, operands, declared),
        Opcode::Broadcast(mapping) => dimensions::broadcast(mapping, operands, declared),
        Opcode::Transpose(permutation) => dimensions::transpose(permutation, operands),
        Opcode::Reverse(reversed) => dimensions::reverse(reversed, operands),
        Opcode::Copy => {
            let [operand] = exactly(operands)?;
            Ok(operand.clone())
        }
        Opcode::Slice(slices) => slices::slice(slices, operands),
        Opcode::DynamicSlice(sizes) => slices::dynamic_slice(sizes, operands),
        Opcode::DynamicUpdateSlice => slices::dynamic_update_slice(operands),
        Opcode::Concatenate(dimension) => slices::concatenate(*dimension, operands),
        Opcode::Pad(padding) => slices::pad(padding, operands),
        Opcode::Dot(dot) => contraction::dot(dot, operands, declared),
        _ => Err(Status::internal(format!(
            "expected an operation on arrays, found {}",
            opcode.name()
        ))),
    }
}

/// The operands, if there are as many.
fn exactly<'a, const N: usize>(operands: &[&'a Shape]) -> Result<[&'a Shape; N]> {
    <[&Shape; N]>::try_from(operands).map_err(|_| {
        Status::invalid_argument(format!(
            "expected {}, found {}",
            count(N, "operand"),
            operands.len()
        ))
    })
}

/// The operands, if there are as many and all are arrays.
fn arrays<'a, const N: usize>(operands: &[&'a Shape]) -> Result<[&'a ArrayShape; N]> {
    exactly::<N>(operands)?;
    let arrays = all_arrays(operands)?;
    <[&ArrayShape; N]>::try_from(arrays.as_slice())
        .map_err(|_| Status::internal("expected as many arrays as operands"))
}

/// The operands, if all are arrays.
fn all_arrays<'a>(operands: &[&'a Shape]) -> Result<Vec<&'a ArrayShape>> {
    let arrays = operands.iter().enumerate();
    arrays.map(|(i, shape)| operand_array(i, shape)).collect()
}

/// The operand of this number, if it is an array. A token is none.
fn operand_array(number: usize, shape: &Shape) -> Result<&ArrayShape> {
    array(shape).ok_or_else(|| {
        Status::invalid_argument(format!(
            "expected an array as operand {number}, found {shape}"
        ))
    })
}

fn array(shape: &Shape) -> Option<&ArrayShape> {
    shape
        .as_array()
        .filter(|array| array.element_type() != ElementType::Token)
}

/// The declared shape of an instruction whose operation does not give it.
fn declaration(declared: Option<&Shape>) -> Result<&Shape> {
    declared.ok_or_else(|| Status::invalid_argument("expected a declared shape, found none"))
}

/// The declared shape, if it is an array.
fn declared_array(declared: Option<&Shape>) -> Result<&ArrayShape> {
    let declared = declaration(declared)?;
    array(declared).ok_or_else(|| {
        Status::invalid_argument(format!("expected an array as result, found {declared}"))
    })
}

/// An array without a layout.
fn bare(shape: &ArrayShape) -> Shape {
    Shape::Array(shape.clone().without_layout())
}

/// For each dimension of the shape, whether it is one of these, which are in range and of which none is named twice.
fn distinct_dimensions(dimensions: &[usize], shape: &ArrayShape) -> Result<Vec<bool>> {
    let mut seen = vec![false; shape.rank()];
    for &dimension in dimensions {
        match seen.get_mut(dimension) {
            None => {
                return Err(Status::invalid_argument(format!(
                    "expected a dimension of {shape}, found {dimension}"
                )));
            }
            Some(true) => {
                return Err(Status::invalid_argument(format!(
                    "expected each dimension once, found {dimension} twice"
                )));
            }
            Some(seen) => *seen = true,
        }
    }
    Ok(seen)
}

/// The sizes of the dimensions that are not among the named ones, in order.
fn other_dimensions(named: &[bool], shape: &ArrayShape) -> impl Iterator<Item = usize> {
    let dimensions = std::iter::zip(named, shape.dimensions());
    dimensions.filter_map(|(named, &size)| (!named).then_some(size))
}

/// `1 operand`, `2 operands`.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Shapes with commas between them, as in a signature.
fn list<'a>(shapes: impl IntoIterator<Item = &'a Shape>) -> String {
    let shapes: Vec<_> = shapes.into_iter().map(Shape::to_string).collect();
    shapes.join(", ")
}
