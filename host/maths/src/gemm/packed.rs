//! Tiles of operands as `matrixmultiply` reads them: in place, or widened to a buffer.

use super::{Format, Operand};
use crate::simd::{self, Vectorized};

/// Memory for the elements of one tile.
#[derive(Default)]
pub(super) struct Buffers<T> {
    pub(super) a: Vec<T>,
    pub(super) b: Vec<T>,
    /// The sums of the tile's terms, if they are not computed in C.
    pub(super) sums: Vec<T>,
}

/// A tile of an operand. The first element has index 0.
pub(super) struct View<'a, T> {
    pub(super) elements: &'a [T],
    pub(super) strides: [usize; 2],
}

impl<'a, T> View<'a, T> {
    /// The tile of `sizes` at this matrix, row and column. Elements of a narrow format are widened
    /// to `buffer`.
    pub(super) fn of<F: Format<Wide = T>>(
        operand: Operand<'a, F::Stored>,
        [matrix, row, column]: [usize; 3],
        [rows, columns]: [usize; 2],
        buffer: &'a mut Vec<T>,
    ) -> Self {
        let strides = operand.strides;
        let from = &operand.elements[strides.place(matrix, row, column)..];
        if let Some(elements) = F::as_wide(from) {
            let strides = [strides.row, strides.column];
            return Self { elements, strides };
        }
        // Neighbours in memory stay neighbours.
        let is_transposed = strides.row == 1;
        let (sizes, steps) = if is_transposed {
            ([columns, rows], [strides.column, strides.row])
        } else {
            ([rows, columns], [strides.row, strides.column])
        };
        buffer.clear();
        simd::run(Widen::<F> {
            from,
            sizes,
            steps,
            to: buffer,
        });
        let strides = if is_transposed {
            [1, rows]
        } else {
            [columns, 1]
        };
        Self {
            elements: buffer,
            strides,
        }
    }
}

/// Appends the wide elements of a matrix, row by row.
struct Widen<'a, F: Format> {
    from: &'a [F::Stored],
    sizes: [usize; 2],
    steps: [usize; 2],
    to: &'a mut Vec<F::Wide>,
}

impl<F: Format> Vectorized for Widen<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let [rows, columns] = self.sizes;
        for row in 0..rows {
            let from = &self.from[row * self.steps[0]..];
            if self.steps[1] == 1 {
                self.to.extend(from[..columns].iter().map(|&x| F::widen(x)));
            } else {
                let places = (0..columns).map(|column| column * self.steps[1]);
                self.to.extend(places.map(|place| F::widen(from[place])));
            }
        }
    }
}
