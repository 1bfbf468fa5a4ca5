//! One pass of Stockham's algorithm.

use std::array;
use std::ops::Range;

use super::plan::Buffer;
use crate::rows::Real;
use crate::simd::{self, Vectorized};

/// A pass: transforms of `factor` points, whose results are multiplied by roots of unity.
pub(super) struct Pass<T> {
    pub(super) factor: usize,
    /// The transforms of a group, which have the same roots, beside each other.
    pub(super) stride: usize,
    pub(super) groups: usize,
    /// The real and the imaginary parts of the `factor - 1` roots of each group. The first one is 1
    /// and left out.
    pub(super) twiddles: [Vec<T>; 2],
}

/// Computes groups of a pass.
pub(super) fn pass<T: Real>(
    pass: &Pass<T>,
    groups: Range<usize>,
    from: &Buffer<T>,
    to: &mut Buffer<T>,
) {
    match pass.factor {
        2 => simd::run(Groups::<T, 2> {
            pass,
            groups,
            from,
            to,
        }),
        3 => simd::run(Groups::<T, 3> {
            pass,
            groups,
            from,
            to,
        }),
        4 => simd::run(Groups::<T, 4> {
            pass,
            groups,
            from,
            to,
        }),
        _ => simd::run(Groups::<T, 5> {
            pass,
            groups,
            from,
            to,
        }),
    }
}

struct Groups<'a, T, const FACTOR: usize> {
    pass: &'a Pass<T>,
    groups: Range<usize>,
    from: &'a Buffer<T>,
    to: &'a mut Buffer<T>,
}

impl<T: Real, const FACTOR: usize> Vectorized for Groups<'_, T, FACTOR> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self {
            pass,
            groups,
            from,
            to,
        } = self;
        let stride = pass.stride;
        for group in groups {
            let mut twiddles = [[T::ZERO; 2]; FACTOR];
            let first = group * (FACTOR - 1);
            for (place, twiddle) in (first..).zip(&mut twiddles[1..]) {
                *twiddle = [pass.twiddles[0][place], pass.twiddles[1][place]];
            }
            let first = |j| stride * (group + pass.groups * j);
            let x_re: [&[T]; FACTOR] = array::from_fn(|j| &from.re[first(j)..][..stride]);
            let x_im: [&[T]; FACTOR] = array::from_fn(|j| &from.im[first(j)..][..stride]);
            let results = stride * FACTOR * group..stride * FACTOR * (group + 1);
            let y_re = parts::<T, FACTOR>(&mut to.re[results.clone()], stride);
            let y_im = parts::<T, FACTOR>(&mut to.im[results], stride);
            for q in 0..stride {
                let y = butterfly::<T, FACTOR>(array::from_fn(|j| [x_re[j][q], x_im[j][q]]));
                [y_re[0][q], y_im[0][q]] = y[0];
                for k in 1..FACTOR {
                    let ([re, im], [a, b]) = (y[k], twiddles[k]);
                    y_re[k][q] = re * a - im * b;
                    y_im[k][q] = re * b + im * a;
                }
            }
        }
    }
}

/// Splits numbers into parts of this length.
#[inline(always)]
fn parts<T, const FACTOR: usize>(y: &mut [T], length: usize) -> [&mut [T]; FACTOR] {
    let mut parts = y.chunks_exact_mut(length);
    array::from_fn(|_| parts.next().unwrap_or_default())
}

/// The transform of `FACTOR` points.
#[inline(always)]
fn butterfly<T: Real, const FACTOR: usize>(x: [[T; 2]; FACTOR]) -> [[T; 2]; FACTOR] {
    let mut y = x;
    match FACTOR {
        2 => (y[0], y[1]) = (plus(x[0], x[1]), minus(x[0], x[1])),
        4 => {
            let (even, odd) = (plus(x[0], x[2]), plus(x[1], x[3]));
            (y[0], y[2]) = (plus(even, odd), minus(even, odd));
            let (even, [re, im]) = (minus(x[0], x[2]), minus(x[1], x[3]));
            // The odd points by -i and by i.
            y[1] = [even[0] + im, even[1] - re];
            y[3] = [even[0] - im, even[1] + re];
        }
        _ => {
            for k in 1..FACTOR {
                y[0] = plus(y[0], x[k]);
                y[k] = x[0];
                for j in 1..FACTOR.div_ceil(2) {
                    let (sum, [re, im]) = (plus(x[j], x[FACTOR - j]), minus(x[j], x[FACTOR - j]));
                    let [cos, sin] = root::<T>(FACTOR, j * k % FACTOR);
                    y[k] = plus(y[k], [cos * sum[0] + sin * im, cos * sum[1] - sin * re]);
                }
            }
        }
    }
    y
}

#[inline(always)]
fn plus<T: Real>(a: [T; 2], b: [T; 2]) -> [T; 2] {
    [a[0] + b[0], a[1] + b[1]]
}

#[inline(always)]
fn minus<T: Real>(a: [T; 2], b: [T; 2]) -> [T; 2] {
    [a[0] - b[0], a[1] - b[1]]
}

/// The cosine and the sine of a number of thirds or fifths of a turn.
#[inline(always)]
fn root<T: Real>(parts: usize, number: usize) -> [T; 2] {
    let [cos, sin]: [f64; 2] = match (parts, number) {
        (3, 1) => [-0.5, 0.866_025_403_784_438_6],
        (3, _) => [-0.5, -0.866_025_403_784_438_6],
        (_, 1) => [0.309_016_994_374_947_45, 0.951_056_516_295_153_5],
        (_, 2) => [-0.809_016_994_374_947_5, 0.587_785_252_292_473_1],
        (_, 3) => [-0.809_016_994_374_947_5, -0.587_785_252_292_473_1],
        _ => [0.309_016_994_374_947_45, -0.951_056_516_295_153_5],
    };
    [T::from_f64(cos), T::from_f64(sin)]
}
