//! One call for all elements of a batch, for targets of the trait `batched`.
//!
//! Arrays are dense and row-major: arrays of `[v, batch, n]` for a batch of `v` elements are arrays
//! of `[v * batch, n]` for the target, in the same bytes.

use super::batch::{Batch, Leaf};
use super::signature::dimensions::{BATCHED, has_batch};
use super::{BufferSignature, CallSite, Signature};
use crate::policy::{Isolation, Policy};
use crate::values::{ArrayShape, Shape};

/// The call site of one call for a whole batch of calls like `element`, and the number of elements.
///
/// `None` if the target does not take batches, or the batch has no elements, or one of the arrays
/// prevents it: an operand that declares the dimension `batch` and that elements share, or one that
/// does not declare it and that differs from element to element.
pub(super) fn merged(
    targets: &[Signature],
    element: &CallSite,
    batch: &Batch,
) -> Option<(CallSite, usize)> {
    let target = &targets[Signature::find(targets, &element.target)?];
    if batch.count == 0 || batch.sizes.is_empty() || !target.has_trait(BATCHED) {
        return None;
    }
    let site = CallSite {
        operands: shapes(
            &element.operands,
            target.operands.as_deref(),
            &batch.operands,
            batch.count,
        )?,
        result: shape(
            &element.result,
            &mut target.results.iter().flatten(),
            &mut batch.results.iter(),
            batch.count,
        )?,
        ..element.clone()
    };
    target.check(&site).ok()?;
    Some((site, batch.count))
}

/// Whether one call may have the arrays of all elements: with instances of their own, no element
/// sees another's. Arrays of more than a quarter of the memory leave the target too little.
pub(super) fn is_allowed(policy: &Policy, site: &CallSite) -> bool {
    let shapes = site.operands.iter().chain([&site.result]);
    let sizes = shapes.flat_map(Shape::leaves).map(|leaf| leaf.byte_size());
    let bytes = sizes.fold(0, usize::saturating_add);
    policy.isolation == Isolation::Executable && bytes <= policy.limits.memory_bytes / 4
}

fn shapes(
    elements: &[Shape],
    declared: Option<&[BufferSignature]>,
    leaves: &[Leaf],
    count: usize,
) -> Option<Vec<Shape>> {
    let (mut declared, mut leaves) = (declared.into_iter().flatten(), leaves.iter());
    let shapes = elements.iter();
    shapes
        .map(|element| shape(element, &mut declared, &mut leaves, count))
        .collect()
}

fn shape<'a>(
    element: &Shape,
    declared: &mut impl Iterator<Item = &'a BufferSignature>,
    leaves: &mut impl Iterator<Item = &'a Leaf>,
    count: usize,
) -> Option<Shape> {
    let mut is_possible = true;
    let merged = element.map_arrays(&mut |array: &ArrayShape| {
        let (buffer, leaf) = (declared.next(), leaves.next());
        let mut sizes = array.dimensions().to_vec();
        if buffer.is_some_and(has_batch) {
            is_possible &= leaf.is_some_and(|leaf| leaf.strides.is_none());
            if let Some(first) = sizes.first_mut() {
                *first = first.saturating_mul(count);
            }
        } else {
            // One array for all elements.
            is_possible &= leaf.is_some_and(|leaf| leaf.whole == leaf.size);
        }
        ArrayShape::new(array.element_type(), &sizes)
    });
    merged.ok().filter(|_| is_possible)
}

#[cfg(test)]
mod tests;
