//! Operations whose attributes name dimensions.

use super::{arrays, bare, check_dimension, count, declared_array, distinct_dimensions, exactly};
use crate::instruction::Domain;
use callbox_core::values::{ArrayShape, Result, Shape};

/// Checks an iota as XLA's verifier does: it has numbers, and is not a scalar.
pub(super) fn iota(
    dimension: usize,
    operands: &[&Shape],
    declared: Option<&Shape>,
) -> Result<Shape> {
    let [] = exactly(operands)?;
    let result = declared_array(declared)?;
    Domain::Number.check(result)?;
    check_dimension(dimension, result)?;
    Ok(Shape::Array(result.clone()))
}

/// The rule of XLA's verifier: each operand dimension maps to a result dimension of its size.
pub(super) fn broadcast(
    mapping: &[usize],
    operands: &[&Shape],
    declared: Option<&Shape>,
) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    let result = declared_array(declared)?;
    check_entries(mapping.len(), operand)?;
    distinct_dimensions(mapping, result)?;
    for (i, &dimension) in mapping.iter().enumerate() {
        let (from, to) = (operand.dimensions()[i], result.dimensions()[dimension]);
        ensure!(
            from == to,
            "expected dimension {dimension} of {result} to be dimension {i} of {operand}, \
             found {to} and {from}"
        );
    }
    Shape::array(operand.element_type(), result.dimensions())
}

/// XLA's `InferTransposeShape`.
pub(super) fn transpose(permutation: &[usize], operands: &[&Shape]) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    check_entries(permutation.len(), operand)?;
    distinct_dimensions(permutation, operand)?;
    let dimensions = permutation.iter().map(|&from| operand.dimensions()[from]);
    Shape::array(operand.element_type(), &Vec::from_iter(dimensions))
}

/// XLA's `InferReverseShape`.
pub(super) fn reverse(reversed: &[usize], operands: &[&Shape]) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    distinct_dimensions(reversed, operand)?;
    Ok(bare(operand))
}

/// Checks that an attribute has one entry for each dimension of the shape.
pub(super) fn check_entries(entries: usize, shape: &ArrayShape) -> Result<()> {
    ensure!(
        entries == shape.rank(),
        "expected {} for {shape}, found {entries}",
        count(shape.rank(), "dimension")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_declared, refused, refused_declared};
    use crate::Opcode;
    use callbox_core::StatusCode::InvalidArgument;

    #[test]
    fn iotas_count_along_a_dimension() {
        let iota = |dimension, declared| {
            check_declared(&Opcode::Iota(dimension), &[], Some(declared), declared);
        };
        iota(1, "s32[2,3]");
        iota(0, "c64[0]");
        iota(0, "u4[2]");
        iota(0, "f8e8m0fnu[2]");
        let refused = |dimension, declared, message| {
            let opcode = Opcode::Iota(dimension);
            refused_declared(InvalidArgument, &opcode, &[], Some(declared), message);
        };
        refused(0, "s32[]", "expected a dimension of s32[], found 0");
        refused(2, "s32[2,3]", "expected a dimension of s32[2,3], found 2");
        refused(
            0,
            "pred[2]",
            "expected elements that are integral, floating or complex, found pred[2]",
        );
    }

    #[test]
    fn broadcasts_map_dimensions() {
        for (mapping, operand, declared) in [
            (vec![], "f32[]", "f32[2,3]"),
            (vec![1], "f8e5m2[3]", "f8e5m2[2,3]"),
            (vec![0, 2], "f32[2,4]", "f32[2,3,4]"),
            (vec![2, 0], "f32[4,2]", "f32[2,3,4]"),
            (vec![0], "f32[0]", "f32[0,3]"),
        ] {
            check_declared(
                &Opcode::Broadcast(mapping),
                &[operand],
                Some(declared),
                declared,
            );
        }
        for (mapping, operand, declared, message) in [
            (
                vec![],
                "f32[3]",
                "f32[2,3]",
                "expected 1 dimension for f32[3], found 0",
            ),
            (
                vec![2],
                "f32[3]",
                "f32[2,3]",
                "expected a dimension of f32[2,3], found 2",
            ),
            (
                vec![1, 1],
                "f32[3,3]",
                "f32[2,3]",
                "expected each dimension once, found 1 twice",
            ),
            (
                vec![0],
                "f32[1]",
                "f32[2,3]",
                "expected dimension 0 of f32[2,3] to be dimension 0 of f32[1], found 2 and 1",
            ),
        ] {
            let opcode = Opcode::Broadcast(mapping);
            refused_declared(
                InvalidArgument,
                &opcode,
                &[operand],
                Some(declared),
                message,
            );
        }
    }

    #[test]
    fn transposes_permute() {
        check(
            &Opcode::Transpose(vec![2, 0, 1]),
            &["s4[2,3,4]"],
            "s4[4,2,3]",
        );
        check(&Opcode::Transpose(vec![]), &["f32[]"], "f32[]");
        for (permutation, message) in [
            (vec![0], "expected 2 dimensions for f32[2,3], found 1"),
            (vec![0, 0], "expected each dimension once, found 0 twice"),
            (vec![0, 2], "expected a dimension of f32[2,3], found 2"),
        ] {
            refused(&Opcode::Transpose(permutation), &["f32[2,3]"], message);
        }
    }

    #[test]
    fn reverses_keep_the_shape() {
        check(&Opcode::Reverse(vec![1]), &["f32[2,3]{0,1}"], "f32[2,3]");
        check(&Opcode::Reverse(vec![]), &["f32[]"], "f32[]");
        refused(
            &Opcode::Reverse(vec![1, 1]),
            &["f32[2,3]"],
            "expected each dimension once, found 1 twice",
        );
        refused(
            &Opcode::Reverse(vec![0]),
            &["token[]"],
            "expected an array as operand 0, found token[]",
        );
    }
}
