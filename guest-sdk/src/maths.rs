//! Mathematics that the host computes, with the machine's widest vectors.
//!
//! A WebAssembly vector has 128 bits. These functions let the host compute on slices of the guest's
//! memory instead, at the speed of native code:
//!
//! ```
//! use callbox_guest::maths::{self, Elementwise};
//!
//! let x = [0.0_f32, 1.0];
//! let mut y = [0.0; 2];
//! maths::map(Elementwise::Exp, &x, &mut y);
//! assert_eq!(y, [1.0, core::f32::consts::E]);
//!
//! // [[1, 2], [3, 4]] times [[5], [6]]
//! let mut product = [0.0_f32; 2];
//! maths::matmul(&[1.0_f32, 2.0, 3.0, 4.0], &[5.0, 6.0], &mut product, [2, 2, 1]);
//! assert_eq!(product, [17.0, 39.0]);
//! ```
//!
//! `wit/maths/callbox-maths.wit` is the contract, with the accuracy of each function. A module that
//! uses one is refused where the policy withholds mathematics, and by a host that has none.
//!
//! [`max`], [`min`] and [`round`] compute one element, in the guest: any policy takes them.
//!
//! In native builds the functions run the same code as the host in its deterministic mode.
//!
//! # Panics
//!
//! The lengths of slices must fit each other, as each function says. Natively, a function panics if
//! they do not. In a module, the host ends the call with INVALID_ARGUMENT.

mod batch;
#[cfg(not(target_arch = "wasm32"))]
mod portable;
mod selected;

#[cfg(not(target_arch = "wasm32"))]
use portable as machine;

#[cfg(target_arch = "wasm32")]
use crate::abi::maths as machine;

#[doc(inline)]
pub use callbox_abi::{Elementwise, Order, Reduction};

pub use batch::{Sizes, Strides};
pub use selected::{Real, max, min, round};

use callbox_abi::{Convertible, Number, Transform};

use crate::abi::{bytes, bytes_mut, elements, elements_mut};
use crate::{Bf16, C64, C128, F16};

/// A type of the elements of arrays: [`f32`] or [`f64`]. Products of such matrices have the same
/// type.
///
/// ```
/// use callbox_guest::maths::{self, MatrixElement, Reduction};
///
/// fn sum<T: MatrixElement + Default>(row: &[T]) -> T {
///     let mut sum = [T::default()];
///     maths::reduce_rows(Reduction::Sum, row, &mut sum);
///     sum[0]
/// }
///
/// assert_eq!((sum(&[1.0_f32, 2.0]), sum(&[0.5_f64])), (3.0, 0.5));
/// ```
pub trait MatrixElement: Factor<Sum = Self> + Into<f64> + sealed::Sealed {}

impl MatrixElement for f32 {}
impl MatrixElement for f64 {}

/// A type of the elements of matrices that [`gemm`] multiplies: [`f32`], [`f64`], [`F16`],
/// [`Bf16`] or [`i8`].
///
/// ```
/// use callbox_guest::maths::{self, Factor};
///
/// fn square<T: Factor<Sum: Default + From<u8>>>(x: T) -> T::Sum {
///     let mut product = [T::Sum::default()];
///     maths::matmul(&[x], &[x], &mut product, [1, 1, 1]);
///     product[0]
/// }
///
/// assert_eq!((square(3_i8), square(0.5_f64)), (9_i32, 0.25));
/// ```
pub trait Factor: crate::Element + sealed::Multiplied {
    /// The type of the elements of the product: [`f32`], [`f64`], or [`i32`] for [`i8`].
    type Sum: crate::Element + Into<f64>;

    /// The type's number in the contract.
    #[doc(hidden)]
    const NUMBER: Number;

    /// The type's format in the host's code.
    #[doc(hidden)]
    #[cfg(not(target_arch = "wasm32"))]
    type Format: callbox_maths::gemm::Format<Sum = Self::Sum>;

    /// A slice as the host's code takes it.
    #[doc(hidden)]
    #[cfg(not(target_arch = "wasm32"))]
    fn stored(x: &[Self]) -> &[<Self::Format as callbox_maths::gemm::Format>::Stored];
}

