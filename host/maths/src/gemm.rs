//! Products of matrices, in batches and with strides: `C = alpha A B + beta C`.
//!
//! Elements narrower than F32 are widened to F32, tile by tile. Sums of S8 are exact: a tile has at
//! most 256 terms of at most 2^14, whose sum is an integer of F32.
//!
//! This file has `unsafe` code: the crate `matrixmultiply` takes pointers.

#![allow(unsafe_code, reason = "calls `matrixmultiply`, which takes pointers")]

mod dots;
mod formats;
mod in_order;
mod matrices;
mod packed;

use self::dots::Dots;
pub use self::formats::{Bf16, F16, Format, Number, Sum};
use self::in_order::in_order;
pub use self::matrices::{Misfit, Operand, Strides, Target};
use self::packed::{Buffers, View};

/// The most rows, columns and terms of a product that is computed between two pauses: as fast as a
/// larger one, and a third of a millisecond with AVX2.
const FASTEST_TILE: [usize; 3] = [256; 3];

/// The most rows, columns and terms of a sparse matrix in a tile. Each of its elements may lie in a
/// page of its own, which the system makes when it is first touched, in about a microsecond: a
/// product of 256 rows and columns took up to 400 ms.
const FASTEST_SPARSE_SIDE: usize = 16;

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
    c: Target<'_, T>,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    gemm_of::<T, E>(gemm, alpha, a, b, beta, c, pause)
}

/// [`gemm()`] of elements of any format. Sums of S8 wrap around.
///
/// # Errors
/// As for [`gemm()`].
///
/// # Panics
/// As for [`gemm()`].
pub fn gemm_of<F: Format, E>(
    gemm: Gemm,
    alpha: F::Sum,
    a: Operand<'_, F::Stored>,
    b: Operand<'_, F::Stored>,
    beta: F::Sum,
    mut c: Target<'_, F::Sum>,
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
    let product = Scaled::<F> { alpha, a, b, beta };
    match arithmetic {
        // A product of no terms only scales C.
        Arithmetic::Fastest if depth > 0 => {
            let mut buffers = Buffers::default();
            let most = tile_of(FASTEST_TILE, FASTEST_SPARSE_SIDE, &product, &c);
            let compute = |tile: Tile| fastest(tile, &product, &mut buffers, &mut c);
            each_tile(gemm, most, compute, pause)
        }
        _ => in_order(gemm, &product, c, pause),
    }
}

/// The operands and factors of a product.
struct Scaled<'a, F: Format> {
    alpha: F::Sum,
    a: Operand<'a, F::Stored>,
    b: Operand<'a, F::Stored>,
    beta: F::Sum,
}

impl<F: Format> Scaled<'_, F> {
    /// The factor of C's elements before a tile: the first terms scale them, all others add.
    fn beta(&self, tile: Tile) -> F::Sum {
        let [_, _, term] = tile.at;
        if term == 0 { self.beta } else { F::Sum::ONE }
    }
}

