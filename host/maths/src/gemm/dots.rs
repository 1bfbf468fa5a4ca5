//! Products of few rows, whose terms lie side by side in A and in B, as dot products.
//!
//! `matrixmultiply` first copies its operands in the order in which it reads them. For a few rows
//! the copy of B takes longer than the product.

use super::{Format, Operand, Scaled, Tile};
use crate::simd::{self, Vectorized};

/// The most rows of A. With AVX-512, products of more are faster by `matrixmultiply`.
const MOST_ROWS: usize = 32;

/// The rows of A and the columns of B in a tile.
pub(super) struct Dots<'a, F: Format> {
    a: Operand<'a, F::Stored>,
    b: Operand<'a, F::Stored>,
    tile: Tile,
}

impl<'a, F: Format> Dots<'a, F> {
    /// `None` if the tile is not of that kind, or the format has no dot product.
    pub(super) fn of(product: &Scaled<'a, F>, tile: Tile) -> Option<Self> {
        let Scaled { a, b, .. } = *product;
        let is_for_dots = a.strides.column == 1 && b.strides.row == 1 && a.sizes[1] <= MOST_ROWS;
        (is_for_dots && F::dot(&[], &[]).is_some()).then_some(Self { a, b, tile })
    }

    /// Computes the sums of the tile's terms, row by row.
    pub(super) fn compute(self, sums: &mut [F::Wide]) {
        simd::run(Computing { dots: self, sums });
    }
}

struct Computing<'a, 'b, F: Format> {
    dots: Dots<'a, F>,
    sums: &'b mut [F::Wide],
}

impl<F: Format> Vectorized for Computing<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Dots { a, b, tile } = self.dots;
        let ([row, column, term], [rows, columns, depth]) = (tile.at, tile.sizes);
        for j in 0..columns {
            let b = &b.elements[b.strides.place(tile.matrix, term, column + j)..][..depth];
            for i in 0..rows {
                let a = &a.elements[a.strides.place(tile.matrix, row + i, term)..][..depth];
                if let Some(sum) = F::dot(a, b) {
                    self.sums[i * columns + j] = sum;
                }
            }
        }
    }
}
