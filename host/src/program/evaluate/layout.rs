//! Elements in the order in which they lie in memory: where layouts matter, at custom calls and bitcasts.

use std::borrow::Cow;
use std::iter::zip;
use std::sync::Arc;

use super::array::Array;
use super::strided::{Strides, copy};
use super::{bug, zeroed};
use crate::values::{ArrayShape, Literal, Result, Shape};

/// The operand's arrays as they lie in memory in the layouts of a compatible shape, which the result has. It is for
/// handing over its bytes, for other than in all literals they are not row-major.
pub(crate) fn to_layout(operand: &Literal, shape: &Shape) -> Result<Literal> {
    debug_assert!(
        operand.shape().is_compatible(shape),
        "{} and {shape}",
        operand.shape()
    );
    if shape.leaves().iter().all(|leaf| leaf.is_row_major()) {
        return Ok(operand.clone().with_compatible_shape(shape));
    }
    let leaves = zip(shape.leaves(), operand.leaves());
    let leaves = leaves.map(|(shape, (_, bytes))| to_memory(&Array { shape, bytes }));
    let leaves = leaves
        .map(|bytes| bytes.map(Cow::into_owned))
        .collect::<Result<Vec<_>>>()?;
    Literal::from_leaves(shape.clone(), leaves).map_err(bug)
}

/// The opposite of [`to_layout`]: a literal of this shape from arrays that lie in memory in the layouts of their own
/// shape.
pub(crate) fn from_layout(result: Literal, shape: &Shape) -> Result<Literal> {
    debug_assert!(
        result.shape().is_compatible(shape),
        "{} and {shape}",
        result.shape()
    );
    if result
        .shape()
        .leaves()
        .iter()
        .all(|leaf| leaf.is_row_major())
    {
        return Ok(result.with_compatible_shape(shape));
    }
    let leaves = zip(result.leaves(), result.shared_leaves());
    let leaves = leaves.map(|((shape, memory), shared)| match shape.is_row_major() {
        true => Ok(Arc::clone(shared)),
        false => from_memory(memory, shape).map(Arc::new),
    });
    let leaves = leaves.collect::<Result<Vec<_>>>()?;
    Literal::from_shared_leaves(shape.clone(), leaves).map_err(bug)
}

/// Whether a bitcast between these shapes leaves all bytes where they are.
pub(super) fn keeps_bytes(from: &ArrayShape, to: &ArrayShape) -> bool {
    from.is_row_major() && to.is_row_major()
}

/// Reads the operand's memory, in its layout, as an array of this shape, in its layout.
pub(super) fn bitcast(x: &Array<'_>, shape: &ArrayShape) -> Result<Vec<u8>> {
    from_memory(&to_memory(x)?, shape)
}

/// The bytes of a row-major array as they lie in memory in its layout.
fn to_memory<'a>(x: &Array<'a>) -> Result<Cow<'a, [u8]>> {
    if x.shape.is_row_major() {
        return Ok(Cow::Borrowed(x.bytes));
    }
    let mut memory = zeroed(x.bytes.len())?;
    let from = Strides::dense(x.dimensions(), x.width());
    let to = (memory.as_mut_slice(), &memory_strides(x.shape));
    copy(x.dimensions(), x.width(), (x.bytes, &from), to)?;
    Ok(Cow::Owned(memory))
}

/// The bytes of an array in row-major order, from those that lie in memory in its layout.
fn from_memory(memory: &[u8], shape: &ArrayShape) -> Result<Vec<u8>> {
    let width = shape.element_type().byte_width();
    let mut bytes = zeroed(shape.byte_size())?;
    let to = Strides::dense(shape.dimensions(), width);
    let from = (memory, &memory_strides(shape));
    copy(shape.dimensions(), width, from, (&mut bytes, &to))?;
    Ok(bytes)
}

/// Where an array's elements lie in its layout.
fn memory_strides(shape: &ArrayShape) -> Strides {
    let mut strides = Strides::dense(shape.dimensions(), shape.element_type().byte_width());
    let mut step = shape.element_type().byte_width() as isize;
    for &dimension in shape.layout_or_default().minor_to_major() {
        strides.steps[dimension] = step;
        // A shape's constructor checked this product, over the dimensions other than 0.
        step *= shape.dimensions()[dimension].max(1) as isize;
    }
    strides
}

#[cfg(test)]
mod tests;
