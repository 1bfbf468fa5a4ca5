//! Dot.

use super::{arrays, declared_array, distinct_dimensions, other_dimensions};
use crate::program::DotDimensions;
use crate::values::{ArrayShape, ElementType, Result, Shape, Status};

/// XLA's `InferDotOpShape`. The result may have another type of the same kind, in which the products are summed:
/// `preferred_element_type`, which HLO text has only as the result's type.
pub(super) fn dot(
    dimensions: &DotDimensions,
    operands: &[&Shape],
    declared: Option<&Shape>,
) -> Result<Shape> {
    let [lhs, rhs] = arrays(operands)?;
    if lhs.element_type() != rhs.element_type() {
        return Err(Status::unimplemented(format!(
            "dot of different element types is not supported: {lhs} and {rhs}"
        )));
    }
    paired(
        "batch",
        (lhs, &dimensions.lhs_batch),
        (rhs, &dimensions.rhs_batch),
    )?;
    paired(
        "contracting",
        (lhs, &dimensions.lhs_contracting),
        (rhs, &dimensions.rhs_contracting),
    )?;
    let lhs_taken = [&*dimensions.lhs_batch, &dimensions.lhs_contracting].concat();
    let rhs_taken = [&*dimensions.rhs_batch, &dimensions.rhs_contracting].concat();
    let lhs_taken = distinct_dimensions(&lhs_taken, lhs)?;
    let rhs_taken = distinct_dimensions(&rhs_taken, rhs)?;
    let batch = dimensions.lhs_batch.iter().map(|&i| lhs.dimensions()[i]);
    let result: Vec<_> = batch
        .chain(other_dimensions(&lhs_taken, lhs))
        .chain(other_dimensions(&rhs_taken, rhs))
        .collect();
    Shape::array(result_type(lhs.element_type(), declared)?, &result)
}

/// Checks dimensions of the left operand and those of the right that belong to them.
fn paired(kind: &str, lhs: (&ArrayShape, &[usize]), rhs: (&ArrayShape, &[usize])) -> Result<()> {
    let ((lhs, lhs_dimensions), (rhs, rhs_dimensions)) = (lhs, rhs);
    if lhs_dimensions.len() != rhs_dimensions.len() {
        return Err(Status::invalid_argument(format!(
            "expected as many {kind} dimensions of both operands, found {} and {}",
            lhs_dimensions.len(),
            rhs_dimensions.len()
        )));
    }
    distinct_dimensions(lhs_dimensions, lhs)?;
    distinct_dimensions(rhs_dimensions, rhs)?;
    for (&l, &r) in std::iter::zip(lhs_dimensions, rhs_dimensions) {
        if lhs.dimensions()[l] != rhs.dimensions()[r] {
            return Err(Status::invalid_argument(format!(
                "expected {kind} dimensions of one size, found {l} of {lhs} and {r} of {rhs}"
            )));
        }
    }
    Ok(())
}

/// XLA lets a result be of any type. Here it is of the operands' kind, so that there is one answer to how it is rounded.
fn result_type(operand: ElementType, declared: Option<&Shape>) -> Result<ElementType> {
    if declared.is_none() {
        return Ok(operand);
    }
    let result = declared_array(declared)?.element_type();
    let kinds = [
        ElementType::is_pred,
        ElementType::is_signed_integral,
        ElementType::is_unsigned_integral,
        ElementType::is_floating,
        ElementType::is_complex,
    ];
    match kinds.iter().all(|kind| kind(operand) == kind(result)) {
        true => Ok(result),
        false => Err(Status::unimplemented(format!(
            "dot of {operand} to {result} is not supported"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_declared, refused, refused_as, refused_declared};
    use crate::StatusCode::Unimplemented;
    use crate::program::{DotDimensions, Opcode};

    fn dot(batch: (&[usize], &[usize]), contracting: (&[usize], &[usize])) -> Opcode {
        Opcode::Dot(DotDimensions {
            lhs_batch: batch.0.to_vec(),
            rhs_batch: batch.1.to_vec(),
            lhs_contracting: contracting.0.to_vec(),
            rhs_contracting: contracting.1.to_vec(),
        })
    }

    #[test]
    fn results_are_batch_then_left_then_right() {
        let none: (&[usize], &[usize]) = (&[], &[]);
        check(
            &dot(none, (&[1], &[0])),
            &["f32[2,3]", "f32[3,4]"],
            "f32[2,4]",
        );
        check(&dot(none, (&[0], &[0])), &["s8[3]", "s8[3]"], "s8[]");
        check(&dot(none, none), &["f32[]", "f32[2]"], "f32[2]");
        check(&dot(none, none), &["f32[2]", "f32[3]"], "f32[2,3]");
        check(
            &dot((&[2], &[0]), (&[0], &[2])),
            &["c64[3,5,7]", "c64[7,6,3]"],
            "c64[7,5,6]",
        );
        check(
            &dot((&[1, 0], &[0, 1]), none),
            &["pred[2,3,4]", "pred[3,2]"],
            "pred[3,2,4]",
        );
    }

    #[test]
    fn results_may_be_wider() {
        let opcode = dot((&[], &[]), (&[0], &[0]));
        for (operand, result) in [
            ("bf16[3]", "f32[]"),
            ("s8[3]", "s32[]"),
            ("f32[3]", "f32[]"),
            ("f32[3]", "f8e5m2[]"),
            ("f8e4m3fn[3]", "f32[]"),
            ("s4[3]", "s4[]"),
            ("s4[3]", "s32[]"),
        ] {
            check_declared(&opcode, &[operand, operand], Some(result), result);
        }
        for (operand, result) in [("f32", "s32"), ("s8", "u8"), ("pred", "u8"), ("u4", "s4")] {
            let operand_shape = format!("{operand}[3]");
            refused_declared(
                Unimplemented,
                &opcode,
                &[&operand_shape, &operand_shape],
                Some(&format!("{result}[]")),
                &format!("dot of {operand} to {result} is not supported"),
            );
        }
    }

    #[test]
    fn dimensions_belong_together() {
        let operands = ["f32[2,3]", "f32[3,4]"];
        for (batch, contracting, message) in [
            (
                (&[][..], &[][..]),
                (&[0][..], &[0][..]),
                "expected contracting dimensions of one size, found 0 of f32[2,3] and 0 of f32[3,4]",
            ),
            (
                (&[], &[]),
                (&[1], &[]),
                "expected as many contracting dimensions of both operands, found 1 and 0",
            ),
            (
                (&[1], &[0]),
                (&[1], &[0]),
                "expected each dimension once, found 1 twice",
            ),
            (
                (&[], &[]),
                (&[2], &[0]),
                "expected a dimension of f32[2,3], found 2",
            ),
            (
                (&[], &[]),
                (&[1], &[9]),
                "expected a dimension of f32[3,4], found 9",
            ),
            (
                (&[0], &[1]),
                (&[], &[]),
                "expected batch dimensions of one size, found 0 of f32[2,3] and 1 of f32[3,4]",
            ),
        ] {
            refused(&dot(batch, contracting), &operands, message);
        }
        let opcode = dot((&[], &[]), (&[0], &[0]));
        refused_as(
            Unimplemented,
            &opcode,
            &["f32[3]", "bf16[3]"],
            "dot of different element types is not supported: f32[3] and bf16[3]",
        );
    }
}
