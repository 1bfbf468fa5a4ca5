//! Operations that take parts of arrays or combine arrays.

use super::dimensions::check_entries;
use super::{all_arrays, arrays, bare, check_dimension, count, operand_array};
use crate::{PaddingDimension, SliceDimension};
use callbox_core::values::{ArrayShape, Result, Shape};

/// XLA's `InferSliceShape`.
pub(super) fn slice(slices: &[SliceDimension], operands: &[&Shape]) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    check_entries(slices.len(), operand)?;
    let mut sizes = Vec::with_capacity(slices.len());
    for (i, (slice, &size)) in std::iter::zip(slices, operand.dimensions()).enumerate() {
        let SliceDimension {
            start,
            limit,
            stride,
        } = *slice;
        ensure!(
            stride > 0,
            "expected a stride of at least 1 in dimension {i}, found 0"
        );
        ensure!(
            start <= limit && limit <= size,
            "expected a slice within [0:{size}] in dimension {i}, found [{start}:{limit}]"
        );
        sizes.push((limit - start).div_ceil(stride));
    }
    Shape::array(operand.element_type(), &sizes)
}

/// XLA's `InferDynamicSliceShape`, with an index operand for each dimension.
pub(super) fn dynamic_slice(sizes: &[usize], operands: &[&Shape]) -> Result<Shape> {
    let Some((operand, starts)) = operands.split_first() else {
        return Err(invalid!("expected operands, found none"));
    };
    let operand = operand_array(0, operand)?;
    check_start_indices(operand, starts)?;
    check_entries(sizes.len(), operand)?;
    check_part(sizes, operand)?;
    Shape::array(operand.element_type(), sizes)
}

/// XLA's `InferDynamicUpdateSliceShape`, with an index operand for each dimension.
pub(super) fn dynamic_update_slice(operands: &[&Shape]) -> Result<Shape> {
    let [operand, update, starts @ ..] = operands else {
        return Err(invalid!(
            "expected at least 2 operands, found {}",
            operands.len()
        ));
    };
    let (operand, update) = (operand_array(0, operand)?, operand_array(1, update)?);
    check_start_indices(operand, starts)?;
    ensure!(
        update.element_type() == operand.element_type() && update.rank() == operand.rank(),
        "expected an update of {} elements and {}, found {update}",
        operand.element_type(),
        count(operand.rank(), "dimension")
    );
    check_part(update.dimensions(), operand)?;
    Ok(bare(operand))
}

/// XLA's `InferConcatOpShape`.
pub(super) fn concatenate(dimension: usize, operands: &[&Shape]) -> Result<Shape> {
    let parts = all_arrays(operands)?;
    let Some(first) = parts.first() else {
        return Err(invalid!("expected operands, found none"));
    };
    check_dimension(dimension, first)?;
    let mut dimensions = first.dimensions().to_vec();
    dimensions[dimension] = 0;
    for part in &parts {
        let mut sizes = std::iter::zip(part.dimensions(), first.dimensions()).enumerate();
        ensure!(
            part.element_type() == first.element_type()
                && part.rank() == first.rank()
                && sizes.all(|(i, (a, b))| i == dimension || a == b),
            "expected operands that differ in dimension {dimension} at most, found {first} \
             and {part}"
        );
        // `Shape::array` refuses a saturated sum.
        dimensions[dimension] = dimensions[dimension].saturating_add(part.dimensions()[dimension]);
    }
    Shape::array(first.element_type(), &dimensions)
}

/// XLA's `InferPadShape`.
pub(super) fn pad(padding: &[PaddingDimension], operands: &[&Shape]) -> Result<Shape> {
    let [operand, value] = arrays(operands)?;
    ensure!(
        value.rank() == 0 && value.element_type() == operand.element_type(),
        "expected the padding value {}[], found {value}",
        operand.element_type()
    );
    check_entries(padding.len(), operand)?;
    let sizes = std::iter::zip(padding, operand.dimensions()).enumerate();
    let sizes = sizes.map(|(i, (padding, &size))| padded(i, size, *padding));
    Shape::array(operand.element_type(), &sizes.collect::<Result<Vec<_>>>()?)
}

