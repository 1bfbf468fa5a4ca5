//! Dot: matrix products with batch dimensions.
//!
//! Sums are in the wide type. For `f32` that is `f64`, in which each product is exact. XLA's result
//! depends on how it blocks the sum; all its results are close to the exact sum, rounded once.
//!
//! Small products are summed in the order of the contracted dimension. `callbox-maths` computes
//! products of [`LARGE`] multiplications and more, if each matrix has [`LARGE_MATRIX`], in an order
//! that depends on the processor, on several threads. For `f32` and narrower types the order
//! changes `f64` sums by less than their rounding to the result's type shows, but for one result in
//! some millions.

use std::iter::zip;

use callbox_maths::gemm::{Arithmetic, Gemm, Operand, Strides, Target, gemm};
use num_complex::Complex;

use super::array::{Array, Elements, filled_within};
use super::bug;
use super::movement::transposed_within;
use super::teamwork::Team;
use super::wide::{Kind, Wide};
use crate::instruction::DotDimensions;
use callbox_core::values::{ElementType, Result};

/// The number of rows of the right operand in a block, small enough for the cache.
const ROWS: usize = 64;

/// The multiplications between two checks whether to go on: some milliseconds.
const BETWEEN_CHECKS: usize = 1 << 20;

/// The multiplications from which a floating-point product is large.
const LARGE: usize = 1 << 18;

/// The multiplications of a matrix that are worth a call of `callbox-maths`.
const LARGE_MATRIX: usize = 1 << 12;

/// The rows of a large product that a thread computes at a time.
const ROWS_AT_A_TIME: usize = 256;

