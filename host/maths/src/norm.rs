//! Normalisation of rows of F32 by their root mean square, and its gradient.
//!
//! Sums and products are computed in F64, so that squares neither overflow nor vanish, and long
//! rows lose no precision. A sum has `LANES` partial sums on every machine.

use std::ops::Range;

use crate::PIECE;
use crate::rows::{Real, Work, nth, total};
use crate::simd::{self, Vectorized};

/// The number of partial sums of a row.
const LANES: usize = 16;

/// Writes each row of `x`, divided by `sqrt(mean(x^2) + eps)` and multiplied by `weight`, to `y`.
///
/// A row is as long as `weight`. Elements of `y` past the end of `x` are left as they are.
///
/// # Errors
/// The error of `pause`.
pub fn rms_norm_rows<E>(
    x: &[f32],
    weight: &[f32],
    eps: f32,
    y: &mut [f32],
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut work = Work::default();
    let weight_is_finite = sum_of_squares(weight, &mut work, pause)?.is_finite();
    for (row, y) in y.chunks_mut(weight.len().max(1)).enumerate() {
        let x = nth(x, row, weight.len());
        let squares = sum_of_squares(x, &mut work, pause)?;
        let scale = scale(squares, weight.len(), eps);
        let pieces = x.chunks(PIECE).zip(weight.chunks(PIECE));
        for ((x, weight), y) in pieces.zip(y.chunks_mut(PIECE)) {
            simd::run(Normalise {
                x,
                weight,
                scale,
                y,
            });
            work.did(x.len(), pause)?;
        }
        if !(scale.is_normal() && squares.is_finite() && weight_is_finite) {
            canonicalise(y, &mut work, pause)?;
        }
    }
    Ok(())
}

/// Replaces NaNs by the canonical one. A row needs it only if a number in it is not finite.
fn canonicalise<T: Real, E>(
    y: &mut [T],
    work: &mut Work,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    for y in y.chunks_mut(PIECE) {
        simd::run(Canonical(&mut *y));
        work.did(y.len(), pause)?;
    }
    Ok(())
}

/// The sum of the squares of all elements, which is finite if they are.
fn sum_of_squares<E>(
    x: &[f32],
    work: &mut Work,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<f64, E> {
    let [squares] = sums(|range| simd::run(Squares(&x[range])), x.len(), work, pause)?;
    Ok(squares)
}

/// The gradient of [`rms_norm_rows`]: writes the cotangent of `x` to `dx`, and adds that of
/// `weight` to `dweight`, for the cotangent `dy` of the result.
///
/// With `s = 1 / sqrt(mean(x^2) + eps)` and `g = dy * weight`, a row of `dx` is
/// `s g - s^3 x mean(x g)`, and `dweight` grows by `dy x s` of each row.
///
/// # Errors
/// The error of `pause`.
pub fn rms_norm_rows_gradient<E>(
    Forward { x, weight, eps }: Forward<'_>,
    dy: &[f32],
    dx: &mut [f32],
    dweight: &mut [f64],
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut work = Work::default();
    let length = weight.len();
    let weight_is_finite = sum_of_squares(weight, &mut work, pause)?.is_finite();
    canonicalise(dweight, &mut work, pause)?;
    for (row, dx) in dx.chunks_mut(length.max(1)).enumerate() {
        let (x, dy) = (nth(x, row, length), nth(dy, row, length));
        let of_piece = |range: Range<usize>| {
            simd::run(SquaresAndProducts {
                x: &x[range.clone()],
                dy: &dy[range.clone()],
                weight: &weight[range],
            })
        };
        let [squares, products] = sums(of_piece, x.len().min(dy.len()), &mut work, pause)?;
        let scale = scale(squares, length, eps);
        let along = scale * scale * scale * products / length as f64;
        let operands = x
            .chunks(PIECE)
            .zip(dy.chunks(PIECE))
            .zip(weight.chunks(PIECE));
        let results = dx.chunks_mut(PIECE).zip(dweight.chunks_mut(PIECE));
        for (((x, dy), weight), (dx, dweight)) in operands.zip(results) {
            simd::run(Differentiate {
                x,
                dy,
                weight,
                scale,
                along,
                dx,
                dweight,
            });
            work.did(2 * x.len(), pause)?;
        }
        let is_finite = along.is_finite() && scale.is_normal() && weight_is_finite;
        if !is_finite {
            canonicalise(dx, &mut work, pause)?;
            canonicalise(dweight, &mut work, pause)?;
        }
    }
    Ok(())
}

/// The operands of the function that a gradient is of.
#[derive(Clone, Copy, Debug)]
pub struct Forward<'a> {
    /// The rows.
    pub x: &'a [f32],
    /// The weight, as long as a row.
    pub weight: &'a [f32],
    /// The number that is added to the mean of the squares.
    pub eps: f32,
}

