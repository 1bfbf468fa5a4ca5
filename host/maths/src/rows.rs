//! Functions of the rows of an array: sums, extrema, norms, dot products and softmax.
//!
//! A sum has a fixed number of partial sums, whatever the processor's vectors, so that its bits are
//! the same on every machine. Partial sums of a piece are added in F64, which bounds the error of
//! long rows of F32.

mod real;

use callbox_abi::Reduction;

use crate::PIECE;
use crate::simd::{self, Vectorized};
pub(crate) use real::Real;

/// A type of elements: `f32` or `f64`.
pub trait Element: Real {}

impl Element for f32 {}
impl Element for f64 {}

/// Writes the function of each row of `x` to the element of `y` with the row's number. The rows
/// have `columns` elements. Rows past the end of `x` are empty, and those past the end of `y` are
/// ignored.
///
/// # Errors
/// The error of `pause`.
pub fn reduce_rows<T: Element, E>(
    reduction: Reduction,
    x: &[T],
    columns: usize,
    y: &mut [T],
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut work = Work::default();
    for (row, y) in y.iter_mut().enumerate() {
        let x = nth(x, row, columns);
        *y = match reduction {
            Reduction::Sum => T::from_f64(sum(x, &mut work, pause)?),
            Reduction::Max => max(x, &mut work, pause)?,
            Reduction::RootMeanSquare => {
                let squares = dot(x, x, &mut work, pause)?;
                T::from_f64((squares / columns as f64).sqrt())
            }
        }
        .canonical();
    }
    Ok(())
}

/// Writes the dot product of each row of `a` with the row of `b` to `y`, as [`reduce_rows`] does.
///
/// # Errors
/// The error of `pause`.
pub fn dot_rows<T: Element, E>(
    a: &[T],
    b: &[T],
    columns: usize,
    y: &mut [T],
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut work = Work::default();
    for (row, y) in y.iter_mut().enumerate() {
        let (a, b) = (nth(a, row, columns), nth(b, row, columns));
        *y = T::from_f64(dot(a, b, &mut work, pause)?).canonical();
    }
    Ok(())
}

/// Replaces each row of `columns` elements by its softmax: `e^(x - max) / sum(e^(x - max))`.
///
/// A row with NaN or plus infinity, and a row of minus infinities, becomes NaN throughout. If `x`
/// is given, its rows are the operand and `y` has only the results.
///
/// # Errors
/// The error of `pause`.
pub fn softmax_rows<T: Element, E>(
    x: Option<&[T]>,
    columns: usize,
    y: &mut [T],
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut work = Work::default();
    for (row, y) in y.chunks_mut(columns.max(1)).enumerate() {
        if let Some(x) = x {
            let x = nth(x, row, columns);
            for (y, x) in y.chunks_mut(PIECE).zip(x.chunks(PIECE)) {
                y[..x.len()].copy_from_slice(x);
                work.did(x.len(), pause)?;
            }
        }
        let max = max(y, &mut work, pause)?;
        let mut total = 0.0;
        for y in y.chunks_mut(PIECE) {
            total += T::exponentials(y, max);
            work.did(8 * y.len(), pause)?;
        }
        // Both have the factor of `exp_scaled`, so that a quotient is rounded where it is small.
        let factor = T::from_f64(1.0 / total);
        for y in y.chunks_mut(PIECE) {
            simd::run(Scale { y, factor });
            work.did(y.len(), pause)?;
        }
    }
    Ok(())
}

/// The elements of a row, cut at the end of `x`.
pub(crate) fn nth<T>(x: &[T], row: usize, columns: usize) -> &[T] {
    let start = row.saturating_mul(columns).min(x.len());
    let end = start.saturating_add(columns).min(x.len());
    &x[start..end]
}

/// The work since the last pause.
#[derive(Default)]
pub(crate) struct Work(usize);

impl Work {
    /// Notes that `elements` were computed. Pauses after every few pieces.
    #[inline]
    pub(crate) fn did<E>(
        &mut self,
        elements: usize,
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        // A row without elements is work, too.
        self.0 += elements + 16;
        if self.0 >= 16 * PIECE {
            self.0 = 0;
            pause()?;
        }
        Ok(())
    }
}