macro_rules! factors {
    ($($type:ty: $number:ident, $format:ty, $sum:ty;)*) => {$(
        impl sealed::Multiplied for $type {}

        impl Factor for $type {
            type Sum = $sum;
            const NUMBER: Number = Number::$number;

            #[cfg(not(target_arch = "wasm32"))]
            type Format = $format;

            #[cfg(not(target_arch = "wasm32"))]
            fn stored(x: &[Self]) -> &[<$format as callbox_maths::gemm::Format>::Stored] {
                elements(bytes(x)).unwrap_or_default()
            }
        }
    )*};
}

factors! {
    f32: F32, f32, f32;
    f64: F64, f64, f64;
    F16: F16, callbox_maths::gemm::F16, f32;
    Bf16: Bf16, callbox_maths::gemm::Bf16, f32;
    i8: S8, i8, i32;
}

#[cfg(not(target_arch = "wasm32"))]
mod sealed {
    use callbox_maths::convert::{Source, Target};

    use crate::{Bf16, F16, abi};

    /// A slice as the host's function takes it.
    pub trait Converted: Sized {
        fn source(x: &[Self]) -> Option<Source<'_>>;
        fn target(y: &mut [Self]) -> Option<Target<'_>>;
    }

    macro_rules! converted {
        ($($type:ty: $variant:ident,)*) => {$(
            impl Converted for $type {
                fn source(x: &[Self]) -> Option<Source<'_>> {
                    abi::elements(abi::bytes(x)).map(Source::$variant)
                }

                fn target(y: &mut [Self]) -> Option<Target<'_>> {
                    abi::elements_mut(abi::bytes_mut(y)).map(Target::$variant)
                }
            }
        )*};
    }

    converted! { f32: F32, F16: F16, Bf16: Bf16, i8: S8, }

    pub trait Multiplied {}

    pub trait Sealed: callbox_maths::sort::Sortable + callbox_maths::elementwise::Element {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

#[cfg(target_arch = "wasm32")]
mod sealed {
    use crate::{Bf16, F16};

    pub trait Converted {}
    impl Converted for f32 {}
    impl Converted for F16 {}
    impl Converted for Bf16 {}
    impl Converted for i8 {}

    pub trait Multiplied {}

    pub trait Sealed: crate::abi::maths::Rows {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A type that [`convert`] takes: [`f32`], [`F16`], [`Bf16`] or [`i8`].
///
/// ```
/// use callbox_guest::maths::{self, Converted};
///
/// fn as_f32<T: Converted>(x: T) -> f32 {
///     let mut y = [0.0];
///     maths::convert(&[x], &mut y);
///     y[0]
/// }
///
/// assert_eq!(as_f32(-3_i8), -3.0);
/// ```
pub trait Converted: crate::Element + sealed::Converted {
    /// The type's number in the contract.
    #[doc(hidden)]
    const NUMBER: Convertible;
}

impl Converted for f32 {
    const NUMBER: Convertible = Convertible::F32;
}

impl Converted for F16 {
    const NUMBER: Convertible = Convertible::F16;
}

impl Converted for Bf16 {
    const NUMBER: Convertible = Convertible::Bf16;
}

impl Converted for i8 {
    const NUMBER: Convertible = Convertible::S8;
}

/// A type of complex numbers: [`C64`] or [`C128`].
///
/// ```
/// use callbox_guest::C64;
/// use callbox_guest::maths::{self, Complex};
///
/// fn constant_part<C: Complex + Default>(x: &[C::Part]) -> C {
///     let mut y = vec![C::default(); x.len() / 2 + 1];
///     maths::real_fft_rows(x, x.len(), &mut y);
///     y[0]
/// }
///
/// assert_eq!(constant_part::<C64>(&[1.0, 2.0]).re, 3.0);
/// ```
pub trait Complex: crate::Element {
    /// The type of the parts: [`f32`] or [`f64`].
    type Part: MatrixElement;
}

impl Complex for C64 {
    type Part = f32;
}

impl Complex for C128 {
    type Part = f64;
}

/// Writes the function of each element of `x` to `y`, which is as long.
///
/// ```
/// use callbox_guest::maths::{self, Elementwise};
///
/// let mut y = [0.0; 2];
/// maths::map(Elementwise::Tanh, &[0.0_f32, 100.0], &mut y);
/// assert_eq!(y, [0.0, 1.0]);
/// ```
pub fn map<T: MatrixElement>(function: Elementwise, x: &[T], y: &mut [T]) {
    machine::map(function, x, y);
}

/// Replaces each element of `y` by the function of it.
///
/// ```
/// use callbox_guest::maths::{self, Elementwise};
///
/// let mut y = [0.0_f64, 1.0];
/// maths::map_in_place(Elementwise::Log, &mut y);
/// assert_eq!(y, [f64::NEG_INFINITY, 0.0]);
/// ```
pub fn map_in_place<T: MatrixElement>(function: Elementwise, y: &mut [T]) {
    machine::map_in_place(function, y);
}

/// Converts each element of `x`, and writes it to `y`, which has as many.
///
/// [`F16`] and [`Bf16`] get the nearest number, and of two equally near ones the even one. [`i8`]
/// gets the integer towards zero, or the nearest integer for a number out of its range, and 0 for
/// NaN.
///
/// ```
/// use callbox_guest::{F16, maths};
///
/// let mut y = [F16::default(); 2];
/// maths::convert(&[1.5_f32, 65520.0], &mut y);
/// assert_eq!(y.map(F16::to_bits), [0x3e00, 0x7c00]);
/// ```
pub fn convert<S: Converted, T: Converted>(x: &[S], y: &mut [T]) {
    machine::convert(x, y);
}

/// Writes the softmax of each row of `columns` elements of `x` to `y`, which is as long.
///
/// ```
/// use callbox_guest::maths;
///
/// let mut y = [0.0; 4];
/// maths::softmax_rows(&[1.0_f32, 1.0, 0.0, f32::NEG_INFINITY], 2, &mut y);
/// assert_eq!(y, [0.5, 0.5, 1.0, 0.0]);
/// ```
pub fn softmax_rows<T: MatrixElement>(x: &[T], columns: usize, y: &mut [T]) {
    machine::softmax_rows(x, columns, y);
}

/// Replaces each row of `columns` elements of `y` by its softmax.
///
/// ```
/// use callbox_guest::maths;
///
/// let mut y = [3.0_f64, 3.0];
/// maths::softmax_rows_in_place(2, &mut y);
/// assert_eq!(y, [0.5, 0.5]);
/// ```
pub fn softmax_rows_in_place<T: MatrixElement>(columns: usize, y: &mut [T]) {
    machine::softmax_rows_in_place(columns, y);
}

/// Writes the function of each row of `x` to `y`, which has one element for each row. The rows are
/// equally long.
///
/// ```
/// use callbox_guest::maths::{self, Reduction};
///
/// let mut greatest = [0.0; 2];
/// maths::reduce_rows(Reduction::Max, &[1.0_f32, 2.0, -1.0, -2.0], &mut greatest);
/// assert_eq!(greatest, [2.0, -1.0]);
/// ```
pub fn reduce_rows<T: MatrixElement>(function: Reduction, x: &[T], y: &mut [T]) {
    machine::reduce_rows(function, x, y);
}

/// Writes the dot product of each row of `a` with the row of `b` to `y`, which has one element for
/// each row. `a` and `b` are as long as each other.
///
/// ```
/// use callbox_guest::maths;
///
/// let mut products = [0.0; 2];
/// maths::dot_rows(&[1.0_f32, 2.0, 3.0, 4.0], &[1.0, 1.0, 2.0, 2.0], &mut products);
/// assert_eq!(products, [3.0, 14.0]);
/// ```
pub fn dot_rows<T: MatrixElement>(a: &[T], b: &[T], y: &mut [T]) {
    machine::dot_rows(a, b, y);
}

/// Writes the positions of the first elements of each row of `columns` elements of `x`, in this
/// order, to a row of `positions`, whose rows are equally long and have at most `columns` elements.
///
/// NaNs are greater than every other element. Equal elements are in the order of their positions.
///
/// ```
/// use callbox_guest::maths::{self, Order};
///
/// let mut positions = [0; 4];
/// maths::argsort_rows(Order::Ascending, &[2.0_f32, -1.0, 2.0, 0.5], 4, &mut positions);
/// assert_eq!(positions, [1, 3, 0, 2]);
/// ```
pub fn argsort_rows<T: MatrixElement>(
    order: Order,
    x: &[T],
    columns: usize,
    positions: &mut [i32],
) {
    machine::argsort_rows(order, x, columns, positions);
}

/// Writes the greatest elements of each row of `columns` elements of `x` to a row of `values`, the
/// greatest first, and their positions to `positions`, which is as long as `values`.
///
/// NaNs are greater than every other element. Equal elements are in the order of their positions.
///
/// ```
/// use callbox_guest::maths;
///
/// let (mut values, mut positions) = ([0.0; 2], [0; 2]);
/// maths::top_k_rows(&[2.0_f32, -1.0, 3.0, 0.5], 4, &mut values, &mut positions);
/// assert_eq!((values, positions), ([3.0, 2.0], [2, 0]));
/// ```
pub fn top_k_rows<T: MatrixElement>(
    x: &[T],
    columns: usize,
    values: &mut [T],
    positions: &mut [i32],
) {
    assert_eq!(values.len(), positions.len(), "the lengths of the results");
    argsort_rows(Order::Descending, x, columns, positions);
    let rows = x.len().checked_div(columns).unwrap_or(0);
    let kept = values.len().checked_div(rows).unwrap_or(0).max(1);
    let found = positions.chunks(kept).zip(values.chunks_mut(kept));
    for (row, (positions, values)) in x.chunks(columns.max(1)).zip(found) {
        for (value, &position) in values.iter_mut().zip(positions) {
            *value = row[position as usize];
        }
    }
}

/// Writes the discrete Fourier transform of each row of `points` numbers of `x`, at most 65536, to
/// a row of `y`, which is as long.
///
/// ```
/// use callbox_guest::{C64, maths};
///
/// let x = [1.0, 2.0].map(|re| C64 { re, im: 0.0 });
/// let mut y = x;
/// maths::fft_rows(&x, 2, &mut y);
/// assert_eq!(y.map(|y| y.re), [3.0, -1.0]);
/// ```
pub fn fft_rows<C: Complex>(x: &[C], points: usize, y: &mut [C]) {
    transform_rows::<C::Part, _, _>(Transform::Forward, x, points, y);
}

/// The inverse of [`fft_rows`].
///
/// ```
/// use callbox_guest::{C64, maths};
///
/// let x = [3.0, -1.0].map(|re| C64 { re, im: 0.0 });
/// let mut y = x;
/// maths::inverse_fft_rows(&x, 2, &mut y);
/// assert_eq!(y.map(|y| y.re), [1.0, 2.0]);
/// ```
pub fn inverse_fft_rows<C: Complex>(x: &[C], points: usize, y: &mut [C]) {
    transform_rows::<C::Part, _, _>(Transform::Inverse, x, points, y);
}

/// Writes the first `points / 2 + 1` numbers of the discrete Fourier transform of each row of
/// `points` numbers of `x`, at most 65536, to a row of `y`.
///
/// ```
/// use callbox_guest::{C64, maths};
///
/// let mut y = [C64::default(); 2];
/// maths::real_fft_rows(&[1.0, 2.0], 2, &mut y);
/// assert_eq!(y.map(|y| y.re), [3.0, -1.0]);
/// ```
pub fn real_fft_rows<C: Complex>(x: &[C::Part], points: usize, y: &mut [C]) {
    transform_rows::<C::Part, _, _>(Transform::RealForward, x, points, y);
}

/// The inverse of [`real_fft_rows`], to rows of `points` numbers.
///
/// ```
/// use callbox_guest::{C64, maths};
///
/// let mut y = [0.0; 2];
/// maths::inverse_real_fft_rows(&[3.0, -1.0].map(|re| C64 { re, im: 0.0 }), 2, &mut y);
/// assert_eq!(y, [1.0, 2.0]);
/// ```
pub fn inverse_real_fft_rows<C: Complex>(x: &[C], points: usize, y: &mut [C::Part]) {
    transform_rows::<C::Part, _, _>(Transform::RealInverse, x, points, y);
}

fn transform_rows<T: MatrixElement, X: crate::Element, Y: crate::Element>(
    transform: Transform,
    x: &[X],
    points: usize,
    y: &mut [Y],
) {
    // A complex number is as aligned as its parts.
    if let (Some(x), Some(y)) = (elements::<T>(bytes(x)), elements_mut(bytes_mut(y))) {
        machine::fft_rows(transform, x, points, y);
    }
}

/// Divides each row of `x` by `sqrt(mean(x^2) + eps)`, multiplies it by `weight`, and writes it to
/// `y`, which is as long as `x`. A row is as long as `weight`.
///
/// ```
/// use callbox_guest::maths;
///
/// let mut y = [0.0; 2];
/// maths::rms_norm_rows(&[2.0, -2.0], &[1.0, 3.0], 0.0, &mut y);
/// assert_eq!(y, [1.0, -3.0]);
/// ```
pub fn rms_norm_rows(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    machine::rms_norm_rows(x, weight, eps, y);
}

/// The gradient of [`rms_norm_rows`] of `x`, `weight` and `eps`, for the cotangent `dy` of its
/// result: writes the cotangent of `x` to `dx`, and adds the cotangent of `weight` to `dweight`.
///
/// ```
/// use callbox_guest::maths;
///
/// let (x, weight, dy) = ([2.0, -2.0], [1.0, 1.0], [1.0, 1.0]);
/// let (mut dx, mut dweight) = ([0.0; 2], [0.0; 2]);
/// maths::rms_norm_rows_gradient([&x, &weight, &dy], 0.0, &mut dx, &mut dweight);
/// assert_eq!((dx, dweight), ([0.5, 0.5], [1.0, -1.0]));
/// ```
pub fn rms_norm_rows_gradient(
    [x, weight, dy]: [&[f32]; 3],
    eps: f32,
    dx: &mut [f32],
    dweight: &mut [f64],
) {
    machine::rms_norm_rows_gradient([x, weight, dy], eps, dx, dweight);
}

/// Computes `c = alpha a b + beta c` for each matrix of a batch. If `beta` is 0, `c` is not read.
///
/// The slices have all elements that the strides reach, and no two elements of `c` have the same
/// place. Products of [`F16`] and [`Bf16`] are computed in [`f32`]. Those of [`i8`] are exact in
/// [`i32`], where they wrap around.
///
/// ```
/// use callbox_guest::maths::{self, Sizes, Strides};
///
/// // The transpose of [[1, 2], [3, 4]] times [[1], [1]], added to [[10], [10]].
/// let sizes = Sizes { batch: 1, rows: 2, columns: 1, depth: 2 };
/// let a = (&[1.0_f32, 2.0, 3.0, 4.0][..], Strides::row_major(2, 2).transposed());
/// let column = Strides::row_major(2, 1);
/// let mut c = [10.0; 2];
/// maths::gemm(sizes, 1.0, a, (&[1.0, 1.0], column), 1.0, (&mut c, column));
/// assert_eq!(c, [14.0, 16.0]);
/// ```
pub fn gemm<T: Factor>(
    sizes: Sizes,
    alpha: T::Sum,
    (a, a_strides): (&[T], Strides),
    (b, b_strides): (&[T], Strides),
    beta: T::Sum,
    (c, c_strides): (&mut [T::Sum], Strides),
) {
    machine::gemm(
        sizes,
        alpha,
        (a, a_strides),
        (b, b_strides),
        beta,
        (c, c_strides),
    );
}

/// Writes the product of two dense row-major matrices to `c`, with the sizes
/// `[rows, depth, columns]`.
///
/// ```
/// use callbox_guest::maths;
///
/// let mut product = [0; 1];
/// maths::matmul(&[100_i8, -100], &[100, 100], &mut product, [1, 2, 1]);
/// assert_eq!(product, [0]);
/// ```
pub fn matmul<T: Factor<Sum: Default + From<u8>>>(
    a: &[T],
    b: &[T],
    c: &mut [T::Sum],
    [rows, depth, columns]: [usize; 3],
) {
    let sizes = Sizes {
        batch: 1,
        rows,
        columns,
        depth,
    };
    gemm(
        sizes,
        T::Sum::from(1),
        (a, Strides::row_major(rows, depth)),
        (b, Strides::row_major(depth, columns)),
        T::Sum::default(),
        (c, Strides::row_major(rows, columns)),
    );
}
