//! Dot: matrix products with batch dimensions.
//!
//! Sums are in the wide type. For `f32` that is `f64`, in which each product is exact. XLA's result
//! depends on how it blocks the sum; all its results are close to the exact sum, rounded once.

use num_complex::Complex;

use super::array::{Array, Elements};
use super::movement::transposed;
use super::wide::{Kind, Wide};
use super::{bug, zeroed};
use crate::instruction::DotDimensions;
use callbox_core::values::{ElementType, Result};

/// The number of rows of the right operand in a block, small enough for the cache.
const ROWS: usize = 64;

/// The multiplications between two checks whether to go on: some milliseconds.
const BETWEEN_CHECKS: usize = 1 << 20;

/// Checks whether a dot goes on: it takes much longer than reading its operands.
type Check<'a> = &'a dyn Fn() -> Result<()>;

/// The dot of two arrays. The result's dimensions are the batch dimensions, then the other ones of
/// the left operand, then those of the right operand.
pub(super) fn dot(
    lhs: &Array<'_>,
    rhs: &Array<'_>,
    dimensions: &DotDimensions,
    to: ElementType,
    check: Check<'_>,
) -> Result<Vec<u8>> {
    let left = Sides::of(lhs, &dimensions.lhs_batch, &dimensions.lhs_contracting)?;
    let right = Sides::of(rhs, &dimensions.rhs_batch, &dimensions.rhs_contracting)?;
    if (left.batch, left.contracted) != (right.batch, right.contracted) {
        return Err(bug("the dimensions of a dot do not agree"));
    }
    let sizes = Sizes {
        batch: left.batch,
        rows: left.free,
        contracted: left.contracted,
        columns: right.free,
    };
    let order = [
        &*dimensions.lhs_batch,
        &left.others,
        &dimensions.lhs_contracting,
    ]
    .concat();
    let lhs_bytes = transposed(lhs, &order)?;
    let order = [
        &*dimensions.rhs_batch,
        &dimensions.rhs_contracting,
        &right.others,
    ]
    .concat();
    let rhs_bytes = transposed(rhs, &order)?;
    let operands = [(lhs, &lhs_bytes), (rhs, &rhs_bytes)].map(|(x, bytes)| Elements {
        bytes,
        ..x.elements()
    });
    match Kind::of(to)? {
        Kind::Signed => products::<i64>(operands, sizes, to, check),
        Kind::Unsigned => products::<u64>(operands, sizes, to, check),
        Kind::Real => products::<f64>(operands, sizes, to, check),
        Kind::Complex => products::<Complex<f64>>(operands, sizes, to, check),
    }
}

/// The roles of an operand's dimensions, with their sizes.
struct Sides {
    batch: usize,
    free: usize,
    contracted: usize,
    /// The dimensions that are neither batch nor contracted.
    others: Vec<usize>,
}

impl Sides {
    fn of(x: &Array<'_>, batch: &[usize], contracting: &[usize]) -> Result<Self> {
        let others = (0..x.dimensions().len())
            .filter(|d| !batch.contains(d) && !contracting.contains(d))
            .collect::<Vec<_>>();
        let size = |dimensions: &[usize]| {
            let mut sizes = dimensions.iter().map(|&d| x.dimensions().get(d).copied());
            let size = sizes.try_fold(1usize, |size, d| size.checked_mul(d?));
            size.ok_or_else(|| bug("a dimension of a dot does not exist or is too large"))
        };
        Ok(Self {
            batch: size(batch)?,
            free: size(&others)?,
            contracted: size(contracting)?,
            others,
        })
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    rows: usize,
    contracted: usize,
    columns: usize,
}

fn products<T: Wide>(
    operands: [Elements<'_>; 2],
    sizes: Sizes,
    to: ElementType,
    check: Check<'_>,
) -> Result<Vec<u8>> {
    let Sizes {
        batch,
        rows,
        contracted,
        columns,
    } = sizes;
    let count = batch.checked_mul(rows).and_then(|n| n.checked_mul(columns));
    let mut sums = zeroed::<T>(count.ok_or_else(|| bug("a size overflows"))?)?;
    if !sums.is_empty() && contracted > 0 {
        let [lhs, rhs] = [widened::<T>(operands[0])?, widened::<T>(operands[1])?];
        let matrices = std::iter::zip(
            lhs.chunks_exact(rows * contracted),
            rhs.chunks_exact(contracted * columns),
        );
        for (sums, (lhs, rhs)) in std::iter::zip(sums.chunks_exact_mut(rows * columns), matrices) {
            multiply(lhs, rhs, contracted, columns, sums, check)?;
        }
    }
    let mut bytes = zeroed(sums.len() * to.byte_width())?;
    T::encode(&sums, to, &mut bytes)?;
    Ok(bytes)
}

/// Adds the product of two row-major matrices to `sums`, in the order of the contracted dimension.
fn multiply<T: Wide>(
    lhs: &[T],
    rhs: &[T],
    contracted: usize,
    columns: usize,
    sums: &mut [T],
    check: Check<'_>,
) -> Result<()> {
    let mut unchecked = 0;
    let mut note = |multiplications: usize| {
        unchecked += multiplications;
        if unchecked < BETWEEN_CHECKS {
            return Ok(());
        }
        unchecked = 0;
        check()
    };
    if columns == 1 {
        for (lhs, sum) in std::iter::zip(lhs.chunks_exact(contracted), sums) {
            note(contracted)?;
            let products = std::iter::zip(lhs, rhs).map(|(&x, &y)| x.multiply(y));
            *sum = products.fold(*sum, T::add);
        }
        return Ok(());
    }
    for (block, rhs) in rhs.chunks(ROWS * columns).enumerate() {
        let rows = std::iter::zip(lhs.chunks_exact(contracted), sums.chunks_exact_mut(columns));
        for (lhs, sums) in rows {
            note(rhs.len())?;
            let lhs = lhs.iter().skip(block * ROWS);
            for (&x, rhs) in std::iter::zip(lhs, rhs.chunks_exact(columns)) {
                for (sum, &y) in std::iter::zip(&mut *sums, rhs) {
                    *sum = sum.add(x.multiply(y));
                }
            }
        }
    }
    Ok(())
}

fn widened<T: Wide>(x: Elements<'_>) -> Result<Vec<T>> {
    let mut wide = zeroed(x.count())?;
    T::decode(x.element_type, x.bytes, &mut wide)?;
    Ok(wide)
}

#[cfg(test)]
mod tests;
