//! Products of matrices, in batches and with strides: `C = alpha A B + beta C`.
//!
//! This file has `unsafe` code: the crate `matrixmultiply` takes pointers. [`Operand`] and
//! [`Target`] are the proof that the elements are in bounds.

#![allow(unsafe_code, reason = "calls `matrixmultiply`, which takes pointers")]

mod in_order;
mod matrices;

use self::in_order::in_order;
pub use self::matrices::{Misfit, Operand, Strides, Target};

/// The most rows, columns and terms of a product that is computed between two pauses: as fast as a
/// larger one, and a third of a millisecond with AVX2.
const FASTEST_TILE: [usize; 3] = [256; 3];

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

/// A type of matrix elements.
pub trait Number: sealed::Number {}

impl Number for f32 {}
impl Number for f64 {}

/// The part of a product that is computed between two pauses.
#[derive(Clone, Copy)]
struct Tile {
    matrix: usize,
    /// The indices of the first row, column and term.
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
