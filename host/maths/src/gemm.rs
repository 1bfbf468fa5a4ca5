//! Products of matrices, in batches and with strides: `C = alpha A B + beta C`.
//!
//! This file has `unsafe` code: the crate `matrixmultiply` takes pointers. [`Operand`] and
//! [`Target`] are the proof that the elements are in bounds.

#![allow(unsafe_code, reason = "calls `matrixmultiply`, which takes pointers")]

use std::fmt;

use crate::simd::{self, Vectorized};

/// The most rows, columns and terms of a product that is computed between two pauses: as fast as a
/// larger one, and a third of a millisecond with AVX2.
const FASTEST_TILE: [usize; 3] = [256; 3];

/// The same for portable products. The number of terms is part of the results' bits: sums of so
/// many terms are added to C one after the other.
const PORTABLE_TILE: [usize; 3] = [16, 256, 256];

/// The rows that [`portable`] computes at once.
const BLOCK_ROWS: usize = 4;

/// The blocks of rows of a portable tile.
const BLOCKS: usize = PORTABLE_TILE[0].div_ceil(BLOCK_ROWS);

/// How products are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// With all that the processor has. The bits of results depend on the processor.
    Fastest,
    /// In a fixed order, without fused multiplication. NaNs in results are canonical. The bits are
    /// the same on every machine.
    Portable,
}

/// The sizes of a batch of products: `rows x depth` by `depth x columns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemm {
    /// The number of products.
    pub batch: usize,
    /// The rows of A and C.
    pub rows: usize,
    /// The columns of B and C.
    pub columns: usize,
    /// The columns of A and the rows of B.
    pub depth: usize,
    /// How products are computed.
    pub arithmetic: Arithmetic,
}

/// The distances between neighbours in a batch of matrices, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// From one matrix to the next.
    pub batch: usize,
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
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

/// A type of matrix elements.
pub trait Number: sealed::Number {}

impl Number for f32 {}
impl Number for f64 {}

/// A batch of matrices to read, all in bounds of its slice.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a, T> {
    elements: &'a [T],
    strides: Strides,
    sizes: [usize; 3],
}

/// A batch of matrices to write, all in bounds of its slice, with no two elements at one place.
#[derive(Debug)]
pub struct Target<'a, T> {
    elements: &'a mut [T],
    strides: Strides,
    sizes: [usize; 3],
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

    /// The place of an element. In bounds of a slice if [`check_end`] passed.
    #[inline]
    fn place(self, matrix: usize, row: usize, column: usize) -> usize {
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

/// The part of a product that is computed between two pauses.
#[derive(Clone, Copy)]
struct Tile {
    matrix: usize,
    /// The first row, column and term.
    at: [usize; 3],
    /// The numbers of rows, columns and terms.
    sizes: [usize; 3],
}

/// Computes `C = alpha A B + beta C` for each matrix of the batch. If `beta` is 0, C is not read.
///
/// # Errors
/// The error of `pause`.
///
/// # Panics
/// If a batch of matrices was made with other sizes than those of `gemm`.
pub fn gemm<T: Number, E>(
    gemm: Gemm,
    alpha: T,
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    beta: T,
    mut c: Target<'_, T>,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let Gemm {
        batch,
        rows,
        columns,
        depth,
        arithmetic,
    } = gemm;
    assert_eq!(a.sizes, [batch, rows, depth], "the sizes of A");
    assert_eq!(b.sizes, [batch, depth, columns], "the sizes of B");
    assert_eq!(c.sizes, [batch, rows, columns], "the sizes of C");
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let product = Scaled { alpha, a, b, beta };
    match arithmetic {
        // A product of no terms only scales C.
        Arithmetic::Fastest if depth > 0 => {
            let compute = |tile: Tile| fastest(tile, &product, &mut c);
            each_tile(gemm, FASTEST_TILE, compute, pause)
        }
        // The sums of a block fill half of AVX2's registers.
        _ if size_of::<T>() == size_of::<f32>() => in_order::<_, 16, _>(gemm, &product, c, pause),
        _ => in_order::<_, 8, _>(gemm, &product, c, pause),
    }
}

