//! Portable products: terms are added in a fixed order, with the same bits on every machine.

use super::{Format, Gemm, Number, Scaled, Sum, Target, Tile, each_tile};
use crate::simd::{self, Vectorized};

/// The most rows, columns and terms between two pauses. The number of terms is part of the results'
/// bits: sums of so many terms are added to C one after the other.
const PORTABLE_TILE: [usize; 3] = [16, 256, 256];

/// The rows that [`block_sums`] computes at once.
const BLOCK_ROWS: usize = 4;

/// The blocks of rows of a portable tile.
const BLOCKS: usize = PORTABLE_TILE[0].div_ceil(BLOCK_ROWS);

/// Computes products in a fixed order, with `LANES` columns at once: the terms of each element are
/// added one after the other. `matrixmultiply` would fuse multiplications with additions.
pub(super) fn in_order<'a, F: Format, const LANES: usize, E>(
    gemm: Gemm,
    product: &Scaled<'a, F>,
    mut c: Target<'a, F::Sum>,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut packed = Packed {
        a: [[[F::Wide::ZERO; BLOCK_ROWS]; PORTABLE_TILE[2]]; BLOCKS],
        b: [[F::Wide::ZERO; LANES]; PORTABLE_TILE[2]],
    };
    let compute = |tile: Tile| {
        simd::run(InOrder {
            tile,
            product,
            packed: &mut packed,
            c: &mut c,
        });
    };
    each_tile(gemm, PORTABLE_TILE, compute, pause)
}

/// The elements that blocks read, term by term: all rows of A in a tile, and `LANES` columns of B.
/// Elements past the end of the tile are left over from other tiles, and their sums are not used.
struct Packed<T, const LANES: usize> {
    a: [[[T; BLOCK_ROWS]; PORTABLE_TILE[2]]; BLOCKS],
    b: [[T; LANES]; PORTABLE_TILE[2]],
}

/// Computes a tile by blocks of [`BLOCK_ROWS`] rows and `LANES` columns, whose sums fit into
/// registers. The sizes of blocks do not change the order of the terms.
struct InOrder<'a, 'b, F: Format, const LANES: usize> {
    tile: Tile,
    product: &'a Scaled<'b, F>,
    packed: &'a mut Packed<F::Wide, LANES>,
    c: &'a mut Target<'b, F::Sum>,
}

impl<F: Format, const LANES: usize> Vectorized for InOrder<'_, '_, F, LANES> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self {
            tile,
            product,
            packed,
            c,
        } = self;
        let [row, column, term] = tile.at;
        let [rows, columns, depth] = tile.sizes;
        let Scaled { a, b, .. } = product;
        for i in 0..rows {
            let block = &mut packed.a[i / BLOCK_ROWS][..depth];
            for (packed, term) in block.iter_mut().zip(term..) {
                let place = a.strides.place(tile.matrix, row + i, term);
                packed[i % BLOCK_ROWS] = F::widen(a.elements[place]);
            }
        }
        for first in (0..columns).step_by(LANES) {
            let lanes = LANES.min(columns - first);
            for (packed, term) in packed.b[..depth].iter_mut().zip(term..) {
                let place = b.strides.place(tile.matrix, term, column + first);
                let dense = b.elements.get(place..place + LANES);
                if let (1, Some(dense)) = (b.strides.column, dense) {
                    for (packed, x) in packed.iter_mut().zip(dense) {
                        *packed = F::widen(*x);
                    }
                } else {
                    for (lane, packed) in packed[..lanes].iter_mut().enumerate() {
                        *packed = F::widen(b.elements[place + lane * b.strides.column]);
                    }
                }
            }
            for (block, of_a) in packed.a[..rows.div_ceil(BLOCK_ROWS)].iter().enumerate() {
                let sums = block_sums(&of_a[..depth], &packed.b[..depth]);
                for (i, sums) in (block * BLOCK_ROWS..rows).zip(sums) {
                    for (sum, column) in sums[..lanes].iter().zip(column + first..) {
                        let place = c.strides.place(tile.matrix, row + i, column);
                        let c = &mut c.elements[place];
                        *c = F::Sum::finish(product.alpha, *sum, product.beta(tile), *c);
                    }
                }
            }
        }
    }
}

/// The sums of a block: the product of a column of A and a row of B, for one term after the other.
#[inline(always)]
fn block_sums<T: Number, const LANES: usize>(
    a: &[[T; BLOCK_ROWS]],
    b: &[[T; LANES]],
) -> [[T; LANES]; BLOCK_ROWS] {
    let mut sums = [[T::ZERO; LANES]; BLOCK_ROWS];
    for (a, b) in a.iter().zip(b) {
        for (sums, &a) in sums.iter_mut().zip(a) {
            for (sum, &b) in sums.iter_mut().zip(b) {
                *sum = *sum + a * b;
            }
        }
    }
    sums
}
