//! Batches of matrices: their sizes and strides.

/// The sizes of a batch of products of matrices: `rows x depth` by `depth x columns`.
///
/// ```
/// use callbox_guest::maths::{self, Sizes, Strides};
///
/// // Two products of a row and a column.
/// let sizes = Sizes { batch: 2, rows: 1, columns: 1, depth: 2 };
/// let (a, b) = ([1.0_f32, 2.0, 3.0, 4.0], [1.0, 1.0, 10.0, 10.0]);
/// let (row, column) = (Strides::row_major(1, 2), Strides::row_major(2, 1));
/// let mut c = [0.0; 2];
/// maths::gemm(sizes, 1.0, (&a, row), (&b, column), 0.0, (&mut c, Strides::row_major(1, 1)));
/// assert_eq!(c, [3.0, 70.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The number of products.
    pub batch: usize,
    /// The rows of `a` and `c`.
    pub rows: usize,
    /// The columns of `b` and `c`.
    pub columns: usize,
    /// The columns of `a` and the rows of `b`.
    pub depth: usize,
}

/// The elements between neighbours in a batch of matrices.
///
/// ```
/// use callbox_guest::maths::Strides;
///
/// let of_rows = Strides::row_major(2, 3);
/// assert_eq!(of_rows, Strides { batch: 6, row: 3, column: 1 });
/// assert_eq!(of_rows.transposed(), Strides { batch: 6, row: 1, column: 3 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// From one matrix to the next. 0 uses one matrix for the whole batch.
    pub batch: usize,
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
    pub column: usize,
}

impl Strides {
    /// The strides of dense row-major matrices.
    ///
    /// ```
    /// use callbox_guest::maths::Strides;
    ///
    /// assert_eq!(Strides::row_major(2, 3), Strides { batch: 6, row: 3, column: 1 });
    /// ```
    #[must_use]
    pub const fn row_major(rows: usize, columns: usize) -> Self {
        Self {
            batch: rows * columns,
            row: columns,
            column: 1,
        }
    }

    /// The strides of the transposes of these matrices.
    ///
    /// ```
    /// use callbox_guest::maths::Strides;
    ///
    /// let columns_first = Strides::row_major(2, 3).transposed();
    /// assert_eq!((columns_first.row, columns_first.column), (1, 3));
    /// ```
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self {
            batch: self.batch,
            row: self.column,
            column: self.row,
        }
    }
}
