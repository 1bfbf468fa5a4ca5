//! Tuples, tokens and barriers.

use super::exactly;
use crate::values::{Blame, ElementType, Result, Shape, Status, StatusCode};

/// How many shapes a tuple may consist of, itself and all that is in it. Tuples of one tuple twice would double with each
/// instruction.
const MAX_TUPLE_SHAPES: usize = 1 << 20;

/// A tuple of the operands.
pub(super) fn tuple(operands: &[&Shape], declared: Option<&Shape>) -> Result<Shape> {
    // What is declared exists already. Comparing with it needs no second one, which a text could have made large by
    // naming a large operand often.
    if let Some(Shape::Tuple(tuple)) = declared {
        let fits = |(element, operand): (&Shape, &&Shape)| element.is_compatible(operand);
        if tuple.elements().len() == operands.len()
            && std::iter::zip(tuple.elements(), operands).all(fits)
        {
            return Ok(Shape::Tuple(tuple.clone()));
        }
    }
    let size = operands
        .iter()
        .try_fold(1, |size, operand| grow(size, operand));
    match size {
        Some(_) => Shape::tuple(operands.iter().map(|&shape| shape.clone()).collect()),
        None => Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!("expected a tuple of at most {MAX_TUPLE_SHAPES} shapes, found more"),
        )),
    }
}

/// XLA's `InferGetTupleElementShape`.
pub(super) fn get_tuple_element(index: usize, operands: &[&Shape]) -> Result<Shape> {
    let [operand] = exactly(operands)?;
    let Some(elements) = operand.as_tuple() else {
        return Err(Status::invalid_argument(format!(
            "expected a tuple, found {operand}"
        )));
    };
    elements.get(index).cloned().ok_or_else(|| {
        Status::invalid_argument(format!(
            "expected an index below {} in {operand}, found {index}",
            elements.len()
        ))
    })
}

/// A token after any number of tokens.
pub(super) fn after_all(operands: &[&Shape]) -> Result<Shape> {
    let token = Shape::scalar(ElementType::Token);
    match operands.iter().position(|operand| **operand != token) {
        None => Ok(token),
        Some(i) => Err(Status::invalid_argument(format!(
            "expected a token as operand {i}, found {}",
            operands[i]
        ))),
    }
}

/// One operand, which is usually a tuple, or several, which become one.
pub(super) fn optimization_barrier(operands: &[&Shape], declared: Option<&Shape>) -> Result<Shape> {
    match operands {
        [] => Err(Status::invalid_argument("expected operands, found none")),
        [operand] => Ok((*operand).clone()),
        _ => tuple(operands, declared),
    }
}

/// `size` and the number of shapes in `shape`, unless that is too many. Recurses as deep as tuples nest, which is bounded.
fn grow(size: usize, shape: &Shape) -> Option<usize> {
    let elements = shape.as_tuple().unwrap_or_default();
    elements
        .iter()
        .try_fold(size + 1, grow)
        .filter(|&size| size <= MAX_TUPLE_SHAPES)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_declared, refused, refused_as};
    use crate::StatusCode::ResourceExhausted;
    use crate::program::Opcode;

    #[test]
    fn tuples_are_of_their_operands() {
        check(&Opcode::Tuple, &[], "()");
        check(
            &Opcode::Tuple,
            &["f32[2]", "(token[], s32[])"],
            "(f32[2], (token[], s32[]))",
        );
        check_declared(&Opcode::Tuple, &["f32[2]{0}"], Some("(f32[2])"), "(f32[2])");
        check_declared(&Opcode::Tuple, &["f32[2]"], Some("(f32[3])"), "(f32[2])");
        check_declared(&Opcode::Tuple, &["f32[2]"], Some("f32[2]"), "(f32[2])");
        check_declared(
            &Opcode::Tuple,
            &["f32[2]"],
            Some("(f32[2], f32[])"),
            "(f32[2])",
        );
    }

    #[test]
    fn elements_are_counted_from_zero() {
        check(
            &Opcode::GetTupleElement(1),
            &["(f32[2], (s32[]))"],
            "(s32[])",
        );
        refused(
            &Opcode::GetTupleElement(2),
            &["(f32[2], s32[])"],
            "expected an index below 2 in (f32[2], s32[]), found 2",
        );
        refused(
            &Opcode::GetTupleElement(0),
            &["f32[2]"],
            "expected a tuple, found f32[2]",
        );
        refused(
            &Opcode::GetTupleElement(0),
            &[],
            "expected 1 operand, found 0",
        );
    }

    #[test]
    fn tokens_come_after_tokens() {
        check(&Opcode::AfterAll, &[], "token[]");
        check(&Opcode::AfterAll, &["token[]", "token[]"], "token[]");
        refused(
            &Opcode::AfterAll,
            &["token[]", "f32[]"],
            "expected a token as operand 1, found f32[]",
        );
    }

    #[test]
    fn barriers_change_nothing() {
        let barrier = Opcode::OptimizationBarrier;
        check(&barrier, &["(f32[2])"], "(f32[2])");
        check(&barrier, &["f32[2]", "s32[]"], "(f32[2], s32[])");
        refused(&barrier, &[], "expected operands, found none");
    }

    #[test]
    fn tuples_do_not_explode() {
        let wide = format!("({}f32[])", "f32[], ".repeat((1 << 19) - 1));
        refused_as(
            ResourceExhausted,
            &Opcode::Tuple,
            &[&wide, &wide],
            "expected a tuple of at most 1048576 shapes, found more",
        );
    }
}