fn sum<T: Element, E>(
    x: &[T],
    work: &mut Work,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<f64, E> {
    let mut total = 0.0;
    for x in x.chunks(PIECE) {
        total += T::sum(x);
        work.did(x.len(), pause)?;
    }
    work.did(0, pause)?;
    Ok(total)
}

fn dot<T: Element, E>(
    a: &[T],
    b: &[T],
    work: &mut Work,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<f64, E> {
    let mut total = 0.0;
    for (a, b) in a.chunks(PIECE).zip(b.chunks(PIECE)) {
        total += T::dot(a, b);
        work.did(a.len(), pause)?;
    }
    work.did(0, pause)?;
    Ok(total)
}

fn max<T: Element, E>(
    x: &[T],
    work: &mut Work,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<T, E> {
    let mut most = T::NEG_INFINITY;
    for x in x.chunks(PIECE) {
        most = greater(most, T::max(x));
        work.did(x.len(), pause)?;
    }
    work.did(0, pause)?;
    Ok(most)
}

/// Combines the lanes by halves.
///
/// Never inlined: the pairs of its additions would make the compiler compute the lanes in pairs,
/// too.
#[inline(never)]
fn fold<T: Copy, const LANES: usize>(lanes: &[T; LANES], combine: impl Fn(T, T) -> T) -> T {
    let mut lanes = *lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = combine(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// The sum of the lanes. Never inlined, as [`fold`].
#[inline(never)]
pub(crate) fn total<T: Real, const LANES: usize>(lanes: &[T; LANES]) -> f64 {
    fold(&lanes.map(Into::into), |a: f64, b| a + b)
}

struct Sum<'a, T, const LANES: usize>(&'a [T]);

impl<T: Real, const LANES: usize> Vectorized for Sum<'_, T, LANES> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut lanes = [T::ZERO; LANES];
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                lanes[lane] += chunk[lane];
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane += x;
        }
        total(&lanes)
    }
}

struct Dot<'a, T, const LANES: usize>(&'a [T], &'a [T]);

impl<T: Real, const LANES: usize> Vectorized for Dot<'_, T, LANES> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut lanes = [T::ZERO; LANES];
        let (a, a_rest) = self.0.as_chunks::<LANES>();
        let (b, b_rest) = self.1.as_chunks::<LANES>();
        for (a, b) in a.iter().zip(b) {
            for lane in 0..LANES {
                lanes[lane] += a[lane] * b[lane];
            }
        }
        for (lane, (&a, &b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
            *lane += a * b;
        }
        total(&lanes)
    }
}

/// The greater number, or NaN if one of them is NaN.
#[inline(always)]
fn greater<T: Real>(a: T, b: T) -> T {
    if b > a || b.is_nan() { b } else { a }
}

struct Max<'a, T, const LANES: usize>(&'a [T]);

impl<T: Real, const LANES: usize> Vectorized for Max<'_, T, LANES> {
    type Output = T;

    #[inline(always)]
    fn run(self) -> T {
        let mut lanes = [T::NEG_INFINITY; LANES];
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                lanes[lane] = greater(lanes[lane], chunk[lane]);
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane = greater(*lane, x);
        }
        fold(&lanes, greater)
    }
}

/// Replaces elements by `e^(y - max)`, scaled, and returns the sum.
struct Exponentials<'a, T, const LANES: usize> {
    y: &'a mut [T],
    max: T,
}

impl<T: Real, const LANES: usize> Vectorized for Exponentials<'_, T, LANES> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut lanes = [T::ZERO; LANES];
        let (chunks, rest) = self.y.as_chunks_mut::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                chunk[lane] = T::exp_scaled(chunk[lane] - self.max);
                lanes[lane] += chunk[lane];
            }
        }
        for (lane, y) in lanes.iter_mut().zip(rest) {
            *y = T::exp_scaled(*y - self.max);
            *lane += *y;
        }
        total(&lanes)
    }
}

/// Multiplies elements by a factor.
struct Scale<'a, T> {
    y: &'a mut [T],
    factor: T,
}

impl<T: Real> Vectorized for Scale<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for y in self.y {
            *y = (*y * self.factor).canonical();
        }
    }
}