/// The size of a dimension with its padding. The sum of three `i64` and a size fits in an `i128`.
fn padded(dimension: usize, size: usize, padding: PaddingDimension) -> Result<usize> {
    ensure!(
        padding.interior >= 0,
        "expected an interior padding of at least 0 in dimension {dimension}, found {}",
        padding.interior
    );
    let between = size.saturating_sub(1) as i128 * i128::from(padding.interior);
    let padded = size as i128 + i128::from(padding.low) + i128::from(padding.high) + between;
    usize::try_from(padded).map_err(|_| {
        invalid!(
            "expected a padded size from 0 to {} in dimension {dimension}, found {padded}",
            usize::MAX
        )
    })
}

/// Checks index operands: a scalar for each dimension, integers of one type.
fn check_start_indices(operand: &ArrayShape, starts: &[&Shape]) -> Result<()> {
    ensure!(
        starts.len() == operand.rank(),
        "expected {} for {operand}, found {}",
        count(operand.rank(), "start index operand"),
        starts.len()
    );
    for &start in starts {
        let is_index = |index: &ArrayShape| index.rank() == 0 && index.element_type().is_integral();
        ensure!(
            start.as_array().is_some_and(is_index),
            "expected start indices that are integral scalars, found {start}"
        );
        ensure!(
            start == starts[0],
            "expected start indices of one type, found {} and {start}",
            starts[0]
        );
    }
    Ok(())
}

