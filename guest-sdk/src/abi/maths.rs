//! The host's mathematics, on slices of the module's memory.

use callbox_abi::{Elementwise, List, Matrices, Order, Product, Reduction, Transform};

use super::{bytes, bytes_mut};
use crate::maths::{Converted, Factor, Sizes, Strides};

mod imports {
    use callbox_abi::Product;

    #[link(wasm_import_module = "callbox:ffi/maths@1.0.0")]
    unsafe extern "C" {
        pub(crate) fn map(function: u32, x: *const f32, x_len: usize, y: *mut f32, y_len: usize);
        #[link_name = "map-f64"]
        pub(crate) fn map_f64(
            function: u32,
            x: *const f64,
            x_len: usize,
            y: *mut f64,
            y_len: usize,
        );
        pub(crate) fn convert(
            source: u32,
            x: *const u8,
            x_len: usize,
            target: u32,
            y: *mut u8,
            y_len: usize,
        );
        #[link_name = "softmax-rows"]
        pub(crate) fn softmax_rows(
            x: *const f32,
            x_len: usize,
            columns: usize,
            y: *mut f32,
            y_len: usize,
        );
        #[link_name = "reduce-rows"]
        pub(crate) fn reduce_rows(
            function: u32,
            x: *const f32,
            x_len: usize,
            y: *mut f32,
            y_len: usize,
        );
        #[link_name = "dot-rows"]
        pub(crate) fn dot_rows(
            a: *const f32,
            a_len: usize,
            b: *const f32,
            b_len: usize,
            y: *mut f32,
            y_len: usize,
        );
        #[link_name = "softmax-rows-f64"]
        pub(crate) fn softmax_rows_f64(
            x: *const f64,
            x_len: usize,
            columns: usize,
            y: *mut f64,
            y_len: usize,
        );
        #[link_name = "reduce-rows-f64"]
        pub(crate) fn reduce_rows_f64(
            function: u32,
            x: *const f64,
            x_len: usize,
            y: *mut f64,
            y_len: usize,
        );
        #[link_name = "dot-rows-f64"]
        pub(crate) fn dot_rows_f64(
            a: *const f64,
            a_len: usize,
            b: *const f64,
            b_len: usize,
            y: *mut f64,
            y_len: usize,
        );
        #[link_name = "rms-norm-rows"]
        pub(crate) fn rms_norm_rows(
            x: *const f32,
            x_len: usize,
            weight: *const f32,
            weight_len: usize,
            y: *mut f32,
            y_len: usize,
            eps: f32,
        );
        #[link_name = "rms-norm-rows-gradient"]
        pub(crate) fn rms_norm_rows_gradient(
            x: *const f32,
            x_len: usize,
            weight: *const f32,
            weight_len: usize,
            dy: *const f32,
            dy_len: usize,
            dx: *mut f32,
            dx_len: usize,
            dweight: *mut f64,
            dweight_len: usize,
            eps: f32,
        );
        #[link_name = "argsort-rows"]
        pub(crate) fn argsort_rows(
            order: u32,
            x: *const f32,
            x_len: usize,
            columns: usize,
            positions: *mut i32,
            positions_len: usize,
        );
        #[link_name = "argsort-rows-f64"]
        pub(crate) fn argsort_rows_f64(
            order: u32,
            x: *const f64,
            x_len: usize,
            columns: usize,
            positions: *mut i32,
            positions_len: usize,
        );
        #[link_name = "fft-rows"]
        pub(crate) fn fft_rows(
            transform: u32,
            x: *const f32,
            x_len: usize,
            points: usize,
            y: *mut f32,
            y_len: usize,
        );
        #[link_name = "fft-rows-f64"]
        pub(crate) fn fft_rows_f64(
            transform: u32,
            x: *const f64,
            x_len: usize,
            points: usize,
            y: *mut f64,
            y_len: usize,
        );
        pub(crate) fn gemm(product: *const Product);
    }
}

/// The import `convert`.
pub(crate) fn convert<S: Converted, T: Converted>(x: &[S], y: &mut [T]) {
    let (source, target) = (u32::from(S::NUMBER.number()), u32::from(T::NUMBER.number()));
    let (x, y) = (bytes(x), bytes_mut(y));
    // SAFETY: the host reads the one slice, and writes to the other only, which is borrowed
    // exclusively.
    unsafe { imports::convert(source, x.as_ptr(), x.len(), target, y.as_mut_ptr(), y.len()) }
}

