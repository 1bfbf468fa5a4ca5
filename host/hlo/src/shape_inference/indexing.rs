//! Gather and scatter: windows of an array that an array of indices names.

use super::calls::{check_reducer, element, joined};
use super::{all_arrays, arrays, arrays_alike, count, distinct_dimensions, other_dimensions};
use crate::Computation;
use crate::instruction::IndexedWindows;
use callbox_core::values::{ArrayShape, Result, Shape};

/// XLA's `InferGatherShape`.
pub(super) fn gather(
    windows: &IndexedWindows,
    sizes: &[usize],
    operands: &[&Shape],
) -> Result<Shape> {
    let [operand, indices] = arrays(operands)?;
    super::dimensions::check_entries(sizes.len(), operand)?;
    let parts = Parts::of(windows, operand, indices)?;
    for (i, (&size, &whole)) in std::iter::zip(sizes, operand.dimensions()).enumerate() {
        let most = if parts.lacks[i] { 1 } else { whole };
        ensure!(
            size <= whole.min(most),
            "expected a window of at most {} in dimension {i} of {operand}, found {size}",
            whole.min(most)
        );
    }
    let window = std::iter::zip(&parts.lacks, sizes);
    let mut window = window.filter_map(|(lacks, &size)| (!lacks).then_some(size));
    let mut batch = parts.batch.iter().copied();
    let rank = windows.window_dimensions.len() + parts.batch.len();
    let sizes = (0..rank).filter_map(|i| {
        let is_window = windows.window_dimensions.contains(&i);
        if is_window {
            window.next()
        } else {
            batch.next()
        }
    });
    Shape::array(operand.element_type(), &Vec::from_iter(sizes))
}

/// XLA's `InferScatterShape`.
pub(super) fn scatter(
    windows: &IndexedWindows,
    operands: &[&Shape],
    callee: &Computation,
) -> Result<Shape> {
    let operands = all_arrays(operands)?;
    let number = operands.len() / 2;
    ensure!(
        operands.len() % 2 == 1 && number > 0,
        "expected arrays, indices and as many updates as arrays, found {}",
        count(operands.len(), "operand")
    );
    let (arrays, rest) = operands.split_at(number);
    let (indices, updates) = (rest[0], &rest[1..]);
    let first = arrays_alike("arrays", arrays)?;
    let update = arrays_alike("updates", updates)?;
    let parts = Parts::of(windows, first, indices)?;
    let rank = windows.window_dimensions.len() + parts.batch.len();
    ensure!(
        update.rank() == rank,
        "expected updates of {}, found {update}",
        count(rank, "dimension")
    );
    let is_window = distinct_dimensions(&windows.window_dimensions, update)?;
    let positions = Vec::from_iter(other_dimensions(&is_window, update));
    ensure!(
        positions == parts.batch,
        "expected updates with a window for each index vector, of the dimensions {:?}, found \
         {positions:?}",
        parts.batch
    );
    let window = windows.window_dimensions.iter();
    let window = window.map(|&i| update.dimensions()[i]);
    for (size, whole) in std::iter::zip(window, other_dimensions(&parts.lacks, first)) {
        ensure!(
            size <= whole,
            "expected a window of at most {whole} in a dimension of {first}, found {size}"
        );
    }
    for (array, update) in std::iter::zip(arrays, updates) {
        ensure!(
            array.element_type() == update.element_type(),
            "expected an update of {} elements, found {update}",
            array.element_type()
        );
    }
    let elements = arrays.iter().map(|array| element(array));
    check_reducer(callee, &Vec::from_iter(elements))?;
    joined(callee, arrays, |array| Ok(array.dimensions().to_vec()))
}

/// The parts of windowed arrays.
struct Parts {
    /// For each dimension of the operand, whether the windowed array lacks it.
    lacks: Vec<bool>,
    /// The dimensions of the indices without the index vectors'.
    batch: Vec<usize>,
}

