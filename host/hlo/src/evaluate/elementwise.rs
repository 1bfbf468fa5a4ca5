//! The loop of all elementwise operations: decodes, computes and encodes a block at a time.
//!
//! Operations are thus compiled for four wide types and not for every element type, and need little
//! memory besides their results.

use std::array::from_fn;
use std::borrow::Cow;
use std::iter::zip;

use super::array::{Array, Elements, array, repeat};
use super::binary::{maximum, minimum};
use super::wide::{Kind, Wide};
use super::{bug, share, zeroed};
use callbox_core::values::{ArrayShape, ElementType, Literal, Result, Shape};

/// The number of elements in a block, small enough for the cache.
pub(super) const BLOCK: usize = 1024;

/// Computes an array from arrays with the same number of elements. `compute` gets a block of each
/// operand and fills one of the result.
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

/// Computes each element from one element. Always succeeds.
pub(super) fn each<A: Copy, R>(x: &[A], out: &mut [R], f: impl Fn(A) -> R) -> Result<()> {
    zip(out, x).for_each(|(out, &x)| *out = f(x));
    Ok(())
}

/// Computes each element from two elements. Always succeeds.
pub(super) fn pairs<A: Copy, R>(
    x: &[A],
    y: &[A],
    out: &mut [R],
    f: impl Fn(A, A) -> R,
) -> Result<()> {
    zip(out, zip(x, y)).for_each(|(out, (&x, &y))| *out = f(x, y));
    Ok(())
}

/// The elements of `on_true` where the predicate is true, and of `on_false` elsewhere.
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
    let bytes = chosen(
        predicate.bytes,
        on_true.bytes,
        on_false.bytes,
        on_true.width(),
    )?;
    super::leaf(shape, bytes)
}

/// The elements of `on_true`, of `width` bytes, where the predicate is true, and of `on_false`
/// elsewhere.
pub(super) fn chosen(
    predicate: &[u8],
    on_true: &[u8],
    on_false: &[u8],
    width: usize,
) -> Result<Vec<u8>> {
    let mut bytes = zeroed(on_true.len())?;
    let choose = match width {
        1 => choose::<1>,
        2 => choose::<2>,
        4 => choose::<4>,
        8 => choose::<8>,
        16 => choose::<16>,
        width => {
            return Err(bug(format_args!(
                "expected at most 16 bytes, found {width}"
            )));
        }
    };
    choose(predicate, on_true, on_false, &mut bytes);
    Ok(bytes)
}

/// The minimum of `high` and the maximum of `low` and `x`; NaN if any of them is NaN.
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
    clamp_elements([bound(&low_bytes), x.elements(), bound(&high_bytes)], to)
}

/// [`clamp`], with as many bounds as elements.
pub(super) fn clamp_elements(operands: [Elements<'_>; 3], to: ElementType) -> Result<Vec<u8>> {
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

/// An array's elements, or `count` copies of a scalar.
fn spread<'a>(x: &Array<'a>, count: usize) -> Result<Cow<'a, [u8]>> {
    match x.dimensions() {
        [] => repeat(x.bytes, count).map(Cow::Owned),
        _ => Ok(Cow::Borrowed(x.bytes)),
    }
}

fn choose<const WIDTH: usize>(which: &[u8], on_true: &[u8], on_false: &[u8], out: &mut [u8]) {
    let (on_true, on_false) = (on_true.as_chunks().0, on_false.as_chunks().0);
    let choices = zip(which, zip(on_true, on_false));
    for (out, (&which, (x, y))) in zip(out.as_chunks_mut::<WIDTH>().0, choices) {
        *out = if which != 0 { *x } else { *y };
    }
}

#[cfg(test)]
mod tests;
