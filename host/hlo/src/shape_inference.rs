//! Shape inference: the operand shapes that an operation takes and the shape that it gives.
//!
//! The rules are those of xla/service/shape_inference.cc and of XLA's HLO verifier. The builder and
//! the verifier share them, and evaluation relies on them. Layouts play no part: an inferred array
//! has none, unless the result is an operand as a whole.

mod calls;
mod contraction;
mod custom_call;
mod dimensions;
mod elementwise;
mod indexing;
mod linear;
#[cfg(test)]
mod properties;
mod reinterpretation;
mod slices;
#[cfg(test)]
mod testing;
mod transforms;
mod tuples;
mod windows;

use super::instruction::{Computation, ComputationId, Opcode};
use callbox_core::values::{ArrayShape, ElementType, Result, Shape, Status};

/// Infers the shape of an instruction.
///
/// Where the operation leaves the shape open (of a parameter the whole shape, of a convert the
/// element type), `declared` gives it. The caller compares the rest of `declared` with the result.
/// The computations that `opcode` names are among `computations`.
///
/// # Errors
/// INVALID_ARGUMENT if the operation does not take these operands; UNIMPLEMENTED if XLA takes
/// them and callbox does not; RESOURCE_EXHAUSTED for a tuple that is too large.
pub(crate) fn infer(
    opcode: &Opcode,
    operands: &[&Shape],
    declared: Option<&Shape>,
    computations: &[Computation],
) -> Result<Shape> {
    let callee = |id: &ComputationId| &computations[id.index()];
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
        Opcode::Call(called) | Opcode::Fusion(_, called) => calls::call(operands, callee(called)),
        Opcode::While { condition, body } => {
            calls::while_loop(operands, callee(condition), callee(body))
        }
        Opcode::Conditional(branches) => {
            calls::conditional(operands, &Vec::from_iter(branches.iter().map(callee)))
        }
        Opcode::Reduce {
            dimensions,
            computation,
        } => calls::reduce(dimensions, operands, callee(computation)),
        Opcode::Map(computation) => calls::map(operands, callee(computation)),
        Opcode::Scatter {
            windows,
            computation,
        } => indexing::scatter(windows, operands, callee(computation)),
        Opcode::Sort {
            dimension,
            computation,
            ..
        } => calls::sort(*dimension, operands, callee(computation)),
        Opcode::ReduceWindow {
            window,
            computation,
        } => windows::reduce_window(window, operands, callee(computation)),
        Opcode::SelectAndScatter {
            window,
            select,
            scatter,
        } => windows::select_and_scatter(window, operands, callee(select), callee(scatter)),
        _ => infer_array(opcode, operands, declared),
    }
}

/// [`infer`] for operations on arrays that call no computation.
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
        Opcode::Copy => exactly(operands).map(|[operand]| operand.clone()),
        Opcode::Slice(slices) => slices::slice(slices, operands),
        Opcode::DynamicSlice(sizes) => slices::dynamic_slice(sizes, operands),
        Opcode::DynamicUpdateSlice => slices::dynamic_update_slice(operands),
        Opcode::Concatenate(dimension) => slices::concatenate(*dimension, operands),
        Opcode::Pad(padding) => slices::pad(padding, operands),
        Opcode::Dot(dot) => contraction::dot(dot, operands, declared),
        Opcode::Convolution(convolution) => windows::convolution(convolution, operands, declared),
        Opcode::Gather { windows, sizes } => indexing::gather(windows, sizes, operands),
        Opcode::TopK { k, .. } => transforms::top_k(*k, operands),
        Opcode::Fft { kind, length } => transforms::fft(*kind, length, operands),
        Opcode::Cholesky { .. } => linear::cholesky(operands),
        Opcode::TriangularSolve(solve) => linear::triangular_solve(solve, operands),
        Opcode::RngBitGenerator(algorithm) => {
            transforms::random_bits(*algorithm, operands, declared)
        }
        _ => Err(Status::internal(format!(
            "expected an operation on arrays, found {}",
            opcode.name()
        ))),
    }
}

