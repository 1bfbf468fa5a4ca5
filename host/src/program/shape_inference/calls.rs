//! Operations that call computations: whether signatures fit.

use super::{
    Callee, all_arrays, bare, count, distinct_dimensions, exactly, list, other_dimensions,
};
use crate::values::{ArrayShape, ElementType, Result, Shape, Status};

/// XLA's `InferCallShape`, for `call` and for `fusion`.
pub(super) fn call(operands: &[&Shape], callee: &Callee<'_>) -> Result<Shape> {
    takes("the computation", callee, operands)?;
    Ok(callee.result.clone())
}

/// XLA's `InferWhileShape`.
pub(super) fn while_loop(
    operands: &[&Shape],
    condition: &Callee<'_>,
    body: &Callee<'_>,
) -> Result<Shape> {
    let [state] = exactly(operands)?;
    takes("the condition", condition, operands)?;
    takes("the body", body, operands)?;
    if !is_scalar(condition.result, ElementType::Pred) {
        return Err(Status::invalid_argument(format!(
            "expected a condition that gives pred[], found {}",
            condition.result
        )));
    }
    if !body.result.is_compatible(state) {
        return Err(Status::invalid_argument(format!(
            "expected a body that gives {state}, found {}",
            body.result
        )));
    }
    Ok(state.clone())
}

