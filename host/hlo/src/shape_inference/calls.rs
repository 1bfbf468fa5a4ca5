//! Operations that call computations: whether the signatures fit.

use std::fmt;

use super::{
    all_arrays, arrays_alike, bare, count, distinct_dimensions, exactly, other_dimensions,
};
use crate::Computation;
use callbox_core::values::{ArrayShape, ElementType, Result, Shape};

/// XLA's `InferCallShape`, for `call` and for `fusion`.
pub(super) fn call(operands: &[&Shape], callee: &Computation) -> Result<Shape> {
    check_takes("the computation", callee, operands)?;
    Ok(callee.result_shape().clone())
}

/// XLA's `InferWhileShape`.
pub(super) fn while_loop(
    operands: &[&Shape],
    condition: &Computation,
    body: &Computation,
) -> Result<Shape> {
    let [state] = exactly(operands)?;
    check_takes("the condition", condition, operands)?;
    check_takes("the body", body, operands)?;
    ensure!(
        is_scalar(condition.result_shape(), ElementType::Pred),
        "expected a condition that gives pred[], found {}",
        condition.result_shape()
    );
    ensure!(
        body.result_shape().is_compatible(state),
        "expected a body that gives {state}, found {}",
        body.result_shape()
    );
    Ok(state.clone())
}

/// XLA's `InferConditionalShape`.
pub(super) fn conditional(operands: &[&Shape], branches: &[&Computation]) -> Result<Shape> {
    let (Some((index, arguments)), Some(first)) = (operands.split_first(), branches.first()) else {
        return Err(invalid!(
            "expected an operand and a branch at least, found {} and {}",
            operands.len(),
            count(branches.len(), "branch computation")
        ));
    };
    let by_predicate = is_scalar(index, ElementType::Pred);
    ensure!(
        by_predicate || is_scalar(index, ElementType::S32),
        "expected pred[] or s32[] to choose by, found {index}"
    );
    ensure!(
        !by_predicate || branches.len() == 2,
        "expected 2 branch computations for a predicate, found {}",
        branches.len()
    );
    ensure!(
        arguments.len() == branches.len(),
        "expected {} behind the index, one for each branch, found {}",
        count(branches.len(), "operand"),
        arguments.len()
    );
    let result = first.result_shape();
    for (i, (branch, &argument)) in std::iter::zip(branches, arguments).enumerate() {
        check_takes(&format!("branch {i}"), branch, &[argument])?;
        ensure!(
            branch.result_shape().is_compatible(result),
            "expected branches that all give {result}, found {} of branch {i}",
            branch.result_shape()
        );
    }
    Ok(result.clone())
}

/// XLA's `InferMapShape`, over all dimensions.
pub(super) fn map(operands: &[&Shape], callee: &Computation) -> Result<Shape> {
    let arrays = all_arrays(operands)?;
    let first = arrays_alike("operands", &arrays)?;
    let elements = Vec::from_iter(arrays.iter().map(|array| element(array)));
    check_takes("the computation", callee, &Vec::from_iter(&elements))?;
    let result = callee.result_shape();
    match super::array(result).filter(|result| result.rank() == 0) {
        Some(result) => Shape::array(result.element_type(), first.dimensions()),
        None => Err(invalid!(
            "expected a computation that gives a scalar, found {result}"
        )),
    }
}

/// XLA's `InferReduceShape`.
///
/// The result is a tuple if the computation's is. For one array, both forms are allowed.
pub(super) fn reduce(
    dimensions: &[usize],
    operands: &[&Shape],
    callee: &Computation,
) -> Result<Shape> {
    let operands = all_arrays(operands)?;
    let (reduced, elements) = with_initial(&operands)?;
    let first = arrays_alike("arrays", reduced)?;
    let removed = distinct_dimensions(dimensions, first)?;
    let kept = Vec::from_iter(other_dimensions(&removed, first));
    check_reducer(callee, &elements)?;
    joined(callee, reduced, |_| Ok(kept.clone()))
}

