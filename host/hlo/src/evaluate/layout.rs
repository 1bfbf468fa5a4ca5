//! Conversion between row-major order and layouts, for custom calls and bitcasts.

use std::borrow::Cow;
use std::iter::zip;
use std::sync::Arc;

use super::array::Array;
use super::strided::{Strides, copy};
use super::{bug, zeroed};
use callbox_core::values::{ArrayShape, ElementType, Literal, Result, Shape};

/// Converts row-major arrays to the layouts of a compatible shape.
///
/// The result is only for handing over its bytes: unlike in every other literal, they are not
/// row-major.
pub(crate) fn to_layout(operand: &Literal, shape: &Shape) -> Result<Literal> {
    debug_assert!(
        operand.shape().is_compatible(shape),
        "{} and {shape}",
        operand.shape()
    );
    if is_row_major(shape) {
        return Ok(operand.clone().with_compatible_shape(shape));
    }
    let leaves = zip(shape.leaves(), operand.leaves());
    let leaves =
        leaves.map(|(shape, (_, bytes))| to_memory(&Array { shape, bytes }).map(Cow::into_owned));
    Literal::from_leaves(shape.clone(), leaves.collect::<Result<_>>()?).map_err(bug)
}

/// The inverse of [`to_layout`]: converts arrays in the layouts of their own shape to a literal of
/// this shape.
pub(crate) fn from_layout(result: Literal, shape: &Shape) -> Result<Literal> {
    debug_assert!(
        result.shape().is_compatible(shape),
        "{} and {shape}",
        result.shape()
    );
    if is_row_major(result.shape()) {
        return Ok(result.with_compatible_shape(shape));
    }
    let leaves = zip(result.leaves(), result.shared_leaves());
    let leaves = leaves.map(|((shape, memory), shared)| {
        if shape.is_row_major() {
            Ok(Arc::clone(shared))
        } else {
            from_memory(memory, shape).map(Arc::new)
        }
    });
    Literal::from_shared_leaves(shape.clone(), leaves.collect::<Result<_>>()?).map_err(bug)
}

/// Whether all arrays of the shape are row-major.
pub(crate) fn is_row_major(shape: &Shape) -> bool {
    shape.leaves().iter().all(|leaf| leaf.is_row_major())
}

/// Whether a bitcast between these shapes moves no bytes.
pub(super) fn keeps_bytes(from: &ArrayShape, to: &ArrayShape) -> bool {
    from.is_row_major() && to.is_row_major()
}

/// Reinterprets the operand's memory, in its layout, as this shape in its layout.
pub(super) fn bitcast(x: &Array<'_>, shape: &ArrayShape) -> Result<Vec<u8>> {
    from_memory(&to_memory(x)?, shape)
}

/// The bytes of elements of this type, with 1 for any other byte than 0 in PRED.
pub(super) fn with_valid_preds(mut bytes: Vec<u8>, of: ElementType) -> Vec<u8> {
    if of.is_pred() {
        bytes
            .iter_mut()
            .for_each(|byte| *byte = u8::from(*byte != 0));
    }
    bytes
}

/// The bytes of a row-major array, in the order of its layout.
fn to_memory<'a>(x: &Array<'a>) -> Result<Cow<'a, [u8]>> {
    if x.shape.is_row_major() {
        return Ok(Cow::Borrowed(x.bytes));
    }
    let mut memory = zeroed(x.bytes.len())?;
    let from = Strides::dense(x.dimensions(), x.width()).of(x.bytes);
    let to = memory_strides(x.shape).of(memory.as_mut_slice());
    copy(x.dimensions(), x.width(), from, to)?;
    Ok(Cow::Owned(memory))
}

/// The bytes of an array in row-major order, from bytes in the order of its layout.
fn from_memory(memory: &[u8], shape: &ArrayShape) -> Result<Vec<u8>> {
    let width = shape.element_type().byte_width();
    let mut bytes = zeroed(shape.byte_size())?;
    let from = memory_strides(shape).of(memory);
    let to = Strides::dense(shape.dimensions(), width).of(bytes.as_mut_slice());
    copy(shape.dimensions(), width, from, to)?;
    Ok(bytes)
}

/// The strides of an array in its layout.
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
