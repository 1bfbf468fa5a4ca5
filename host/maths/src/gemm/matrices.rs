//! Batches of matrices in slices: [`Operand`] and [`Target`] are checked to be in bounds.

use std::fmt;

/// The distances between neighbours in a batch of matrices, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// The elements from one matrix to the next.
    pub batch: usize,
    /// The elements from one row to the next.
    pub row: usize,
    /// The elements from one column to the next.
    pub column: usize,
}

/// Why a batch of matrices cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// An element is past the end of the slice.
    PastTheEnd {
        /// The elements of the slice.
        found: usize,
        /// The elements up to the last one of the matrices.
        needed: u128,
    },
    /// Two elements of the result have the same place.
    Overlap,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PastTheEnd { found, needed } => {
                write!(f, "expected at least {needed} elements, found {found}")
            }
            Self::Overlap => write!(
                f,
                "expected strides that keep the elements of the result apart, found elements at \
                 the same place"
            ),
        }
    }
}

impl std::error::Error for Misfit {}

/// A batch of matrices to read, all in bounds of its slice.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a, T> {
    pub(super) elements: &'a [T],
    pub(super) strides: Strides,
    pub(super) sizes: [usize; 3],
}

/// A batch of matrices to write, all in bounds of its slice, with no two elements at one place.
#[derive(Debug)]
pub struct Target<'a, T> {
    pub(super) elements: &'a mut [T],
    pub(super) strides: Strides,
    pub(super) sizes: [usize; 3],
}

impl<'a, T> Operand<'a, T> {
    /// `batch` matrices of `rows x columns` elements, which may share elements.
    ///
    /// # Errors
    /// [`Misfit::PastTheEnd`] if the slice is too short.
    pub fn new(
        elements: &'a [T],
        strides: Strides,
        [batch, rows, columns]: [usize; 3],
    ) -> Result<Self, Misfit> {
        let sizes = [batch, rows, columns];
        check_end(elements.len(), strides, sizes)?;
        Ok(Self {
            elements,
            strides,
            sizes,
        })
    }
}

impl<'a, T> Target<'a, T> {
    /// `batch` matrices of `rows x columns` elements.
    ///
    /// # Errors
    /// [`Misfit::PastTheEnd`] if the slice is too short, and [`Misfit::Overlap`] unless each
    /// dimension, in the order of the strides, steps over all of the smaller ones.
    pub fn new(
        elements: &'a mut [T],
        strides: Strides,
        [batch, rows, columns]: [usize; 3],
    ) -> Result<Self, Misfit> {
        let sizes = [batch, rows, columns];
        check_end(elements.len(), strides, sizes)?;
        check_apart(strides, sizes)?;
        Ok(Self {
            elements,
            strides,
            sizes,
        })
    }
}

impl Strides {
    /// With the sizes in the order of batch, rows and columns.
    fn zip(self, sizes: [usize; 3]) -> [(usize, usize); 3] {
        let [batch, rows, columns] = sizes;
        [
            (self.batch, batch),
            (self.row, rows),
            (self.column, columns),
        ]
    }

    /// Whether the elements of a matrix have no neighbours: along rows and columns they lie more
    /// than 16 bytes apart.
    pub(super) fn is_sparse(self, [_, rows, columns]: [usize; 3], element_size: usize) -> bool {
        let is_apart = |stride: usize| stride.saturating_mul(element_size) > 16;
        rows > 1 && columns > 1 && is_apart(self.row) && is_apart(self.column)
    }

    /// The place of an element. In bounds of a slice if [`check_end`] passed.
    #[inline]
    pub(super) fn place(self, matrix: usize, row: usize, column: usize) -> usize {
        matrix * self.batch + row * self.row + column * self.column
    }
}

fn check_end(found: usize, strides: Strides, sizes: [usize; 3]) -> Result<(), Misfit> {
    if sizes.contains(&0) {
        return Ok(());
    }
    // Each product of two 64-bit numbers fits.
    let steps = strides.zip(sizes).into_iter();
    let last = steps.map(|(stride, size)| stride as u128 * (size as u128 - 1));
    let needed = last.fold(1_u128, u128::saturating_add);
    if needed > found as u128 {
        return Err(Misfit::PastTheEnd { found, needed });
    }
    Ok(())
}

fn check_apart(strides: Strides, sizes: [usize; 3]) -> Result<(), Misfit> {
    if sizes.contains(&0) {
        return Ok(());
    }
    let mut steps = strides.zip(sizes);
    steps.sort_unstable();
    let mut span = 1_u128;
    for (stride, size) in steps.into_iter().filter(|(_, size)| *size > 1) {
        if (stride as u128) < span {
            return Err(Misfit::Overlap);
        }
        span += stride as u128 * (size as u128 - 1);
    }
    Ok(())
}
