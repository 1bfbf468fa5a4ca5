//! Inference of result shapes from operand shapes and the target's declaration.

use super::bindings::Unresolved;
use super::check::{self, Buffers};
use super::dimensions::{Declared, Sizes, label};
use super::{BufferSignature, Dimension, Signature};
use crate::values::{ArrayShape, ElementType, Result, Status};

/// The results of a call with these operands.
pub(super) fn infer(signature: &Signature, operands: &[ArrayShape]) -> Result<Vec<ArrayShape>> {
    let Some(results) = &signature.results else {
        return Err(unknown(signature, "its results are not declared"));
    };
    if signature.remaining_results {
        return Err(unknown(signature, "it takes any number of results"));
    }
    let Buffers {
        mut bindings,
        common,
        ..
    } = check::check_operands(signature, operands)?;
    let elementwise = common.map(super::dimensions::Common::into_dimensions);
    let mut shapes = Vec::new();
    for (number, result) in results.iter().filter(|r| !r.optional).enumerate() {
        let label = label(Some(result), "result", number);
        let element_type = element_type(signature, result, operands)
            .map_err(|what| unknown(signature, &format!("{what} of {label}")))?;
        let declared = result.dimensions.as_deref();
        let sizes = match (&elementwise, declared, result.rank) {
            (Some(sizes), _, _) => fitting(result, sizes, &label)?,
            (None, Some(declared), _) => {
                bindings.resolve(declared).map_err(|reason| match reason {
                    Unresolved::Unknown(symbol) => {
                        unknown(signature, &unbound(symbol, declared, &label))
                    }
                    Unresolved::NoSize(expression) => {
                        Status::invalid_argument(bindings.no_size(expression, declared, &label))
                    }
                })?
            }
            (None, None, Some(0)) => Vec::new(),
            (None, None, _) => {
                let what = format!("the dimensions of {label} are not declared");
                return Err(unknown(signature, &what));
            }
        };
        if let Some(declared) = declared {
            bindings
                .unify(declared, &sizes, &label)
                .map_err(Status::invalid_argument)?;
        }
        shapes.push(ArrayShape::new(element_type, &sizes)?);
    }
    Ok(shapes)
}

/// The dimensions of an elementwise target's operands, if the result's rank allows them.
fn fitting(result: &BufferSignature, sizes: &[usize], label: &str) -> Result<Vec<usize>> {
    match result.rank {
        Some(rank) if rank != sizes.len() => Err(Status::invalid_argument(format!(
            "Wrong buffer rank: expected {label} of rank {rank} but got {} from the operands, because the target is elementwise",
            Sizes(sizes)
        ))),
        _ => Ok(sizes.to_vec()),
    }
}

/// The element type of a result, or the reason why it is unknown.
fn element_type(
    signature: &Signature,
    result: &BufferSignature,
    operands: &[ArrayShape],
) -> Result<ElementType, &'static str> {
    match result.element_types.as_slice() {
        [] => Err("no element type is declared"),
        [one] => Ok(*one),
        several => {
            let declared = signature.operands.as_deref().unwrap_or_default();
            std::iter::zip(declared, operands)
                .find(|(operand, _)| operand.element_types == several)
                .map(|(_, found)| found.element_type())
                .ok_or("several element types are declared, but for no operand the same ones,")
        }
    }
}

fn unbound(missing: &str, declared: &[Dimension], label: &str) -> String {
    format!(
        "no operand says what {missing} is in the dimensions {} of {label}",
        Declared(declared)
    )
}

fn unknown(signature: &Signature, what: &str) -> Status {
    Status::invalid_argument(format!(
        "expected the shapes of the results to be said, for {:?} does not declare them: {what}",
        signature.name
    ))
}

#[cfg(test)]
mod tests;