/// The dot of two arrays. The result's dimensions are the batch dimensions, then the other ones of
/// the left operand, then those of the right operand.
pub(super) fn dot(
    lhs: &Array<'_>,
    rhs: &Array<'_>,
    dimensions: &DotDimensions,
    to: ElementType,
    team: Team<'_>,
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
    let lhs_bytes = transposed_within(lhs, &order, team.check)?;
    let order = [
        &*dimensions.rhs_batch,
        &dimensions.rhs_contracting,
        &right.others,
    ]
    .concat();
    let rhs_bytes = transposed_within(rhs, &order, team.check)?;
    let operands = [(lhs, &lhs_bytes), (rhs, &rhs_bytes)].map(|(x, bytes)| Elements {
        bytes,
        ..x.elements()
    });
    match Kind::of(to)? {
        Kind::Signed => products::<i64>(operands, sizes, to, team),
        Kind::Unsigned => products::<u64>(operands, sizes, to, team),
        Kind::Real if sizes.is_large() => large(operands, sizes, to, team),
        Kind::Real => products::<f64>(operands, sizes, to, team),
        Kind::Complex => products::<Complex<f64>>(operands, sizes, to, team),
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

impl Sizes {
    fn is_large(self) -> bool {
        let matrix = Self { batch: 1, ..self };
        self.multiplications() >= LARGE && matrix.multiplications() >= LARGE_MATRIX
    }

    fn multiplications(self) -> usize {
        let sizes = [self.batch, self.rows, self.contracted, self.columns];
        sizes.into_iter().fold(1, usize::saturating_mul)
    }
}

/// Products of floating-point numbers by `callbox-maths`, shared among threads.
fn large(
    operands: [Elements<'_>; 2],
    sizes: Sizes,
    to: ElementType,
    team: Team<'_>,
) -> Result<Vec<u8>> {
    let Sizes {
        batch,
        rows,
        contracted,
        columns,
    } = sizes;
    let mut sums = filled_within(0.0_f64, batch * rows * columns, team.check)?;
    let [lhs, rhs] = operands.map(|x| widened::<f64>(x, team));
    let (lhs, rhs) = (lhs?, rhs?);
    let matrices = zip(
        sums.chunks_mut(rows * columns),
        zip(
            lhs.chunks(rows * contracted),
            rhs.chunks(contracted * columns),
        ),
    );
    let parts = matrices.flat_map(|(sums, (lhs, rhs))| {
        let rows = zip(
            sums.chunks_mut(ROWS_AT_A_TIME * columns),
            lhs.chunks(ROWS_AT_A_TIME * contracted),
        );
        rows.map(move |(sums, lhs)| (sums, lhs, rhs))
    });
    team.share(parts, sizes.multiplications(), |(sums, lhs, rhs)| {
        let rows = sums.len() / columns;
        let dense = |columns| Strides {
            batch: 0,
            row: columns,
            column: 1,
        };
        let product = Gemm {
            batch: 1,
            rows,
            columns,
            depth: contracted,
            arithmetic: Arithmetic::Fastest,
        };
        gemm(
            product,
            1.0,
            Operand::new(lhs, dense(contracted), [1, rows, contracted]).map_err(bug)?,
            Operand::new(rhs, dense(columns), [1, contracted, columns]).map_err(bug)?,
            0.0,
            Target::new(sums, dense(columns), [1, rows, columns]).map_err(bug)?,
            &mut || team.check.check(),
        )
    })?;
    narrowed(&sums, to, team)
}

fn products<T: Wide>(
    operands: [Elements<'_>; 2],
    sizes: Sizes,
    to: ElementType,
    team: Team<'_>,
) -> Result<Vec<u8>> {
    let Sizes {
        batch,
        rows,
        contracted,
        columns,
    } = sizes;
    let count = batch.checked_mul(rows).and_then(|n| n.checked_mul(columns));
    let count = count.ok_or_else(|| bug("a size overflows"))?;
    let mut sums = filled_within(T::default(), count, team.check)?;
    let mut looks = Looks { unchecked: 0, team };
    if !sums.is_empty() && contracted > 0 {
        let [lhs, rhs] = operands.map(|x| widened::<T>(x, team));
        let (lhs, rhs) = (lhs?, rhs?);
        let matrices = zip(
            lhs.chunks_exact(rows * contracted),
            rhs.chunks_exact(contracted * columns),
        );
        for (sums, (lhs, rhs)) in zip(sums.chunks_exact_mut(rows * columns), matrices) {
            multiply(lhs, rhs, contracted, columns, sums, &mut looks)?;
        }
    }
    narrowed(&sums, to, team)
}

/// The looks at the deadline of all matrices of a product.
struct Looks<'t> {
    /// The multiplications since the last one.
    unchecked: usize,
    team: Team<'t>,
}

impl Looks<'_> {
    fn note(&mut self, multiplications: usize) -> Result<()> {
        self.unchecked += multiplications;
        if self.unchecked < BETWEEN_CHECKS {
            return Ok(());
        }
        self.unchecked = 0;
        self.team.check.check()
    }
}

/// Adds the product of two row-major matrices to `sums`, in the order of the contracted dimension.
fn multiply<T: Wide>(
    lhs: &[T],
    rhs: &[T],
    contracted: usize,
    columns: usize,
    sums: &mut [T],
    looks: &mut Looks<'_>,
) -> Result<()> {
    if columns == 1 {
        for (lhs, sum) in zip(lhs.chunks_exact(contracted), sums) {
            let pieces = zip(lhs.chunks(BETWEEN_CHECKS), rhs.chunks(BETWEEN_CHECKS));
            for (lhs, rhs) in pieces {
                looks.note(lhs.len())?;
                let products = zip(lhs, rhs).map(|(&x, &y)| x.multiply(y));
                *sum = products.fold(*sum, T::add);
            }
        }
        return Ok(());
    }
    for (block, rhs) in rhs.chunks(ROWS * columns).enumerate() {
        let rows = zip(lhs.chunks_exact(contracted), sums.chunks_exact_mut(columns));
        for (lhs, sums) in rows {
            let lhs = lhs.iter().skip(block * ROWS);
            let is_long = columns > BETWEEN_CHECKS / ROWS;
            if !is_long {
                looks.note(rhs.len())?;
            }
            for (&x, rhs) in zip(lhs, rhs.chunks_exact(columns)) {
                let parts = zip(sums.chunks_mut(BETWEEN_CHECKS), rhs.chunks(BETWEEN_CHECKS));
                for (sums, rhs) in parts {
                    if is_long {
                        looks.note(rhs.len())?;
                    }
                    for (sum, &y) in zip(sums, rhs) {
                        *sum = sum.add(x.multiply(y));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Rounds sums to a type, part by part.
pub(super) fn narrowed<T: Wide>(sums: &[T], to: ElementType, team: Team<'_>) -> Result<Vec<u8>> {
    let width = to.byte_width();
    let mut bytes = filled_within(0_u8, sums.len() * width, team.check)?;
    let parts = bytes.chunks_mut(BETWEEN_CHECKS * width);
    for (sums, bytes) in zip(sums.chunks(BETWEEN_CHECKS), parts) {
        team.check.check()?;
        T::encode(sums, to, bytes)?;
    }
    Ok(bytes)
}

fn widened<T: Wide>(x: Elements<'_>, team: Team<'_>) -> Result<Vec<T>> {
    let mut wide = filled_within(T::default(), x.count(), team.check)?;
    for (number, part) in wide.chunks_mut(BETWEEN_CHECKS).enumerate() {
        team.check.check()?;
        let from = x.part(number * BETWEEN_CHECKS, part.len())?;
        T::decode(x.element_type, from, part)?;
    }
    Ok(wide)
}

#[cfg(test)]
mod tests;
