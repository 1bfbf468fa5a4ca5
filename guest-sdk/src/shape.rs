//! The dimensions and the layout of an array.

use core::fmt;

/// The dimensions and the layout of an array.
///
/// ```
/// use callbox_guest::Operand;
///
/// let x = Operand::<f32>::new(&[0.0; 6], &[2, 3])?;
/// let shape = x.shape();
/// assert_eq!((shape.rank(), shape.dimensions()), (2, &[2, 3][..]));
/// assert!(shape.is_row_major());
/// # Ok::<(), callbox_guest::Failure>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shape<'a> {
    dimensions: &'a [i64],
    minor_to_major: &'a [i64],
}

impl<'a> Shape<'a> {
    pub(crate) const fn new(dimensions: &'a [i64], minor_to_major: &'a [i64]) -> Self {
        Self {
            dimensions,
            minor_to_major,
        }
    }

    /// Returns the row-major shape of these dimensions if their product is `count`.
    pub(crate) fn row_major(dimensions: &'a [i64], count: usize) -> Option<Self> {
        let first = DESCENDING.len().checked_sub(dimensions.len())?;
        let product = dimensions.iter().try_fold(1_usize, |product, &dimension| {
            product.checked_mul(usize::try_from(dimension).ok()?)
        });
        (product == Some(count)).then_some(Self {
            dimensions,
            minor_to_major: &DESCENDING[first..],
        })
    }

    /// Returns the dimensions in the order of the logical shape. None is negative.
    ///
    /// ```
    /// use callbox_guest::Operand;
    ///
    /// let x = Operand::<f32>::new(&[0.0; 6], &[2, 3])?;
    /// assert_eq!(x.shape().dimensions(), [2, 3]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn dimensions(self) -> &'a [i64] {
        self.dimensions
    }

    /// Returns the number of dimensions.
    ///
    /// ```
    /// use callbox_guest::Operand;
    ///
    /// let x = Operand::<f32>::new(&[0.0; 6], &[2, 3])?;
    /// assert_eq!(x.shape().rank(), 2);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn rank(self) -> usize {
        self.dimensions.len()
    }

    /// Returns the dimensions as an array: `let [rows, columns] = shape.dims();`.
    ///
    /// # Panics
    /// If the rank is not `N`.
    ///
    /// ```
    /// use callbox_guest::Operand;
    ///
    /// let x = Operand::<f32>::new(&[0.0; 6], &[2, 3])?;
    /// let [rows, columns] = x.shape().dims();
    /// assert_eq!((rows, columns), (2, 3));
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn dims<const N: usize>(self) -> [usize; N] {
        let Ok(dimensions) = <&[i64; N]>::try_from(self.dimensions) else {
            self.wrong_rank(N);
        };
        // A dimension that memory cannot have is one of an array without elements.
        dimensions.map(|dimension| usize::try_from(dimension).unwrap_or(usize::MAX))
    }

    #[cold]
    #[track_caller]
    #[allow(
        clippy::panic,
        reason = "another rank is the kernel's bug, as an index out of bounds is"
    )]
    pub(crate) fn wrong_rank(self, expected: usize) -> ! {
        panic!(
            "expected an array of rank {expected}, found {}",
            self.rank()
        )
    }

    /// Returns the layout: dimension numbers from the fastest-varying to the slowest.
    ///
    /// ```
    /// use callbox_guest::Operand;
    ///
    /// let x = Operand::<f32>::new(&[0.0; 6], &[2, 3])?;
    /// assert_eq!(x.shape().minor_to_major(), [1, 0]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn minor_to_major(self) -> &'a [i64] {
        self.minor_to_major
    }

    /// Returns whether the layout is XLA's default, in which the last dimension varies fastest.
    ///
    /// ```
    /// use callbox_guest::Operand;
    ///
    /// let x = Operand::<f32>::new(&[0.0; 6], &[2, 3])?;
    /// assert!(x.shape().is_row_major());
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub fn is_row_major(self) -> bool {
        self.minor_to_major
            .iter()
            .rev()
            .copied()
            .eq(0..self.rank() as i64)
    }
}

impl fmt::Debug for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{{{}}}",
            Dimensions(self.dimensions),
            Commas(self.minor_to_major)
        )
    }
}

/// Formats dimensions as XLA does: `[2,3]`.
#[derive(Clone, Copy)]
pub(crate) struct Dimensions<'a>(pub(crate) &'a [i64]);

impl fmt::Display for Dimensions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", Commas(self.0))
    }
}

struct Commas<'a>(&'a [i64]);

impl fmt::Display for Commas<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, number) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            number.fmt(f)?;
        }
        Ok(())
    }
}

/// A suffix of this list is the row-major layout of any rank up to the list's length.
const DESCENDING: &[i64; 64] = &{
    let mut numbers = [0; 64];
    let mut i = 0;
    while i < 64 {
        numbers[i] = 63 - i as i64;
        i += 1;
    }
    numbers
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_major_is_last_dimension_first() {
        let shape = Shape::row_major(&[2, 3, 4], 24);
        assert_eq!(shape.map(Shape::minor_to_major), Some(&[2, 1, 0][..]));
        assert!(shape.is_some_and(Shape::is_row_major));
        assert!(!Shape::new(&[2, 3], &[0, 1]).is_row_major());
        assert!(Shape::new(&[], &[]).is_row_major());
        assert!(Shape::row_major(&[], 1).is_some());
    }

    #[test]
    fn a_shape_has_as_many_elements_as_its_dimensions_say() {
        assert!(Shape::row_major(&[2, 3], 5).is_none());
        assert!(Shape::row_major(&[-2, -3], 6).is_none());
        assert!(Shape::row_major(&[0, i64::MAX], 0).is_some());
        assert!(Shape::row_major(&[i64::MAX, i64::MAX], 1).is_none());
        assert!(Shape::row_major(&[1; 65], 1).is_none());
    }
}
