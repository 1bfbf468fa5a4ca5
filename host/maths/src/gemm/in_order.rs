//! Portable products: terms are added in a fixed order, with the same bits on every machine.

use std::ops::Range;

use super::{Format, Gemm, Number, Scaled, Sum, Target, Tile, each_tile, tile_of};
use crate::simd::{self, Vectorized};

/// The most rows, columns and terms between two pauses. The number of terms is part of the results'
/// bits: sums of so many terms are added to C one after the other.
const PORTABLE_TILE: [usize; 3] = [16, 256, 256];

/// The most rows and columns of a sparse matrix in a tile: a thousand pages with all of its terms.
const SPARSE_SIDE: usize = 4;

/// The rows that [`block_sums`] computes at once.
const BLOCK_ROWS: usize = 4;

/// The columns that [`block_sums`] computes at once. 16 of F32 took as long.
const LANES: usize = 8;

/// The blocks of rows of a portable tile.
const BLOCKS: usize = PORTABLE_TILE[0].div_ceil(BLOCK_ROWS);

/// Computes products in a fixed order, with [`LANES`] columns at once: the terms of each element
/// are added one after the other. `matrixmultiply` would fuse multiplications with additions.
///
/// A tile is computed by blocks of [`BLOCK_ROWS`] rows and [`LANES`] columns, whose sums fit into
/// registers. The sizes of blocks do not change the order of the terms.
pub(super) fn in_order<'a, F: Format, E>(
    gemm: Gemm,
    product: &Scaled<'a, F>,
    mut c: Target<'a, F::Sum>,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut packed = Packed::<F::Wide> {
        a: [[[F::Wide::ZERO; BLOCK_ROWS]; PORTABLE_TILE[2]]; BLOCKS],
        b: [[F::Wide::ZERO; LANES]; PORTABLE_TILE[2]],
        sums: [[[F::Wide::ZERO; LANES]; BLOCK_ROWS]; BLOCKS],
    };
    // The number of terms stays: it is part of the bits.
    let [rows, columns, _] = tile_of(PORTABLE_TILE, SPARSE_SIDE, product, &c);
    let most = [rows, columns, PORTABLE_TILE[2]];
    let compute = |tile: Tile| {
        let [rows, columns, depth] = tile.sizes;
        packed.read_rows(tile, product);
        for first in (0..columns).step_by(LANES) {
            let lanes = LANES.min(columns - first);
            simd::run(ReadColumns::<F> {
                tile,
                product,
                columns: first..first + lanes,
                to: &mut packed.b[..depth],
            });
            simd::run(Blocks {
                a: &packed.a[..rows.div_ceil(BLOCK_ROWS)],
                b: &packed.b[..depth],
                sums: &mut packed.sums,
            });
            packed.write(tile, product, first..first + lanes, &mut c);
        }
    };
    each_tile(gemm, most, compute, pause)
}

/// The elements that blocks read, term by term: all rows of A in a tile, and `LANES` columns of B.
/// Elements past the end of the tile are left over from other tiles, and their sums are not used.
struct Packed<T> {
    a: [[[T; BLOCK_ROWS]; PORTABLE_TILE[2]]; BLOCKS],
    b: [[T; LANES]; PORTABLE_TILE[2]],
    sums: [[[T; LANES]; BLOCK_ROWS]; BLOCKS],
}

impl<T: Number> Packed<T> {
    fn read_rows<F: Format<Wide = T>>(&mut self, tile: Tile, product: &Scaled<'_, F>) {
        let ([row, _, term], [rows, _, depth]) = (tile.at, tile.sizes);
        let a = product.a;
        for i in 0..rows {
            let block = &mut self.a[i / BLOCK_ROWS][..depth];
            for (packed, term) in block.iter_mut().zip(term..) {
                let place = a.strides.place(tile.matrix, row + i, term);
                packed[i % BLOCK_ROWS] = F::widen(a.elements[place]);
            }
        }
    }

    /// Writes these columns of a tile of C.
    fn write<F: Format<Wide = T>>(
        &self,
        tile: Tile,
        product: &Scaled<'_, F>,
        columns: Range<usize>,
        c: &mut Target<'_, F::Sum>,
    ) {
        let [row, column, _] = tile.at;
        let beta = product.beta(tile);
        let rows = row..row + tile.sizes[0];
        for (row, sums) in rows.zip(self.sums.as_flattened()) {
            for (sum, at) in sums.iter().zip(columns.clone()) {
                let c = &mut c.elements[c.strides.place(tile.matrix, row, column + at)];
                *c = F::Sum::finish(product.alpha, *sum, beta, *c);
            }
        }
    }
}

/// Reads columns of a tile of B.
struct ReadColumns<'a, 'b, F: Format> {
    tile: Tile,
    product: &'a Scaled<'b, F>,
    columns: Range<usize>,
    to: &'a mut [[F::Wide; LANES]],
}

impl<F: Format> Vectorized for ReadColumns<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let [_, column, term] = self.tile.at;
        let b = self.product.b;
        for (packed, term) in self.to.iter_mut().zip(term..) {
            let place = b
                .strides
                .place(self.tile.matrix, term, column + self.columns.start);
            let dense = b.elements.get(place..place + LANES);
            if let (1, Some(dense)) = (b.strides.column, dense) {
                for (packed, x) in packed.iter_mut().zip(dense) {
                    *packed = F::widen(*x);
                }
            } else {
                for (lane, packed) in packed[..self.columns.len()].iter_mut().enumerate() {
                    *packed = F::widen(b.elements[place + lane * b.strides.column]);
                }
            }
        }
    }
}

/// Computes the sums of blocks. Alone in a function, the loop keeps its sums in registers.
struct Blocks<'a, T> {
    a: &'a [[[T; BLOCK_ROWS]; PORTABLE_TILE[2]]],
    b: &'a [[T; LANES]],
    sums: &'a mut [[[T; LANES]; BLOCK_ROWS]; BLOCKS],
}

impl<T: Number> Vectorized for Blocks<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (sums, a) in self.sums.iter_mut().zip(self.a) {
            *sums = block_sums(a, self.b);
        }
    }
}

/// The sums of a block: the product of a column of A and a row of B, for one term after the other.
#[inline(always)]
fn block_sums<T: Number>(a: &[[T; BLOCK_ROWS]], b: &[[T; LANES]]) -> [[T; LANES]; BLOCK_ROWS] {
    let mut sums = [[T::ZERO; LANES]; BLOCK_ROWS];
    for (a, b) in a.iter().zip(b) {
        // A loop over the rows is not always unrolled, and its sums are then in memory.
        let [first, second, third, fourth] = &mut sums;
        add_products(first, a[0], b);
        add_products(second, a[1], b);
        add_products(third, a[2], b);
        add_products(fourth, a[3], b);
    }
    sums
}

#[inline(always)]
fn add_products<T: Number>(sums: &mut [T; LANES], a: T, b: &[T; LANES]) {
    for (sum, &b) in sums.iter_mut().zip(b) {
        *sum = *sum + a * b;
    }
}