/// The operands and factors of a product.
struct Scaled<'a, T> {
    alpha: T,
    a: Operand<'a, T>,
    b: Operand<'a, T>,
    beta: T,
}

impl<T: Number> Scaled<'_, T> {
    /// The factor of C's elements before a tile: the first terms scale them, all others add.
    fn beta(&self, tile: Tile) -> T {
        let [_, _, term] = tile.at;
        if term == 0 { self.beta } else { T::ONE }
    }

    /// Writes an element of C: a sum of terms, and the element before.
    #[inline(always)]
    fn finish(&self, tile: Tile, sum: T, c: &mut T) {
        let (product, beta) = (self.alpha * sum, self.beta(tile));
        let sum = if beta == T::ZERO {
            product
        } else {
            product + beta * *c
        };
        *c = sum.canonical();
    }
}

/// Computes the tiles of each product in order, with at most `most` rows, columns and terms, and
/// pauses after each.
fn each_tile<E>(
    gemm: Gemm,
    most: [usize; 3],
    mut compute: impl FnMut(Tile),
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    for matrix in 0..gemm.batch {
        for row in (0..gemm.rows).step_by(most[0]) {
            for column in (0..gemm.columns).step_by(most[1]) {
                for term in (0..gemm.depth.max(1)).step_by(most[2]) {
                    compute(Tile {
                        matrix,
                        at: [row, column, term],
                        sizes: [
                            most[0].min(gemm.rows - row),
                            most[1].min(gemm.columns - column),
                            most[2].min(gemm.depth - term),
                        ],
                    });
                    pause()?;
                }
            }
        }
    }
    Ok(())
}

/// Computes a tile with `matrixmultiply`.
fn fastest<T: Number>(tile: Tile, product: &Scaled<'_, T>, c: &mut Target<'_, T>) {
    let [row, column, term] = tile.at;
    let [rows, columns, depth] = tile.sizes;
    let Scaled { alpha, a, b, .. } = product;
    let place_of_a = a.strides.place(tile.matrix, row, term);
    let place_of_b = b.strides.place(tile.matrix, term, column);
    let place_of_c = c.strides.place(tile.matrix, row, column);
    let first = |place: usize, elements: &[T]| elements[place..].as_ptr();
    // SAFETY: `gemm` compared the sizes with those that `Operand::new` and `Target::new` checked,
    // and the tile is within them: every element that the strides reach from the first one is in
    // bounds of its slice. No two elements of C have the same place. The three slices are borrowed,
    // C exclusively, so that C overlaps neither A nor B. Slices have at most `isize::MAX` bytes;
    // a larger stride belongs to a dimension of one element, which no step uses.
    unsafe {
        T::multiply(sealed::Product {
            sizes: [rows, depth, columns],
            alpha: *alpha,
            a: first(place_of_a, a.elements),
            a_strides: [a.strides.row as isize, a.strides.column as isize],
            b: first(place_of_b, b.elements),
            b_strides: [b.strides.row as isize, b.strides.column as isize],
            beta: product.beta(tile),
            c: c.elements[place_of_c..].as_mut_ptr(),
            c_strides: [c.strides.row as isize, c.strides.column as isize],
        });
    }
}

/// Computes products in a fixed order, with `LANES` columns at once: the terms of each element are
/// added one after the other. `matrixmultiply` would fuse multiplications with additions.
fn in_order<'a, T: Number, const LANES: usize, E>(
    gemm: Gemm,
    product: &Scaled<'a, T>,
    mut c: Target<'a, T>,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut packed = Packed {
        a: [[[T::ZERO; BLOCK_ROWS]; PORTABLE_TILE[2]]; BLOCKS],
        b: [[T::ZERO; LANES]; PORTABLE_TILE[2]],
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
/// Those past the end of the tile are any numbers, and their sums are not used.
struct Packed<T, const LANES: usize> {
    a: [[[T; BLOCK_ROWS]; PORTABLE_TILE[2]]; BLOCKS],
    b: [[T; LANES]; PORTABLE_TILE[2]],
}