/// XLA's `InferConditionalShape`.
pub(super) fn conditional(operands: &[&Shape], branches: &[Callee<'_>]) -> Result<Shape> {
    let (Some((index, arguments)), Some(first)) = (operands.split_first(), branches.first()) else {
        return Err(Status::invalid_argument(format!(
            "expected an operand and a branch at least, found {} and {}",
            operands.len(),
            count(branches.len(), "branch computation")
        )));
    };
    let by_predicate = is_scalar(index, ElementType::Pred);
    if !by_predicate && !is_scalar(index, ElementType::S32) {
        return Err(Status::invalid_argument(format!(
            "expected pred[] or s32[] to choose by, found {index}"
        )));
    }
    if by_predicate && branches.len() != 2 {
        return Err(Status::invalid_argument(format!(
            "expected 2 branch computations for a predicate, found {}",
            branches.len()
        )));
    }
    if arguments.len() != branches.len() {
        return Err(Status::invalid_argument(format!(
            "expected {} behind the index, one for each branch, found {}",
            count(branches.len(), "operand"),
            arguments.len()
        )));
    }
    for (i, (branch, argument)) in std::iter::zip(branches, arguments).enumerate() {
        takes(
            &format!("branch {i}"),
            branch,
            std::slice::from_ref(argument),
        )?;
        if !branch.result.is_compatible(first.result) {
            return Err(Status::invalid_argument(format!(
                "expected branches that all give {}, found {} of branch {i}",
                first.result, branch.result
            )));
        }
    }
    Ok(first.result.clone())
}

/// XLA's `InferMapShape`, over all dimensions.
pub(super) fn map(operands: &[&Shape], callee: &Callee<'_>) -> Result<Shape> {
    let arrays = all_arrays(operands)?;
    let Some(first) = arrays.first() else {
        return Err(Status::invalid_argument("expected operands, found none"));
    };
    if let Some(other) = arrays.iter().find(|a| a.dimensions() != first.dimensions()) {
        return Err(Status::invalid_argument(format!(
            "expected operands of the same dimensions, found {first} and {other}"
        )));
    }
    let elements: Vec<_> = arrays.iter().map(|array| element(array)).collect();
    let elements: Vec<_> = elements.iter().collect();
    takes("the computation", callee, &elements)?;
    match super::array(callee.result).filter(|result| result.rank() == 0) {
        Some(result) => Shape::array(result.element_type(), first.dimensions()),
        None => Err(Status::invalid_argument(format!(
            "expected a computation that gives a scalar, found {}",
            callee.result
        ))),
    }
}

/// XLA's `InferReduceShape`. The result is a tuple if the computation's is: for one array it may be either.
pub(super) fn reduce(
    dimensions: &[usize],
    operands: &[&Shape],
    callee: &Callee<'_>,
) -> Result<Shape> {
    let operands = all_arrays(operands)?;
    let (reduced, initial) = operands.split_at(operands.len() / 2);
    let Some(first) = reduced.first().filter(|_| reduced.len() == initial.len()) else {
        return Err(Status::invalid_argument(format!(
            "expected arrays and as many initial values, found {}",
            count(operands.len(), "operand")
        )));
    };
    if let Some(other) = reduced
        .iter()
        .find(|a| a.dimensions() != first.dimensions())
    {
        return Err(Status::invalid_argument(format!(
            "expected arrays of the same dimensions, found {first} and {other}"
        )));
    }
    let elements: Vec<_> = reduced.iter().map(|array| element(array)).collect();
    for (initial, element) in std::iter::zip(initial, &elements) {
        if bare(initial) != *element {
            return Err(Status::invalid_argument(format!(
                "expected the initial value {element}, found {initial}"
            )));
        }
    }
    let gone = distinct_dimensions(dimensions, first)?;
    let kept: Vec<_> = other_dimensions(&gone, first).collect();
    reducer(callee, &elements)?;
    let results: Result<Vec<_>> = reduced
        .iter()
        .map(|array| Shape::array(array.element_type(), &kept))
        .collect();
    match (callee.result, results?) {
        (Shape::Array(_), mut results) if results.len() == 1 => Ok(results.remove(0)),
        (_, results) => Shape::tuple(results),
    }
}

/// Checks that a computation reduces elements of these types: from two of each to one of each.
fn reducer(callee: &Callee<'_>, elements: &[Shape]) -> Result<()> {
    let twice: Vec<_> = elements.iter().chain(elements).collect();
    takes("the computation", callee, &twice)?;
    let fits = match callee.result.as_tuple() {
        None => elements.len() == 1 && callee.result.is_compatible(&elements[0]),
        Some(results) => {
            results.len() == elements.len()
                && std::iter::zip(results, elements).all(|(a, b)| a.is_compatible(b))
        }
    };
    match (fits, elements) {
        (true, _) => Ok(()),
        (false, [element]) => Err(Status::invalid_argument(format!(
            "expected a computation that gives {element}, found {}",
            callee.result
        ))),
        (false, _) => Err(Status::invalid_argument(format!(
            "expected a computation that gives ({}), found {}",
            list(elements),
            callee.result
        ))),
    }
}

/// Checks that a computation can be called with these.
fn takes(what: &str, callee: &Callee<'_>, arguments: &[&Shape]) -> Result<()> {
    let fits = callee.parameters.len() == arguments.len()
        && std::iter::zip(&callee.parameters, arguments).all(|(a, b)| a.is_compatible(b));
    match fits {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "expected {what} to take ({}), found ({})",
            list(arguments.iter().copied()),
            list(callee.parameters.iter().copied())
        ))),
    }
}

fn is_scalar(shape: &Shape, element_type: ElementType) -> bool {
    shape.is_compatible(&Shape::scalar(element_type))
}