/// Checks that a part of these sizes fits into the operand.
fn check_part(sizes: &[usize], operand: &ArrayShape) -> Result<()> {
    for (i, (part, whole)) in std::iter::zip(sizes, operand.dimensions()).enumerate() {
        ensure!(
            part <= whole,
            "expected a part of at most {whole} in dimension {i} of {operand}, found {part}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, refused};
    use crate::{Opcode, PaddingDimension, SliceDimension};

    fn slice(slices: &[(usize, usize, usize)]) -> Opcode {
        let dimension = |&(start, limit, stride)| SliceDimension {
            start,
            limit,
            stride,
        };
        Opcode::Slice(slices.iter().map(dimension).collect())
    }

    fn pad(padding: &[(i64, i64, i64)]) -> Opcode {
        let dimension = |&(low, high, interior)| PaddingDimension {
            low,
            high,
            interior,
        };
        Opcode::Pad(padding.iter().map(dimension).collect())
    }

    #[test]
    fn slices_stay_inside() {
        check(&slice(&[(0, 2, 1), (1, 6, 2)]), &["s4[2,7]"], "s4[2,3]");
        check(&slice(&[(7, 7, 3)]), &["f32[7]"], "f32[0]");
        check(&slice(&[(0, 7, usize::MAX)]), &["f32[7]"], "f32[1]");
        check(&slice(&[]), &["f32[]"], "f32[]");
        for (slices, message) in [
            (
                &[(0, 8, 1)][..],
                "expected a slice within [0:7] in dimension 0, found [0:8]",
            ),
            (
                &[(5, 4, 1)],
                "expected a slice within [0:7] in dimension 0, found [5:4]",
            ),
            (
                &[(0, 7, 0)],
                "expected a stride of at least 1 in dimension 0, found 0",
            ),
            (&[], "expected 1 dimension for f32[7], found 0"),
        ] {
            refused(&slice(slices), &["f32[7]"], message);
        }
    }

    #[test]
    fn dynamic_slices_have_scalar_starts() {
        let opcode = Opcode::DynamicSlice(vec![1, 3]);
        check(&opcode, &["f8e5m2[2,3]", "s32[]", "s32[]"], "f8e5m2[1,3]");
        check(&opcode, &["f32[2,3]", "u2[]", "u2[]"], "f32[1,3]");
        check(&Opcode::DynamicSlice(vec![]), &["f32[]"], "f32[]");
        for (operands, message) in [
            (
                &["f32[2,3]", "s32[]"][..],
                "expected 2 start index operands for f32[2,3], found 1",
            ),
            (
                &["f32[2,3]", "s32[2]", "s32[]"],
                "expected start indices that are integral scalars, found s32[2]",
            ),
            (
                &["f32[2,3]", "f32[]", "f32[]"],
                "expected start indices that are integral scalars, found f32[]",
            ),
            (
                &["f32[2,3]", "s32[]", "s64[]"],
                "expected start indices of one type, found s32[] and s64[]",
            ),
            (
                &["f32[2,2]", "u8[]", "u8[]"],
                "expected a part of at most 2 in dimension 1 of f32[2,2], found 3",
            ),
            (
                &["f32[2]", "s32[]"],
                "expected 1 dimension for f32[2], found 2",
            ),
            (&[], "expected operands, found none"),
        ] {
            refused(&opcode, operands, message);
        }
    }

    #[test]
    fn dynamic_updates_fit() {
        let opcode = Opcode::DynamicUpdateSlice;
        check(
            &opcode,
            &["f32[2,3]", "f32[0,3]", "u64[]", "u64[]"],
            "f32[2,3]",
        );
        check(&opcode, &["f32[]", "f32[]"], "f32[]");
        for (operands, message) in [
            (
                &["f32[2]", "f32[3]", "s32[]"][..],
                "expected a part of at most 2 in dimension 0 of f32[2], found 3",
            ),
            (
                &["f32[2]", "s32[1]", "s32[]"],
                "expected an update of f32 elements and 1 dimension, found s32[1]",
            ),
            (
                &["f32[2,2]", "f32[1]", "s32[]", "s32[]"],
                "expected an update of f32 elements and 2 dimensions, found f32[1]",
            ),
            (
                &["f32[2]", "f32[1]", "s32[]", "s32[]"],
                "expected 1 start index operand for f32[2], found 2",
            ),
            (&["f32[2]"], "expected at least 2 operands, found 1"),
        ] {
            refused(&opcode, operands, message);
        }
    }

    #[test]
    fn concatenations_differ_in_one_dimension() {
        let opcode = Opcode::Concatenate(1);
        check(&opcode, &["s4[2,3]"], "s4[2,3]");
        check(&opcode, &["f32[2,3]", "f32[2,0]", "f32[2,4]"], "f32[2,7]");
        for (operands, message) in [
            (
                &["f32[2,3]", "f32[3,3]"][..],
                "expected operands that differ in dimension 1 at most, found f32[2,3] and f32[3,3]",
            ),
            (
                &["f32[2,3]", "f64[2,3]"],
                "expected operands that differ in dimension 1 at most, found f32[2,3] and f64[2,3]",
            ),
            (
                &["f32[2,3]", "f32[2]"],
                "expected operands that differ in dimension 1 at most, found f32[2,3] and f32[2]",
            ),
            (&["f32[2]"], "expected a dimension of f32[2], found 1"),
            (&[], "expected operands, found none"),
        ] {
            refused(&opcode, operands, message);
        }
        let half = "pred[0,9223372036854775807]";
        refused(
            &opcode,
            &[half, half, half],
            "expected a shape whose size in bytes is at most 9223372036854775807, \
             found pred[0,18446744073709551615]",
        );
    }

    #[test]
    fn padding_adds_and_takes_away() {
        check(&pad(&[(1, 2, 0)]), &["f32[3]", "f32[]"], "f32[6]");
        check(&pad(&[(-1, -1, 2)]), &["s4[3]", "s4[]"], "s4[5]");
        check(&pad(&[(0, 0, 9)]), &["f32[0]", "f32[]"], "f32[0]");
        check(&pad(&[(-5, 5, 0)]), &["f32[3]", "f32[]"], "f32[3]");
        check(&pad(&[]), &["f32[]", "f32[]"], "f32[]");
        for (padding, operands, message) in [
            (
                &[(-2, -2, 0)][..],
                ["f32[3]", "f32[]"],
                "expected a padded size from 0 to 18446744073709551615 in dimension 0, found -1",
            ),
            (
                &[(0, 0, i64::MAX)],
                ["f32[9]", "f32[]"],
                "expected a padded size from 0 to 18446744073709551615 in dimension 0, \
                 found 73786976294838206465",
            ),
            (
                &[(0, 0, -1)],
                ["f32[3]", "f32[]"],
                "expected an interior padding of at least 0 in dimension 0, found -1",
            ),
            (
                &[],
                ["f32[3]", "f32[]"],
                "expected 1 dimension for f32[3], found 0",
            ),
            (
                &[(0, 0, 0)],
                ["f32[3]", "f32[1]"],
                "expected the padding value f32[], found f32[1]",
            ),
            (
                &[(0, 0, 0)],
                ["f32[3]", "s32[]"],
                "expected the padding value f32[], found s32[]",
            ),
        ] {
            refused(&pad(padding), &operands, message);
        }
    }
}