/// Computes a tile by blocks of [`BLOCK_ROWS`] rows and `LANES` columns, whose sums fit into
/// registers. The sizes of blocks do not change the order of the terms.
struct InOrder<'a, 'b, T, const LANES: usize> {
    tile: Tile,
    product: &'a Scaled<'b, T>,
    packed: &'a mut Packed<T, LANES>,
    c: &'a mut Target<'b, T>,
}

impl<T: Number, const LANES: usize> Vectorized for InOrder<'_, '_, T, LANES> {
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
                packed[i % BLOCK_ROWS] = a.elements[a.strides.place(tile.matrix, row + i, term)];
            }
        }
        for first in (0..columns).step_by(LANES) {
            let lanes = LANES.min(columns - first);
            for (packed, term) in packed.b[..depth].iter_mut().zip(term..) {
                let place = b.strides.place(tile.matrix, term, column + first);
                let dense = b.elements.get(place..place + LANES);
                if let (1, Some(dense)) = (b.strides.column, dense) {
                    packed.copy_from_slice(dense);
                } else {
                    for (lane, packed) in packed[..lanes].iter_mut().enumerate() {
                        *packed = b.elements[place + lane * b.strides.column];
                    }
                }
            }
            for (block, of_a) in packed.a[..rows.div_ceil(BLOCK_ROWS)].iter().enumerate() {
                let sums = block_sums(&of_a[..depth], &packed.b[..depth]);
                for (i, sums) in (block * BLOCK_ROWS..rows).zip(sums) {
                    for (sum, column) in sums[..lanes].iter().zip(column + first..) {
                        let place = c.strides.place(tile.matrix, row + i, column);
                        product.finish(tile, *sum, &mut c.elements[place]);
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

mod sealed {
    use std::ops::{Add, Mul};

    /// The arguments of `matrixmultiply`'s functions.
    pub struct Product<T> {
        /// The rows, terms and columns.
        pub sizes: [usize; 3],
        pub alpha: T,
        pub a: *const T,
        pub a_strides: [isize; 2],
        pub b: *const T,
        pub b_strides: [isize; 2],
        pub beta: T,
        pub c: *mut T,
        pub c_strides: [isize; 2],
    }

    pub trait Number: Copy + PartialEq + Add<Output = Self> + Mul<Output = Self> + 'static {
        const ZERO: Self;
        const ONE: Self;

        fn canonical(self) -> Self;

        /// # Safety
        /// Every element that the sizes and strides reach from the pointers must be valid, C's for
        /// writing, at places of their own, and not among A's or B's.
        unsafe fn multiply(product: Product<Self>);
    }

    macro_rules! number {
        ($type:ident, $nan:literal, $function:ident) => {
            impl Number for $type {
                const ZERO: Self = 0.0;
                const ONE: Self = 1.0;

                #[inline(always)]
                fn canonical(self) -> Self {
                    Self::from_bits(if self.is_nan() { $nan } else { self.to_bits() })
                }

                unsafe fn multiply(product: Product<Self>) {
                    let Product {
                        sizes: [m, k, n],
                        alpha,
                        a,
                        a_strides: [rsa, csa],
                        b,
                        b_strides: [rsb, csb],
                        beta,
                        c,
                        c_strides: [rsc, csc],
                    } = product;
                    // SAFETY: the caller's promise is the one that the function asks for.
                    unsafe {
                        matrixmultiply::$function(
                            m, k, n, alpha, a, rsa, csa, b, rsb, csb, beta, c, rsc, csc,
                        );
                    }
                }
            }
        };
    }

    number!(f32, 0x7fc0_0000, sgemm);
    number!(f64, 0x7ff8_0000_0000_0000, dgemm);
}