/// The shape of an array's elements.
fn element(array: &ArrayShape) -> Shape {
    Shape::scalar(array.element_type())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::super::testing::{Signature, infer_text};
    use crate::program::{ComputationId, FusionKind, Opcode};

    fn check(opcode: &Opcode, operands: &[&str], callees: &[Signature<'_>], result: &str) {
        let shape = infer_text(opcode, operands, None, callees).unwrap();
        assert_eq!(shape.to_string(), result, "{opcode:?}");
    }

    fn refused(opcode: &Opcode, operands: &[&str], callees: &[Signature<'_>], message: &str) {
        let err = infer_text(opcode, operands, None, callees).unwrap_err();
        assert_eq!(err.message(), message, "{opcode:?}");
    }

    fn callee(number: u32) -> ComputationId {
        ComputationId(number)
    }

    fn while_loop() -> Opcode {
        Opcode::While {
            condition: callee(0),
            body: callee(1),
        }
    }

    fn conditional(branches: u32) -> Opcode {
        Opcode::Conditional((0..branches).map(callee).collect())
    }

    fn reduce(dimensions: &[usize]) -> Opcode {
        Opcode::Reduce {
            dimensions: dimensions.to_vec(),
            computation: callee(0),
        }
    }

    #[test]
    fn calls_fit_signatures() {
        let signature: Signature<'_> = (&["f32[2]{0}", "(s32[])"], "pred[]");
        for opcode in [
            Opcode::Call(callee(0)),
            Opcode::Fusion(FusionKind::Loop, callee(0)),
        ] {
            check(&opcode, &["f32[2]", "(s32[])"], &[signature], "pred[]");
            refused(
                &opcode,
                &["f32[2]"],
                &[signature],
                "expected the computation to take (f32[2]), found (f32[2]{0}, (s32[]))",
            );
            refused(
                &opcode,
                &["f32[2]", "s32[]"],
                &[signature],
                "expected the computation to take (f32[2], s32[]), found (f32[2]{0}, (s32[]))",
            );
        }
        check(&Opcode::Call(callee(0)), &[], &[(&[], "()")], "()");
    }

    #[test]
    fn loops_keep_their_state() {
        let state = "(s32[], token[])";
        let condition: Signature<'_> = (&[state], "pred[]");
        check(
            &while_loop(),
            &[state],
            &[condition, (&[state], state)],
            state,
        );
        refused(
            &while_loop(),
            &[state],
            &[condition, (&[state], "s32[]")],
            "expected a body that gives (s32[], token[]), found s32[]",
        );
        refused(
            &while_loop(),
            &[state],
            &[(&[state], "s32[]"), (&[state], state)],
            "expected a condition that gives pred[], found s32[]",
        );
        refused(
            &while_loop(),
            &[state],
            &[condition, (&[state, state], state)],
            "expected the body to take ((s32[], token[])), \
             found ((s32[], token[]), (s32[], token[]))",
        );
        refused(
            &while_loop(),
            &["s32[]"],
            &[condition, (&[state], state)],
            "expected the condition to take (s32[]), found ((s32[], token[]))",
        );
        refused(
            &while_loop(),
            &[state, state],
            &[condition, (&[state], state)],
            "expected 1 operand, found 2",
        );
    }

    #[test]
    fn conditionals_choose_by_predicate_or_index() {
        let branch: Signature<'_> = (&["f32[2]"], "f32[]");
        let other: Signature<'_> = (&["()"], "f32[]");
        check(
            &conditional(2),
            &["pred[]", "f32[2]", "()"],
            &[branch, other],
            "f32[]",
        );
        check(&conditional(1), &["s32[]", "f32[2]"], &[branch], "f32[]");
        for (operands, callees, message) in [
            (
                &["u32[]", "f32[2]"][..],
                &[branch][..],
                "expected pred[] or s32[] to choose by, found u32[]",
            ),
            (
                &["pred[]", "f32[2]"],
                &[branch],
                "expected 2 branch computations for a predicate, found 1",
            ),
            (
                &["s32[]", "f32[2]"],
                &[branch, branch],
                "expected 2 operands behind the index, one for each branch, found 1",
            ),
            (
                &["s32[]", "f32[2]", "f32[2]"],
                &[branch, other],
                "expected branch 1 to take (f32[2]), found (())",
            ),
            (
                &["s32[]", "f32[2]", "f32[2]"],
                &[branch, (&["f32[2]"], "f32[2]")],
                "expected branches that all give f32[], found f32[2] of branch 1",
            ),
            (
                &["s32[]"],
                &[],
                "expected an operand and a branch at least, found 1 and 0 branch computations",
            ),
        ] {
            refused(
                &conditional(callees.len() as u32),
                operands,
                callees,
                message,
            );
        }
    }

    #[test]
    fn maps_are_by_element() {
        let opcode = Opcode::Map(callee(0));
        let signature: Signature<'_> = (&["f32[]", "s32[]"], "pred[]");
        check(
            &opcode,
            &["f32[2,3]", "s32[2,3]"],
            &[signature],
            "pred[2,3]",
        );
        refused(
            &opcode,
            &["f32[2,3]", "s32[3]"],
            &[signature],
            "expected operands of the same dimensions, found f32[2,3] and s32[3]",
        );
        refused(
            &opcode,
            &["f32[2]"],
            &[signature],
            "expected the computation to take (f32[]), found (f32[], s32[])",
        );
        refused(
            &opcode,
            &["f32[2]"],
            &[(&["f32[]"], "(f32[])")],
            "expected a computation that gives a scalar, found (f32[])",
        );
        refused(&opcode, &[], &[signature], "expected operands, found none");
    }

    #[test]
    fn reductions_drop_dimensions() {
        let add: Signature<'_> = (&["f32[]", "f32[]"], "f32[]");
        check(&reduce(&[1]), &["f32[2,3]", "f32[]"], &[add], "f32[2]");
        check(&reduce(&[2, 0]), &["f32[2,3,4]", "f32[]"], &[add], "f32[3]");
        check(&reduce(&[]), &["f32[2]", "f32[]"], &[add], "f32[2]");
        let pair: Signature<'_> = (&["f32[]", "s32[]", "f32[]", "s32[]"], "(f32[], s32[])");
        check(
            &reduce(&[0]),
            &["f32[2,3]", "s32[2,3]", "f32[]", "s32[]"],
            &[pair],
            "(f32[3], s32[3])",
        );
        let single: Signature<'_> = (&["s4[]", "s4[]"], "(s4[])");
        check(&reduce(&[0]), &["s4[2]", "s4[]"], &[single], "(s4[])");
    }

    #[test]
    fn reductions_fit_their_computation() {
        let add: Signature<'_> = (&["f32[]", "f32[]"], "f32[]");
        for (dimensions, operands, callee, message) in [
            (
                &[0][..],
                &["f32[2]", "f32[2]"][..],
                add,
                "expected the initial value f32[], found f32[2]",
            ),
            (
                &[0],
                &["f32[2]", "s32[]"],
                add,
                "expected the initial value f32[], found s32[]",
            ),
            (
                &[1],
                &["f32[2]", "f32[]"],
                add,
                "expected a dimension of f32[2], found 1",
            ),
            (
                &[0, 0],
                &["f32[2]", "f32[]"],
                add,
                "expected each dimension once, found 0 twice",
            ),
            (
                &[0],
                &["f32[2]", "f32[]", "f32[]"],
                add,
                "expected arrays and as many initial values, found 3 operands",
            ),
            (
                &[0],
                &[],
                add,
                "expected arrays and as many initial values, found 0 operands",
            ),
            (
                &[0],
                &["f32[2]", "f32[3]", "f32[]", "f32[]"],
                add,
                "expected arrays of the same dimensions, found f32[2] and f32[3]",
            ),
            (
                &[0],
                &["s32[2]", "s32[]"],
                add,
                "expected the computation to take (s32[], s32[]), found (f32[], f32[])",
            ),
            (
                &[0],
                &["f32[2]", "f32[]"],
                (&["f32[]", "f32[]"], "f32[1]"),
                "expected a computation that gives f32[], found f32[1]",
            ),
            (
                &[0],
                &["f32[2]", "f32[2]", "f32[]", "f32[]"],
                (&["f32[]", "f32[]", "f32[]", "f32[]"], "f32[]"),
                "expected a computation that gives (f32[], f32[]), found f32[]",
            ),
        ] {
            refused(&reduce(dimensions), operands, &[callee], message);
        }
    }
}