/// The imports of functions of elements and rows.
pub trait Rows: Sized {
    /// Writes to `y_len` elements from `y`, and reads `x_len` elements from `x`, which may be `y`.
    ///
    /// # Safety
    /// The caller has borrowed the elements, those of `y` exclusively.
    unsafe fn map(function: u32, x: *const Self, x_len: usize, y: *mut Self, y_len: usize);

    /// Writes to `y_len` elements from `y`, and reads `x_len` elements from `x`, which may be `y`.
    ///
    /// # Safety
    /// The caller has borrowed the elements, those of `y` exclusively.
    unsafe fn softmax(x: *const Self, x_len: usize, columns: usize, y: *mut Self, y_len: usize);

    /// Writes a function of each row of `x` to `y`.
    fn reduce(function: Reduction, x: &[Self], y: &mut [Self]);

    /// Writes the dot products of rows to `y`.
    fn dot(a: &[Self], b: &[Self], y: &mut [Self]);

    /// Writes the positions of the first elements of rows.
    fn argsort(order: Order, x: &[Self], columns: usize, positions: &mut [i32]);

    /// Writes the Fourier transforms of rows.
    fn fft(transform: Transform, x: &[Self], points: usize, y: &mut [Self]);
}

macro_rules! rows {
    (
        $type:ident, $map:ident, $softmax:ident, $reduce:ident, $dot:ident, $argsort:ident,
        $fft:ident
    ) => {
        impl Rows for $type {
            unsafe fn map(function: u32, x: *const Self, x_len: usize, y: *mut Self, y_len: usize) {
                // SAFETY: the caller has borrowed the elements, those of `y` exclusively.
                unsafe { imports::$map(function, x, x_len, y, y_len) }
            }

            unsafe fn softmax(
                x: *const Self,
                x_len: usize,
                columns: usize,
                y: *mut Self,
                y_len: usize,
            ) {
                // SAFETY: the caller has borrowed the elements, those of `y` exclusively.
                unsafe { imports::$softmax(x, x_len, columns, y, y_len) }
            }

            fn reduce(function: Reduction, x: &[Self], y: &mut [Self]) {
                let function = u32::from(function.number());
                // SAFETY: the host reads the one slice, and writes to the other only, which is
                // borrowed exclusively.
                unsafe {
                    imports::$reduce(function, x.as_ptr(), x.len(), y.as_mut_ptr(), y.len());
                }
            }

            fn dot(a: &[Self], b: &[Self], y: &mut [Self]) {
                let (a, a_len) = (a.as_ptr(), a.len());
                let (b, b_len) = (b.as_ptr(), b.len());
                // SAFETY: the host reads two slices, and writes to the third only, which is
                // borrowed exclusively.
                unsafe { imports::$dot(a, a_len, b, b_len, y.as_mut_ptr(), y.len()) }
            }

            fn argsort(order: Order, x: &[Self], columns: usize, positions: &mut [i32]) {
                let order = u32::from(order.number());
                let (x, x_len) = (x.as_ptr(), x.len());
                let (start, length) = (positions.as_mut_ptr(), positions.len());
                // SAFETY: the host reads the one slice, and writes to the other only, which is
                // borrowed exclusively.
                unsafe { imports::$argsort(order, x, x_len, columns, start, length) }
            }

            fn fft(transform: Transform, x: &[Self], points: usize, y: &mut [Self]) {
                let transform = u32::from(transform.number());
                let (x, x_len) = (x.as_ptr(), x.len());
                let (start, length) = (y.as_mut_ptr(), y.len());
                // SAFETY: the host reads the one slice, and writes to the other only, which is
                // borrowed exclusively.
                unsafe { imports::$fft(transform, x, x_len, points, start, length) }
            }
        }
    };
}

rows!(
    f32,
    map,
    softmax_rows,
    reduce_rows,
    dot_rows,
    argsort_rows,
    fft_rows
);
rows!(
    f64,
    map_f64,
    softmax_rows_f64,
    reduce_rows_f64,
    dot_rows_f64,
    argsort_rows_f64,
    fft_rows_f64
);

/// A function of each element.
pub(crate) fn map<T: Rows>(function: Elementwise, x: &[T], y: &mut [T]) {
    let function = u32::from(function.number());
    // SAFETY: the host reads the one slice, and writes to the other only, which is borrowed
    // exclusively.
    unsafe { T::map(function, x.as_ptr(), x.len(), y.as_mut_ptr(), y.len()) }
}

