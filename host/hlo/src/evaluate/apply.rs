//! Applies a computation of scalars to the elements of arrays.

use super::array::{Array, array};
use super::{Callee, bug, lift, with_capacity};
use crate::instruction::ComputationId;
use callbox_core::values::{ArrayShape, ElementType, Literal, Result};

/// Applies the computation to the elements of `lines`, each an array of `count` elements. Gives an
/// array of `count` elements for each scalar that the computation gives. Looks at the deadline
/// first.
pub(super) fn apply(
    computation: ComputationId,
    lines: &[Literal],
    count: usize,
    callee: &mut dyn Callee,
) -> Result<Vec<Literal>> {
    callee.check()?;
    let program = callee.program();
    let called = lift::called_by(program, computation)?;
    if lift::is_scalar(called, program) {
        let check = callee.team().check;
        return Ok(lift::run(called, lines, count, program, check)?.into_elements());
    }
    let results = called.result_shape().leaves();
    let types = Vec::from_iter(results.iter().map(|leaf| leaf.element_type()));
    let mut bytes = vec![Vec::new(); types.len()];
    for i in 0..count {
        let arguments = lines.iter().map(|x| scalar(&array(x)?, i));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let results = callee.run(computation, &arguments)?.into_elements();
        for (bytes, result) in std::iter::zip(&mut bytes, &results) {
            bytes.extend_from_slice(array(result)?.bytes);
        }
    }
    let lines = std::iter::zip(types, bytes);
    lines.map(|(of, bytes)| line(of, bytes)).collect()
}

/// These elements as an array of one dimension.
pub(super) fn line(element_type: ElementType, bytes: Vec<u8>) -> Result<Literal> {
    let count = bytes.len().checked_div(element_type.byte_width());
    let shape = ArrayShape::new(element_type, &[count.unwrap_or(0)]).map_err(bug)?;
    Literal::from_bytes(shape, bytes).map_err(bug)
}

/// The elements of `x` with these numbers, as an array of one dimension.
pub(super) fn chosen(x: &Array<'_>, numbers: impl Iterator<Item = usize>) -> Result<Literal> {
    let (least, most) = numbers.size_hint();
    let mut bytes = with_capacity(most.unwrap_or(least).saturating_mul(x.width()))?;
    for number in numbers {
        bytes.extend_from_slice(x.elements().part(number, 1)?);
    }
    line(x.shape.element_type(), bytes)
}

fn scalar(x: &Array<'_>, index: usize) -> Result<Literal> {
    let bytes = x.elements().part(index, 1)?.to_vec();
    let shape = ArrayShape::new(x.shape.element_type(), &[]).map_err(bug)?;
    Literal::from_bytes(shape, bytes).map_err(bug)
}
