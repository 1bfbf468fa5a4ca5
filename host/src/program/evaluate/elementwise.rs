//! What the element-wise operations share: a block of elements at a time is widened, computed and rounded, so that no operation is
//! compiled for each element type and none needs more than a little memory besides its result.

use std::array::from_fn;
use std::borrow::Cow;
use std::iter::zip;

use super::array::{Array, Elements, array, repeat};
use super::binary::{maximum, minimum};
use super::wide::{Kind, Wide};
use super::{bug, share, zeroed};
use crate::values::{ArrayShape, ElementType, Literal, Result, Shape};

/// How many elements are computed at a time: few enough to stay in the cache.
pub(super) const BLOCK: usize = 1024;

/// Computes an array element by element from arrays of as many. `compute` gets as many elements of each as it is to give.
pub(super) fn blocks<A: Wide, R: Wide, const N: usize>(
    operands: [Elements<'_>; N],
    to: ElementType,
    mut compute: impl FnMut([&[A]; N], &mut [R]) -> Result<()>,
) -> Result<Vec<u8>> {
    let count = operands.first().map_or(0, Elements::count);
    let width = to.byte_width();
    let mut bytes = zeroed(count * width)?;
    let mut inputs: [Vec<A>; N] = from_fn(|_| vec![A::default(); BLOCK.min(count)]);
    let mut outputs = vec![R::default(); BLOCK.min(count)];
    for (block, out) in bytes.chunks_mut(BLOCK * width.max(1)).enumerate() {
        let n = out.len() / width.max(1);
        for (operand, input) in zip(&operands, &mut inputs) {
            let part = operand.part(block * BLOCK, n)?;
            A::decode(operand.element_type, part, &mut input[..n])?;
        }
        compute(
            inputs.each_ref().map(|input| &input[..n]),
            &mut outputs[..n],
        )?;
        R::encode(&outputs[..n], to, out)?;
    }
    Ok(bytes)
}

/// Computes each element from one.
pub(super) fn each<A: Copy, R>(x: &[A], out: &mut [R], f: impl Fn(A) -> R) {
    zip(out, x).for_each(|(out, &x)| *out = f(x));
}

/// Computes each element from two.
pub(super) fn pairs<A: Copy, R>(x: &[A], y: &[A], out: &mut [R], f: impl Fn(A, A) -> R) {
    zip(out, zip(x, y)).for_each(|(out, (&x, &y))| *out = f(x, y));
}

/// The elements of `on_true` where the predicate is true and of `on_false` where not.
pub(super) fn select(
    shape: &Shape,
    predicate: &Literal,
    on_true: &Literal,
    on_false: &Literal,
) -> Result<Literal> {
    let predicate = array(predicate)?;
    if let ([], [chosen]) = (predicate.dimensions(), predicate.bytes) {
        return share(shape, &[if *chosen != 0 { on_true } else { on_false }]);
    }
    let (on_true, on_false) = (array(on_true)?, array(on_false)?);
    let mut bytes = zeroed(on_true.bytes.len())?;
    let choices = (predicate.bytes, on_true.bytes, on_false.bytes);
    match on_true.width() {
        1 => choose::<1>(choices, &mut bytes),
        2 => choose::<2>(choices, &mut bytes),
        4 => choose::<4>(choices, &mut bytes),
        8 => choose::<8>(choices, &mut bytes),
        16 => choose::<16>(choices, &mut bytes),
        width => {
            return Err(bug(format_args!(
                "expected a width of 16 bytes at most, found {width}"
            )));
        }
    }
    super::leaf(shape, bytes)
}

/// `x` held between `low` and `high`: the minimum of `high` and the maximum of `low` and `x`, NaN if any is NaN.
pub(super) fn clamp(
    shape: &ArrayShape,
    low: &Array<'_>,
    x: &Array<'_>,
    high: &Array<'_>,
) -> Result<Vec<u8>> {
    let count = shape.element_count();
    let (low_bytes, high_bytes) = (spread(low, count)?, spread(high, count)?);
    let to = shape.element_type();
    let bound = |bytes| Elements {
        element_type: to,
        bytes,
    };
    let operands = [bound(&low_bytes), x.elements(), bound(&high_bytes)];
    match Kind::of(to)? {
        Kind::Signed => clamped::<i64>(operands, to, Ord::max, Ord::min),
        Kind::Unsigned => clamped::<u64>(operands, to, Ord::max, Ord::min),
        Kind::Real => clamped::<f64>(operands, to, maximum, minimum),
        Kind::Complex => Err(bug("complex numbers have no order")),
    }
}

fn clamped<A: Wide>(
    operands: [Elements<'_>; 3],
    to: ElementType,
    max: impl Fn(A, A) -> A,
    min: impl Fn(A, A) -> A,
) -> Result<Vec<u8>> {
    blocks(operands, to, |[low, x, high]: [&[A]; 3], out| {
        for (out, ((&low, &x), &high)) in zip(out, zip(zip(low, x), high)) {
            *out = min(max(low, x), high);
        }
        Ok(())
    })
}

/// An array's elements, or a scalar as often as needed.
fn spread<'a>(x: &Array<'a>, count: usize) -> Result<Cow<'a, [u8]>> {
    match x.dimensions() {
        [] => repeat(x.bytes, count).map(Cow::Owned),
        _ => Ok(Cow::Borrowed(x.bytes)),
    }
}

fn choose<const WIDTH: usize>((which, on_true, on_false): (&[u8], &[u8], &[u8]), out: &mut [u8]) {
    let (on_true, on_false) = (on_true.as_chunks().0, on_false.as_chunks().0);
    let choices = zip(which, zip(on_true, on_false));
    for (out, (&which, (x, y))) in zip(out.as_chunks_mut::<WIDTH>().0, choices) {
        *out = if which != 0 { *x } else { *y };
    }
}

#[cfg(test)]
mod tests;
