//! Tuples, tokens and barriers.

use super::exactly;
use callbox_core::values::{ElementType, Result, Shape};

/// A tuple of the operands.
pub(super) fn tuple(operands: &[&Shape], declared: Option<&Shape>) -> Result<Shape> {
    // Usually the declared shape fits, and no second one is built.
    if let Some(Shape::Tuple(tuple)) = declared {
        let mut pairs = std::iter::zip(tuple.elements(), operands);
        if tuple.elements().len() == operands.len() && pairs.all(|(a, b)| a.is_compatible(b)) {
            return Ok(Shape::Tuple(tuple.clone()));
        }
    }
    Shape::tuple(operands.iter().map(|&shape| shape.clone()).collect())
}

/// XLA's `InferGetTupleElementShape`.
pub(super) fn get_tuple_element(index: usize, operands: &[&Shape]) -> Result<Shape> {
    let [operand] = exactly(operands)?;
    let elements = operand.as_tuple();
    let elements = elements.ok_or_else(|| invalid!("expected a tuple, found {operand}"))?;
    elements.get(index).cloned().ok_or_else(|| {
        invalid!(
            "expected an index below {} in {operand}, found {index}",
            elements.len()
        )
    })
}

/// A token after any number of tokens.
pub(super) fn after_all(operands: &[&Shape]) -> Result<Shape> {
    let token = Shape::scalar(ElementType::Token);
    for (i, &operand) in operands.iter().enumerate() {
        ensure!(
            *operand == token,
            "expected a token as operand {i}, found {operand}"
        );
    }
    Ok(token)
}

/// The operand, usually a tuple, or a tuple of several operands.
pub(super) fn optimization_barrier(operands: &[&Shape], declared: Option<&Shape>) -> Result<Shape> {
    match operands {
        [] => Err(invalid!("expected operands, found none")),
        [operand] => Ok((*operand).clone()),
        _ => tuple(operands, declared),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_declared, refused, refused_as};
    use crate::Opcode;
    use callbox_core::StatusCode::ResourceExhausted;

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
            "expected a tuple of at most 1048576 shapes, found 1048579",
        );
    }
}
