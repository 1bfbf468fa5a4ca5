//! Mathematics in native builds: the code that the host runs in its deterministic mode.

#![allow(
    clippy::panic,
    reason = "wrong lengths panic natively, as the documentation says"
)]

use core::convert::Infallible;

use callbox_abi::Transform;
use callbox_maths::fft;
use callbox_maths::gemm::{self, Arithmetic, Gemm, Operand, Target};
use callbox_maths::norm::Forward;

use super::{Converted, Elementwise, Factor, MatrixElement, Order, Reduction, Sizes, Strides};

/// Lets a computation go on: natively nothing stops it.
fn go_on() -> Result<(), Infallible> {
    Ok(())
}

pub(super) fn map<T: MatrixElement>(function: Elementwise, x: &[T], y: &mut [T]) {
    assert_eq!(x.len(), y.len(), "the lengths of `x` and `y`");
    let Ok(()) = callbox_maths::map(function, x, y, &mut go_on);
}

pub(super) fn map_in_place<T: MatrixElement>(function: Elementwise, y: &mut [T]) {
    let Ok(()) = callbox_maths::map_in_place(function, y, &mut go_on);
}

pub(super) fn convert<S: Converted, T: Converted>(x: &[S], y: &mut [T]) {
    assert_eq!(x.len(), y.len(), "the lengths of `x` and `y`");
    if let (Some(x), Some(y)) = (S::source(x), T::target(y)) {
        let Ok(()) = callbox_maths::convert::convert(x, y, &mut go_on);
    }
}

/// Checks that an array consists of whole rows.
fn check_rows(length: usize, columns: usize) {
    let is_whole = length == 0 || columns != 0 && length.is_multiple_of(columns);
    assert!(is_whole, "{length} elements are no rows of {columns}");
}

pub(super) fn softmax_rows<T: MatrixElement>(x: &[T], columns: usize, y: &mut [T]) {
    assert_eq!(x.len(), y.len(), "the lengths of `x` and `y`");
    check_rows(x.len(), columns);
    let Ok(()) = callbox_maths::softmax_rows(Some(x), columns, y, &mut go_on);
}

pub(super) fn softmax_rows_in_place<T: MatrixElement>(columns: usize, y: &mut [T]) {
    check_rows(y.len(), columns);
    let Ok(()) = callbox_maths::softmax_rows(None, columns, y, &mut go_on);
}

/// The length of each of `rows` rows.
fn columns(length: usize, rows: usize) -> usize {
    check_rows(length, rows);
    length.checked_div(rows).unwrap_or(0)
}

pub(super) fn reduce_rows<T: MatrixElement>(function: Reduction, x: &[T], y: &mut [T]) {
    let columns = columns(x.len(), y.len());
    let Ok(()) = callbox_maths::reduce_rows(function, x, columns, y, &mut go_on);
}

pub(super) fn dot_rows<T: MatrixElement>(a: &[T], b: &[T], y: &mut [T]) {
    assert_eq!(a.len(), b.len(), "the lengths of `a` and `b`");
    let columns = columns(a.len(), y.len());
    let Ok(()) = callbox_maths::dot_rows(a, b, columns, y, &mut go_on);
}

pub(super) fn argsort_rows<T: MatrixElement>(
    order: Order,
    x: &[T],
    columns: usize,
    positions: &mut [i32],
) {
    check_rows(x.len(), columns);
    let kept = self::columns(positions.len(), x.len().checked_div(columns).unwrap_or(0));
    assert!(kept <= columns, "{kept} positions of {columns} elements");
    let Ok(()) = callbox_maths::argsort_rows(order, x, columns, positions, kept, &mut go_on);
}

pub(super) fn fft_rows<T: MatrixElement>(
    transform: Transform,
    x: &[T],
    points: usize,
    y: &mut [T],
) {
    let transforms = fft::Rows::new(transform, points);
    let transforms = transforms.unwrap_or_else(|too_long| panic!("{too_long}"));
    check_rows(x.len(), transforms.columns_of_x());
    let rows = x.len().checked_div(transforms.columns_of_x()).unwrap_or(0);
    assert_eq!(
        y.len(),
        rows * transforms.columns_of_y(),
        "the length of `y`"
    );
    let Ok(()) = transforms.transform(x, y, &mut go_on);
}

pub(super) fn rms_norm_rows(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "the lengths of `x` and `y`");
    check_rows(x.len(), weight.len());
    let Ok(()) = callbox_maths::rms_norm_rows(x, weight, eps, y, &mut go_on);
}

pub(super) fn rms_norm_rows_gradient(
    [x, weight, dy]: [&[f32]; 3],
    eps: f32,
    dx: &mut [f32],
    dweight: &mut [f64],
) {
    assert_eq!(x.len(), dy.len(), "the lengths of `x` and `dy`");
    assert_eq!(x.len(), dx.len(), "the lengths of `x` and `dx`");
    assert_eq!(
        weight.len(),
        dweight.len(),
        "the lengths of `weight` and `dweight`"
    );
    check_rows(x.len(), weight.len());
    let forward = Forward { x, weight, eps };
    let Ok(()) = callbox_maths::rms_norm_rows_gradient(forward, dy, dx, dweight, &mut go_on);
}

impl From<Strides> for gemm::Strides {
    fn from(strides: Strides) -> Self {
        let Strides { batch, row, column } = strides;
        Self { batch, row, column }
    }
}

/// Refuses matrices that do not fit their slice.
fn refuse(what: &str, misfit: &gemm::Misfit) -> ! {
    panic!("{what}: {misfit}")
}

pub(super) fn gemm<T: Factor>(
    sizes: Sizes,
    alpha: T::Sum,
    (a, a_strides): (&[T], Strides),
    (b, b_strides): (&[T], Strides),
    beta: T::Sum,
    (c, c_strides): (&mut [T::Sum], Strides),
) {
    let Sizes {
        batch,
        rows,
        columns,
        depth,
    } = sizes;
    let product = Gemm {
        batch,
        rows,
        columns,
        depth,
        arithmetic: Arithmetic::Portable,
    };
    let (a, b) = (T::stored(a), T::stored(b));
    let a = Operand::new(a, a_strides.into(), [batch, rows, depth]);
    let b = Operand::new(b, b_strides.into(), [batch, depth, columns]);
    let c = Target::new(c, c_strides.into(), [batch, rows, columns]);
    let Ok(()) = callbox_maths::gemm_of::<T::Format, _>(
        product,
        alpha,
        a.unwrap_or_else(|misfit| refuse("a", &misfit)),
        b.unwrap_or_else(|misfit| refuse("b", &misfit)),
        beta,
        c.unwrap_or_else(|misfit| refuse("c", &misfit)),
        &mut go_on,
    );
}