impl Parts {
    /// The checks of XLA's `ValidateGatherDimensionNumbers` and
    /// `ValidateScatterDimensionNumbers`.
    fn of(windows: &IndexedWindows, operand: &ArrayShape, indices: &ArrayShape) -> Result<Self> {
        let IndexedWindows {
            window_dimensions,
            collapsed,
            index_map,
            operand_batch,
            index_vector,
            ..
        } = windows;
        check_indices(indices, *index_vector, index_map)?;
        for ascending in [window_dimensions, collapsed, operand_batch] {
            ensure!(
                ascending.is_sorted(),
                "expected dimensions in ascending order, found {ascending:?}"
            );
        }
        distinct_dimensions(index_map, operand)?;
        let lacks = [&**collapsed, operand_batch].concat();
        let lacks = distinct_dimensions(&lacks, operand)?;
        ensure!(
            !operand_batch.iter().any(|batch| index_map.contains(batch)),
            "expected batch dimensions that no index vector indexes, found {operand_batch:?}"
        );
        let window_rank = lacks.iter().filter(|lacks| !**lacks).count();
        ensure!(
            window_dimensions.len() == window_rank,
            "expected {} for the window, found {}",
            count(window_rank, "dimension"),
            window_dimensions.len()
        );
        check_batches(windows, operand, indices)?;
        let batch = indices.dimensions().iter().enumerate();
        let batch = batch.filter_map(|(i, &size)| (i != *index_vector).then_some(size));
        let batch = Vec::from_iter(batch);
        let rank = window_dimensions.len() + batch.len();
        let mut distinct = window_dimensions.clone();
        distinct.dedup();
        ensure!(
            distinct.len() == window_dimensions.len()
                && window_dimensions.last().is_none_or(|&last| last < rank),
            "expected distinct dimensions of a window below {rank}, found {window_dimensions:?}"
        );
        Ok(Self { lacks, batch })
    }
}

/// Checks that the indices have a vector of as many integers as `index_map` has dimensions.
fn check_indices(indices: &ArrayShape, index_vector: usize, index_map: &[usize]) -> Result<()> {
    ensure!(
        indices.element_type().is_integral(),
        "expected integers as indices, found {indices}"
    );
    ensure!(
        index_vector <= indices.rank(),
        "expected index vectors in a dimension of {indices} or its rank, found {index_vector}"
    );
    let length = indices.dimensions().get(index_vector);
    let length = length.copied().unwrap_or(1);
    ensure!(
        index_map.len() == length,
        "expected {} for index vectors of {length}, found {}",
        count(length, "dimension"),
        index_map.len()
    );
    Ok(())
}