/// A function of each element, with the operand as the result.
pub(crate) fn map_in_place<T: Rows>(function: Elementwise, y: &mut [T]) {
    let (function, start, length) = (u32::from(function.number()), y.as_mut_ptr(), y.len());
    // SAFETY: the host reads and writes this slice only, which is borrowed exclusively.
    unsafe { T::map(function, start, length, start, length) }
}

/// The softmax of rows.
pub(crate) fn softmax_rows<T: Rows>(x: &[T], columns: usize, y: &mut [T]) {
    // SAFETY: the host reads the one slice, and writes to the other only, which is borrowed
    // exclusively.
    unsafe { T::softmax(x.as_ptr(), x.len(), columns, y.as_mut_ptr(), y.len()) }
}

/// The softmax of rows, with the operand as the result.
pub(crate) fn softmax_rows_in_place<T: Rows>(columns: usize, y: &mut [T]) {
    let (start, length) = (y.as_mut_ptr(), y.len());
    // SAFETY: the host reads and writes this slice only, which is borrowed exclusively.
    unsafe { T::softmax(start, length, columns, start, length) }
}

/// A function of rows.
pub(crate) fn reduce_rows<T: Rows>(function: Reduction, x: &[T], y: &mut [T]) {
    T::reduce(function, x, y);
}

/// The dot products of rows.
pub(crate) fn dot_rows<T: Rows>(a: &[T], b: &[T], y: &mut [T]) {
    T::dot(a, b, y);
}

/// The positions of the first elements of rows.
pub(crate) fn argsort_rows<T: Rows>(order: Order, x: &[T], columns: usize, positions: &mut [i32]) {
    T::argsort(order, x, columns, positions);
}

/// The Fourier transforms of rows.
pub(crate) fn fft_rows<T: Rows>(transform: Transform, x: &[T], points: usize, y: &mut [T]) {
    T::fft(transform, x, points, y);
}

/// The import `rms-norm-rows`.
pub(crate) fn rms_norm_rows(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    // SAFETY: the host reads two slices, and writes to the third only, which is borrowed
    // exclusively.
    unsafe {
        imports::rms_norm_rows(
            x.as_ptr(),
            x.len(),
            weight.as_ptr(),
            weight.len(),
            y.as_mut_ptr(),
            y.len(),
            eps,
        );
    }
}

/// The import `rms-norm-rows-gradient`.
pub(crate) fn rms_norm_rows_gradient(
    [x, weight, dy]: [&[f32]; 3],
    eps: f32,
    dx: &mut [f32],
    dweight: &mut [f64],
) {
    // SAFETY: the host reads three slices, and writes to two others only, which are borrowed
    // exclusively.
    unsafe {
        imports::rms_norm_rows_gradient(
            x.as_ptr(),
            x.len(),
            weight.as_ptr(),
            weight.len(),
            dy.as_ptr(),
            dy.len(),
            dx.as_mut_ptr(),
            dx.len(),
            dweight.as_mut_ptr(),
            dweight.len(),
            eps,
        );
    }
}

/// The import `gemm`.
pub(crate) fn gemm<T: Factor>(
    sizes: Sizes,
    alpha: T::Sum,
    (a, a_strides): (&[T], Strides),
    (b, b_strides): (&[T], Strides),
    beta: T::Sum,
    (c, c_strides): (&mut [T::Sum], Strides),
) {
    let product = Product {
        a: matrices(a.as_ptr().expose_provenance(), size_of_val(a), a_strides),
        b: matrices(b.as_ptr().expose_provenance(), size_of_val(b), b_strides),
        c: matrices(
            c.as_mut_ptr().expose_provenance(),
            size_of_val(c),
            c_strides,
        ),
        batch: sizes.batch as u32,
        rows: sizes.rows as u32,
        columns: sizes.columns as u32,
        depth: sizes.depth as u32,
        number: T::NUMBER.number(),
        padding: [0; 3],
        alpha: alpha.into(),
        beta: beta.into(),
    };
    // SAFETY: the host reads the record and the slices of `a` and `b`, and writes to that of `c`
    // only, which is borrowed exclusively. It checks that the strides stay within the slices.
    unsafe { imports::gemm(&raw const product) }
}

fn matrices(address: usize, bytes: usize, strides: Strides) -> Matrices {
    Matrices {
        data: List {
            offset: address as u32,
            count: bytes as u32,
        },
        batch_stride: strides.batch as u32,
        row_stride: strides.row as u32,
        column_stride: strides.column as u32,
    }
}
