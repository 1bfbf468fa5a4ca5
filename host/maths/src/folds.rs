//! Sums and extrema of F32, in a fixed order: the bits are the same on every machine.
//!
//! Element `i` belongs to lane `i % LANES`. The lanes are folded side by side and then in order,
//! and the elements of a last, incomplete row of lanes come at the end.

use crate::simd::{self, Vectorized};

/// The parts that are folded side by side.
pub const LANES: usize = 16;

/// What is computed of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The sum in F64; -0 of no elements.
    Sum,
    /// The largest, or the first NaN of a lane. 0 is larger than -0.
    Maximum,
    /// The smallest, or the first NaN of a lane. -0 is smaller than 0.
    Minimum,
}

/// Folds elements, of which these are the little-endian bytes.
#[must_use]
pub fn fold_bytes(fold: Fold, x: &[[u8; 4]]) -> f64 {
    // Each fold begins with its neutral element.
    match fold {
        Fold::Sum => simd::run(Lanes(x, -0.0, f64::from, |x, y| x + y)),
        Fold::Maximum => simd::run(Lanes(x, f32::NEG_INFINITY, |x| x, maximum)).into(),
        Fold::Minimum => simd::run(Lanes(x, f32::INFINITY, |x| x, minimum)).into(),
    }
}

struct Lanes<'a, T, W, F>(&'a [[u8; 4]], T, W, F);

impl<T: Copy, W: Fn(f32) -> T, F: Fn(T, T) -> T> Vectorized for Lanes<'_, T, W, F> {
    type Output = T;

    #[inline(always)]
    fn run(self) -> T {
        let Self(x, neutral, widen, fold) = self;
        let mut lanes = [neutral; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                lanes[lane] = fold(lanes[lane], widen(f32::from_le_bytes(chunk[lane])));
            }
        }
        let mut last = neutral;
        for &x in rest {
            last = fold(last, widen(f32::from_le_bytes(x)));
        }
        fold(in_order(&lanes, &fold), last)
    }
}

/// Folds the lanes. Never inlined: the compiler would keep the lanes apart from the start.
#[inline(never)]
fn in_order<T: Copy>(lanes: &[T; LANES], fold: impl Fn(T, T) -> T) -> T {
    let [first, others @ ..] = lanes;
    others.iter().fold(*first, |x, &y| fold(x, y))
}

#[inline(always)]
fn maximum(x: f32, y: f32) -> f32 {
    if x.is_nan() | (x > y) | ((x == y) & x.is_sign_positive()) {
        x
    } else {
        y
    }
}

#[inline(always)]
fn minimum(x: f32, y: f32) -> f32 {
    if x.is_nan() | (x < y) | ((x == y) & x.is_sign_negative()) {
        x
    } else {
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(of: Fold, x: &[f32]) -> f64 {
        fold_bytes(of, &Vec::from_iter(x.iter().map(|x| x.to_le_bytes())))
    }

    #[test]
    fn sums_are_in_the_order_of_the_lanes() {
        for count in [0, 1, 15, 16, 17, 100, 1024, 1039] {
            let x = Vec::from_iter((0..count).map(|i| 0.1 / (1 + i % 91) as f32));
            let (rows, rest) = x.as_chunks::<LANES>();
            let lane = |lane: usize| {
                rows.iter()
                    .fold(-0.0, |sum, row| sum + f64::from(row[lane]))
            };
            let sum = (0..LANES).fold(-0.0, |sum, i| sum + lane(i));
            let last = rest.iter().fold(-0.0, |sum, &x| sum + f64::from(x));
            assert_eq!(fold(Fold::Sum, &x).to_bits(), (sum + last).to_bits());
        }
    }

    #[test]
    fn extrema_order_zeros_and_keep_nan() {
        for count in [1, 15, 16, 17, 100] {
            let mut x = vec![-0.0_f32; count];
            assert_eq!(fold(Fold::Maximum, &x).to_bits(), (-0.0_f64).to_bits());
            x[count / 2] = 0.0;
            assert_eq!(fold(Fold::Maximum, &x).to_bits(), 0.0_f64.to_bits());
            assert_eq!(
                fold(Fold::Minimum, &[0.0, -0.0]).to_bits(),
                (-0.0_f64).to_bits()
            );
            x[count / 3] = 7.5;
            assert_eq!(fold(Fold::Maximum, &x), 7.5);
            x[count / 3] = -7.5;
            assert_eq!(fold(Fold::Minimum, &x), -7.5);
            x[count - 1] = f32::NAN;
            assert!(fold(Fold::Maximum, &x).is_nan());
            assert!(fold(Fold::Minimum, &x).is_nan());
        }
    }
}