/// Checks that the batch dimensions of the operand and of the indices agree.
fn check_batches(
    windows: &IndexedWindows,
    operand: &ArrayShape,
    indices: &ArrayShape,
) -> Result<()> {
    let IndexedWindows {
        operand_batch,
        indices_batch,
        index_vector,
        ..
    } = windows;
    let is_batch = distinct_dimensions(indices_batch, indices)?;
    ensure!(
        is_batch.get(*index_vector) != Some(&true),
        "expected batch dimensions other than that of the index vectors, {index_vector}"
    );
    ensure!(
        operand_batch.len() == indices_batch.len(),
        "expected as many batch dimensions of the indices as of the operand, found {} and {}",
        indices_batch.len(),
        operand_batch.len()
    );
    for (&i, &j) in std::iter::zip(operand_batch, indices_batch) {
        let (size, other) = (operand.dimensions()[i], indices.dimensions()[j]);
        ensure!(
            size == other,
            "expected batch dimensions of one size, found {size} and {other}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, infer_text, refused};
    use crate::{ComputationId, IndexedWindows, Opcode};

    /// Rows of a matrix, one for each number of a vector.
    fn rows() -> IndexedWindows {
        IndexedWindows {
            window_dimensions: vec![1],
            collapsed: vec![0],
            index_map: vec![0],
            index_vector: 1,
            ..IndexedWindows::default()
        }
    }

    fn gather(windows: IndexedWindows, sizes: &[usize]) -> Opcode {
        let sizes = sizes.to_vec();
        Opcode::Gather { windows, sizes }
    }

    /// The examples of XLA's documentation (openxla.org/xla/operation_semantics#gather).
    #[test]
    fn gathers_have_the_shapes_of_the_documentation() {
        check(
            &gather(rows(), &[1, 3]),
            &["f32[5,3]", "s32[4]"],
            "f32[4,3]",
        );
        let windows = IndexedWindows {
            window_dimensions: vec![0, 1],
            index_map: vec![0, 1],
            index_vector: 2,
            ..IndexedWindows::default()
        };
        let operands = &["f32[16,11]", "s64[10,9,2]"];
        check(&gather(windows, &[8, 6]), operands, "f32[8,6,10,9]");
        let batched = IndexedWindows {
            window_dimensions: vec![2],
            collapsed: vec![1],
            index_map: vec![1],
            operand_batch: vec![0],
            indices_batch: vec![0],
            index_vector: 2,
        };
        let operands = &["u8[3,4,2]", "u8[3,7,1]"];
        check(&gather(batched, &[1, 1, 2]), operands, "u8[3,7,2]");
    }

    #[test]
    fn dimension_numbers_fit_together() {
        for (windows, message) in [
            (
                IndexedWindows {
                    index_vector: 2,
                    ..rows()
                },
                "expected index vectors in a dimension of s32[4] or its rank, found 2",
            ),
            (
                IndexedWindows {
                    index_map: vec![0, 1],
                    ..rows()
                },
                "expected 1 dimension for index vectors of 1, found 2",
            ),
            (
                IndexedWindows {
                    collapsed: vec![],
                    ..rows()
                },
                "expected 2 dimensions for the window, found 1",
            ),
            (
                IndexedWindows {
                    window_dimensions: vec![2],
                    ..rows()
                },
                "expected distinct dimensions of a window below 2, found [2]",
            ),
            (
                IndexedWindows {
                    operand_batch: vec![0],
                    ..rows()
                },
                "expected each dimension once, found 0 twice",
            ),
        ] {
            refused(&gather(windows, &[1, 3]), &["f32[5,3]", "s32[4]"], message);
        }
        let opcode = gather(rows(), &[2, 3]);
        let message = "expected a window of at most 1 in dimension 0 of f32[5,3], found 2";
        refused(&opcode, &["f32[5,3]", "s32[4]"], message);
        let message = "expected integers as indices, found f32[4]";
        refused(&gather(rows(), &[1, 3]), &["f32[5,3]", "f32[4]"], message);
    }

    #[test]
    fn updates_are_windows_of_the_operand() {
        let scatter = |operands: &[&str]| {
            let opcode = Opcode::Scatter {
                windows: rows(),
                computation: ComputationId(0),
            };
            let callees = [(&["f32[]", "f32[]"][..], "f32[]")];
            let shape = infer_text(&opcode, operands, None, &callees);
            shape.map_or_else(
                |status| status.message().to_owned(),
                |shape| shape.to_string(),
            )
        };
        assert_eq!(scatter(&["f32[5,3]", "s32[4]", "f32[4,2]"]), "f32[5,3]");
        for (update, message) in [
            ("f32[4]", "expected updates of 2 dimensions, found f32[4]"),
            (
                "f32[4,4]",
                "expected a window of at most 3 in a dimension of f32[5,3], found 4",
            ),
            (
                "f32[3,3]",
                "expected updates with a window for each index vector, of the dimensions [4], \
                 found [3]",
            ),
            (
                "f64[4,3]",
                "expected an update of f32 elements, found f64[4,3]",
            ),
        ] {
            assert_eq!(scatter(&["f32[5,3]", "s32[4]", update]), message);
        }
    }
}