/// The most rows, columns and terms of a tile: `most`, and `side` along sparse matrices.
fn tile_of<F: Format>(
    most: [usize; 3],
    side: usize,
    Scaled { a, b, .. }: &Scaled<'_, F>,
    c: &Target<'_, F::Sum>,
) -> [usize; 3] {
    let cut = |most: usize, is_sparse| if is_sparse { most.min(side) } else { most };
    let [a, b] = [a, b].map(|x| x.strides.is_sparse(x.sizes, size_of::<F::Stored>()));
    let c = c.strides.is_sparse(c.sizes, size_of::<F::Sum>());
    let [rows, columns, depth] = most;
    [cut(rows, a || c), cut(columns, b || c), cut(depth, a || b)]
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
fn fastest<F: Format>(
    tile: Tile,
    product: &Scaled<'_, F>,
    buffers: &mut Buffers<F::Wide>,
    c: &mut Target<'_, F::Sum>,
) {
    let [row, column, term] = tile.at;
    let [rows, columns, depth] = tile.sizes;
    let Buffers { a, b, sums } = buffers;
    let dots = Dots::of(product, tile);
    if let Some(dots) = dots {
        sums.resize(rows * columns, F::Wide::ZERO);
        dots.compute(sums);
        return add(tile, product, sums, c);
    }
    let a = View::of::<F>(product.a, [tile.matrix, row, term], [rows, depth], a);
    let b = View::of::<F>(product.b, [tile.matrix, term, column], [depth, columns], b);
    let (alpha, beta) = (product.alpha, product.beta(tile));
    let strides = c.strides;
    let first = strides.place(tile.matrix, row, column);
    if let Some(c) = F::Sum::as_wide(&mut c.elements[first..]) {
        let strides = [strides.row, strides.column];
        // SAFETY: no two elements of C have the same place: `Target::new` checked it.
        unsafe { multiply(tile.sizes, alpha.wide(), a, b, beta.wide(), c, strides) }
        return;
    }
    sums.resize(rows * columns, F::Wide::ZERO);
    let (one, zero) = (F::Wide::ONE, F::Wide::ZERO);
    // SAFETY: the strides of a dense matrix give each element a place of its own.
    unsafe { multiply(tile.sizes, one, a, b, zero, sums, [columns, 1]) }
    add(tile, product, sums, c);
}

/// Adds the sums of a tile's terms to C.
fn add<F: Format>(
    tile: Tile,
    product: &Scaled<'_, F>,
    sums: &[F::Wide],
    c: &mut Target<'_, F::Sum>,
) {
    let [row, column, _] = tile.at;
    let (alpha, beta) = (product.alpha, product.beta(tile));
    for (i, sums) in sums.chunks_exact(tile.sizes[1]).enumerate() {
        let strides = c.strides;
        let c = &mut c.elements[strides.place(tile.matrix, row + i, column)..];
        for (j, sum) in sums.iter().enumerate() {
            let c = &mut c[j * strides.column];
            *c = F::Sum::finish(alpha, *sum, beta, *c);
        }
    }
}

/// Computes `C = alpha A B + beta C`, with the rows, columns and terms of `sizes`.
///
/// # Safety
/// The strides must give each element of C a place of its own.
unsafe fn multiply<T: Number>(
    [rows, columns, depth]: [usize; 3],
    alpha: T,
    a: View<'_, T>,
    b: View<'_, T>,
    beta: T,
    c: &mut [T],
    c_strides: [usize; 2],
) {
    check_end(a.elements, [rows, depth], a.strides);
    check_end(b.elements, [depth, columns], b.strides);
    check_end(c, [rows, columns], c_strides);
    // SAFETY: every element that the strides reach from the first one is in bounds of its slice:
    // `check_end` checked it. No two elements of C have the same place: the caller's promise. The
    // slices are borrowed, C exclusively, so that C overlaps neither A nor B. Slices have at most
    // `isize::MAX` bytes; a larger stride belongs to a dimension of one element, which no step
    // uses.
    unsafe {
        T::multiply(sealed::Product {
            sizes: [rows, depth, columns],
            alpha,
            a: a.elements.as_ptr(),
            a_strides: a.strides.map(|stride| stride as isize),
            b: b.elements.as_ptr(),
            b_strides: b.strides.map(|stride| stride as isize),
            beta,
            c: c.as_mut_ptr(),
            c_strides: c_strides.map(|stride| stride as isize),
        });
    }
}

/// Checks that a matrix of one element or more ends in bounds.
fn check_end<T>(elements: &[T], [rows, columns]: [usize; 2], strides: [usize; 2]) {
    let steps = [(rows, strides[0]), (columns, strides[1])];
    let last = steps.map(|(size, stride)| (size as u128 - 1) * stride as u128);
    let end = last[0].saturating_add(last[1]);
    assert!(end < elements.len() as u128, "a matrix past its slice");
}

mod sealed {
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

    pub trait Multiply: Sized {
        /// # Safety
        /// Every element that the sizes and strides reach from the pointers must be valid, C's for
        /// writing, at places of their own, and not among A's or B's.
        unsafe fn multiply(product: Product<Self>);
    }

    macro_rules! multiply {
        ($type:ident, $function:ident) => {
            impl Multiply for $type {
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

    multiply!(f32, sgemm);
    multiply!(f64, dgemm);
}