/// The result for each array: a tuple if the computation's result is one, or if there is more than
/// one array.
pub(super) fn joined(
    callee: &Computation,
    arrays: &[&ArrayShape],
    dimensions: impl Fn(&ArrayShape) -> Result<Vec<usize>>,
) -> Result<Shape> {
    let results = arrays
        .iter()
        .map(|array| Shape::array(array.element_type(), &dimensions(array)?));
    let mut results = results.collect::<Result<Vec<_>>>()?;
    match (callee.result_shape(), results.len()) {
        (Shape::Array(_), 1) => Ok(results.remove(0)),
        _ => Shape::tuple(results),
    }
}

/// Splits operands into arrays of the same dimensions and as many initial values of their types.
pub(super) fn with_initial<'a, 's>(
    operands: &'s [&'a ArrayShape],
) -> Result<(&'s [&'a ArrayShape], Vec<Shape>)> {
    let (arrays, initial) = operands.split_at(operands.len() / 2);
    ensure!(
        !arrays.is_empty() && arrays.len() == initial.len(),
        "expected arrays and as many initial values, found {}",
        count(operands.len(), "operand")
    );
    arrays_alike("arrays", arrays)?;
    let elements = Vec::from_iter(arrays.iter().map(|array| element(array)));
    for (initial, element) in std::iter::zip(initial, &elements) {
        ensure!(
            bare(initial) == *element,
            "expected the initial value {element}, found {initial}"
        );
    }
    Ok((arrays, elements))
}

/// XLA's `InferVariadicOpShape` for sorts. One operand gives an array, several a tuple.
pub(super) fn sort(dimension: usize, operands: &[&Shape], callee: &Computation) -> Result<Shape> {
    let arrays = all_arrays(operands)?;
    let first = arrays_alike("operands", &arrays)?;
    super::check_dimension(dimension, first)?;
    let elements = Vec::from_iter(arrays.iter().map(|array| element(array)));
    let pairs = Vec::from_iter(elements.iter().flat_map(|element| [element, element]));
    check_takes("the comparison", callee, &pairs)?;
    ensure!(
        is_scalar(callee.result_shape(), ElementType::Pred),
        "expected a comparison that gives pred[], found {}",
        callee.result_shape()
    );
    match &*arrays {
        [array] => Ok(bare(array)),
        _ => Shape::tuple(arrays.iter().map(|array| bare(array)).collect()),
    }
}

/// Checks that a computation takes two values of each type and gives one of each.
pub(super) fn check_reducer(callee: &Computation, elements: &[Shape]) -> Result<()> {
    let twice = Vec::from_iter(elements.iter().chain(elements));
    check_takes("the computation", callee, &twice)?;
    let result = callee.result_shape();
    let results = match result {
        Shape::Array(_) => std::slice::from_ref(result),
        Shape::Tuple(tuple) => tuple.elements(),
    };
    if are_compatible(results.iter(), elements.iter()) {
        return Ok(());
    }
    Err(match elements {
        [element] => invalid!("expected a computation that gives {element}, found {result}"),
        _ => {
            let expected = Vec::from_iter(elements);
            invalid!(
                "expected a computation that gives ({}), found {result}",
                list(&expected)
            )
        }
    })
}

/// Checks that a computation can be called with these arguments.
pub(super) fn check_takes(what: &str, callee: &Computation, arguments: &[&Shape]) -> Result<()> {
    ensure!(
        are_compatible(callee.parameter_shapes(), arguments.iter().copied()),
        "expected {what} to take ({}), found ({})",
        list(arguments),
        list(&Vec::from_iter(callee.parameter_shapes()))
    );
    Ok(())
}

fn are_compatible<'a>(
    these: impl ExactSizeIterator<Item = &'a Shape>,
    those: impl ExactSizeIterator<Item = &'a Shape>,
) -> bool {
    these.len() == those.len() && std::iter::zip(these, those).all(|(a, b)| a.is_compatible(b))
}

pub(super) fn is_scalar(shape: &Shape, element_type: ElementType) -> bool {
    shape.is_compatible(&Shape::scalar(element_type))
}

/// The shape of an array's elements.
pub(super) fn element(array: &ArrayShape) -> Shape {
    Shape::scalar(array.element_type())
}

/// Shapes as in a signature: `f32[2], s32[]`.
fn list(shapes: &[&Shape]) -> impl fmt::Display {
    fmt::from_fn(|f| {
        for (i, shape) in shapes.iter().enumerate() {
            write!(f, "{}{shape}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