/// The shape of a `topk`.
pub(crate) fn top_k(k: usize, operand: &Shape) -> Result<Shape> {
    transforms::top_k(k, &[operand])
}

/// The operands, if there are exactly `N`.
fn exactly<'a, const N: usize>(operands: &[&'a Shape]) -> Result<[&'a Shape; N]> {
    let (expected, found) = (count(N, "operand"), operands.len());
    operands
        .try_into()
        .map_err(|_| invalid!("expected {expected}, found {found}"))
}

/// The operands, if there are exactly `N` and all are arrays.
fn arrays<'a, const N: usize>(operands: &[&'a Shape]) -> Result<[&'a ArrayShape; N]> {
    exactly::<N>(operands)?;
    let arrays = all_arrays(operands)?;
    let arrays = arrays.try_into();
    arrays.map_err(|_| Status::internal("expected as many arrays as operands"))
}

/// The operands, if all are arrays.
fn all_arrays<'a>(operands: &[&'a Shape]) -> Result<Vec<&'a ArrayShape>> {
    let arrays = operands.iter().enumerate();
    arrays.map(|(i, shape)| operand_array(i, shape)).collect()
}

/// The operands, if there is at least one and all are arrays of the same dimensions.
fn arrays_alike<'a>(what: &str, operands: &[&'a ArrayShape]) -> Result<&'a ArrayShape> {
    let Some((&first, others)) = operands.split_first() else {
        return Err(invalid!("expected operands, found none"));
    };
    if let Some(other) = others.iter().find(|a| a.dimensions() != first.dimensions()) {
        return Err(invalid!(
            "expected {what} of the same dimensions, found {first} and {other}"
        ));
    }
    Ok(first)
}

/// The operand with this number, if it is an array. Tokens are not arrays.
fn operand_array(number: usize, shape: &Shape) -> Result<&ArrayShape> {
    array(shape).ok_or_else(|| invalid!("expected an array as operand {number}, found {shape}"))
}

fn array(shape: &Shape) -> Option<&ArrayShape> {
    let array = shape.as_array();
    array.filter(|array| array.element_type() != ElementType::Token)
}

/// The declared shape, for operations that do not determine it.
fn declaration(declared: Option<&Shape>) -> Result<&Shape> {
    declared.ok_or_else(|| invalid!("expected a declared shape, found none"))
}

/// The declared shape, if it is an array.
fn declared_array(declared: Option<&Shape>) -> Result<&ArrayShape> {
    let declared = declaration(declared)?;
    array(declared).ok_or_else(|| invalid!("expected an array as result, found {declared}"))
}

/// The array without its layout.
fn bare(shape: &ArrayShape) -> Shape {
    Shape::Array(shape.clone().without_layout())
}

/// Checks that the shape has this dimension.
fn check_dimension(dimension: usize, shape: &ArrayShape) -> Result<()> {
    ensure!(
        dimension < shape.rank(),
        "expected a dimension of {shape}, found {dimension}"
    );
    Ok(())
}

/// For each dimension of the shape, whether it is listed. The listed dimensions are in range and
/// distinct.
fn distinct_dimensions(dimensions: &[usize], shape: &ArrayShape) -> Result<Vec<bool>> {
    let mut seen = vec![false; shape.rank()];
    for &dimension in dimensions {
        check_dimension(dimension, shape)?;
        let is_repeated = std::mem::replace(&mut seen[dimension], true);
        ensure!(
            !is_repeated,
            "expected each dimension once, found {dimension} twice"
        );
    }
    Ok(seen)
}

/// The sizes of the dimensions that are not listed, in order.
fn other_dimensions(listed: &[bool], shape: &ArrayShape) -> impl Iterator<Item = usize> {
    let dimensions = std::iter::zip(listed, shape.dimensions());
    dimensions.filter_map(|(listed, &size)| (!listed).then_some(size))
}

/// `1 operand`, `2 operands`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