fn scale(squares: f64, length: usize, eps: f32) -> f64 {
    1.0 / (squares / length as f64 + f64::from(eps)).sqrt()
}

/// Adds up the sums of a row's pieces.
fn sums<const N: usize, E>(
    of_piece: impl Fn(Range<usize>) -> [f64; N],
    length: usize,
    work: &mut Work,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<[f64; N], E> {
    let mut total = [0.0; N];
    for start in (0..length).step_by(PIECE) {
        let end = length.min(start + PIECE);
        for (total, sum) in total.iter_mut().zip(of_piece(start..end)) {
            *total += sum;
        }
        work.did(end - start, pause)?;
    }
    work.did(0, pause)?;
    Ok(total)
}

/// The sum of the squares.
struct Squares<'a>(&'a [f32]);

impl Vectorized for Squares<'_> {
    type Output = [f64; 1];

    #[inline(always)]
    fn run(self) -> [f64; 1] {
        let square = |x: f32| f64::from(x) * f64::from(x);
        let mut lanes = [0.0_f64; LANES];
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        for chunk in chunks {
            let squares = chunk.map(square);
            for lane in 0..LANES {
                lanes[lane] += squares[lane];
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane += square(x);
        }
        [total(&lanes)]
    }
}

/// The sum of the squares of `x`, and the sum of `x dy weight`.
struct SquaresAndProducts<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    weight: &'a [f32],
}

impl Vectorized for SquaresAndProducts<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run(self) -> [f64; 2] {
        let (mut squares, mut products) = ([0.0_f64; LANES], [0.0_f64; LANES]);
        let (x, x_rest) = self.x.as_chunks::<LANES>();
        let (dy, dy_rest) = self.dy.as_chunks::<LANES>();
        let (weight, weight_rest) = self.weight.as_chunks::<LANES>();
        for ((x, dy), weight) in x.iter().zip(dy).zip(weight) {
            let (x, dy, weight) = (x.map(f64::from), dy.map(f64::from), weight.map(f64::from));
            for lane in 0..LANES {
                squares[lane] += x[lane] * x[lane];
            }
            for lane in 0..LANES {
                products[lane] += x[lane] * dy[lane] * weight[lane];
            }
        }
        let rest = x_rest.iter().zip(dy_rest).zip(weight_rest);
        let sums = squares.iter_mut().zip(&mut products);
        for ((square, product), ((&x, &dy), &weight)) in sums.zip(rest) {
            let x = f64::from(x);
            *square += x * x;
            *product += x * f64::from(dy) * f64::from(weight);
        }
        [total(&squares), total(&products)]
    }
}

/// Writes `x * scale * weight` to `y`.
struct Normalise<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    scale: f64,
    y: &'a mut [f32],
}

impl Vectorized for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((y, &x), &weight) in self.y.iter_mut().zip(self.x).zip(self.weight) {
            *y = (f64::from(x) * self.scale * f64::from(weight)) as f32;
        }
    }
}

/// Writes `scale dy weight - along x` to `dx`, and adds `x dy scale` to `dweight`.
struct Differentiate<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    weight: &'a [f32],
    scale: f64,
    along: f64,
    dx: &'a mut [f32],
    dweight: &'a mut [f64],
}

impl Vectorized for Differentiate<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let operands = self.x.iter().zip(self.dy).zip(self.weight);
        let results = self.dx.iter_mut().zip(self.dweight);
        for (((&x, &dy), &weight), (dx, dweight)) in operands.zip(results) {
            let (x, scaled) = (f64::from(x), f64::from(dy) * self.scale);
            *dx = (scaled * f64::from(weight) - self.along * x) as f32;
            *dweight += scaled * x;
        }
    }
}

/// Replaces NaNs by the canonical one.
struct Canonical<'a, T>(&'a mut [T]);

impl<T: Real> Vectorized for Canonical<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for y in self.0 {
            *y = y.canonical();
        }
    }
}
