//! Dot.

use super::{arrays, declared_array, distinct_dimensions, other_dimensions};
use crate::DotDimensions;
use callbox_core::values::{ArrayShape, ElementType, Result, Shape, Status};

/// XLA's `InferDotOpShape`.
///
/// The result may have another type of the same kind, in which the products are summed. In HLO
/// text, `preferred_element_type` is the type of the result.
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
    let side = |shape, dimensions| Side { shape, dimensions };
    check_paired(
        "batch",
        side(lhs, &dimensions.lhs_batch),
        side(rhs, &dimensions.rhs_batch),
    )?;
    check_paired(
        "contracting",
        side(lhs, &dimensions.lhs_contracting),
        side(rhs, &dimensions.rhs_contracting),
    )?;
    let lhs_paired = [&*dimensions.lhs_batch, &dimensions.lhs_contracting].concat();
    let rhs_paired = [&*dimensions.rhs_batch, &dimensions.rhs_contracting].concat();
    let batch = dimensions.lhs_batch.iter().map(|&i| lhs.dimensions()[i]);
    let result = batch
        .chain(other_dimensions(
            &distinct_dimensions(&lhs_paired, lhs)?,
            lhs,
        ))
        .chain(other_dimensions(
            &distinct_dimensions(&rhs_paired, rhs)?,
            rhs,
        ))
        .collect::<Vec<_>>();
    Shape::array(result_type(lhs.element_type(), declared)?, &result)
}

/// Dimensions of one operand that are paired with dimensions of the other.
struct Side<'a> {
    shape: &'a ArrayShape,
    dimensions: &'a [usize],
}

fn check_paired(kind: &str, lhs: Side<'_>, rhs: Side<'_>) -> Result<()> {
    ensure!(
        lhs.dimensions.len() == rhs.dimensions.len(),
        "expected as many {kind} dimensions of both operands, found {} and {}",
        lhs.dimensions.len(),
        rhs.dimensions.len()
    );
    distinct_dimensions(lhs.dimensions, lhs.shape)?;
    distinct_dimensions(rhs.dimensions, rhs.shape)?;
    for (&l, &r) in std::iter::zip(lhs.dimensions, rhs.dimensions) {
        ensure!(
            lhs.shape.dimensions()[l] == rhs.shape.dimensions()[r],
            "expected {kind} dimensions of one size, found {l} of {} and {r} of {}",
            lhs.shape,
            rhs.shape
        );
    }
    Ok(())
}

/// XLA allows any result type. callbox requires one of the operands' kind, for which the rounding
/// is well defined.
pub(super) fn result_type(operand: ElementType, declared: Option<&Shape>) -> Result<ElementType> {
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
    if kinds.iter().any(|kind| kind(operand) != kind(result)) {
        return Err(Status::unimplemented(format!(
            "products of {operand} that are summed as {result} are not supported"
        )));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_declared, refused, refused_as, refused_declared};
    use crate::{DotDimensions, Opcode};
    use callbox_core::StatusCode::Unimplemented;

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
                &format!("products of {operand} that are summed as {result} are not supported"),
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
