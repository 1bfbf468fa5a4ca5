//! Functions of F32 that are computed in F64 and rounded once.
//!
//! The error before rounding is below 1e-13 of the result, so that all but about one in a hundred
//! thousand results are the nearest number to the exact one, and the others its neighbour. The code
//! is straight-line, as in [`elementwise`](crate::elementwise): the bits are the same on every
//! machine.

use crate::simd::{self, Vectorized};

/// A function of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `e^x`.
    Exp,
    /// The natural logarithm.
    Log,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

/// Replaces each element, of which these are the little-endian bytes, by the function of it.
pub fn map_bytes(function: Function, y: &mut [[u8; 4]]) {
    match function {
        Function::Exp => simd::run(Each(y, exp)),
        Function::Log => simd::run(Each(y, log)),
        Function::Sigmoid => simd::run(Each(y, |x: f64| 1.0 / (1.0 + exp(-x)))),
        Function::Tanh => simd::run(Each(y, tanh)),
    }
}

struct Each<'a, F>(&'a mut [[u8; 4]], F);

impl<F: Fn(f64) -> f64> Vectorized for Each<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for y in self.0 {
            let x = f32::from_le_bytes(*y);
            *y = ((self.1)(f64::from(x)) as f32).to_le_bytes();
        }
    }
}

/// Evaluates a polynomial, whose coefficients begin with that of the highest power.
macro_rules! polynomial {
    ($x:expr, [$first:expr $(, $coefficient:expr)*]) => {{
        let x = $x;
        let sum: f64 = $first;
        $(let sum = sum * x + $coefficient;)*
        sum
    }};
}

/// `e^x` for a number that an F32 can be, or twice it: `2^k e^r` with `x = k ln 2 + r`. Beyond the
/// bounds the result is 0 or infinite in F32.
#[inline(always)]
fn exp(x: f64) -> f64 {
    // Adding a number whose unit in the last place is 1 rounds to an integer, and leaves it in the
    // low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // The order of the operands keeps NaN.
    let x = if x > 200.0 { 200.0 } else { x };
    let x = if x < -200.0 { -200.0 } else { x };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let r = x - (shifted - ROUND) * std::f64::consts::LN_2;
    // 1 / n! from 11 on.
    let e = polynomial!(
        r,
        [
            1.0 / 39_916_800.0,
            1.0 / 3_628_800.0,
            1.0 / 362_880.0,
            1.0 / 40_320.0,
            1.0 / 5_040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
            1.0,
            1.0
        ]
    );
    e * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

/// The natural logarithm of a number that an F32 can be: `k ln 2 + ln m` with `m` around 1.
#[inline(always)]
fn log(x: f64) -> f64 {
    // The bits of the square root of a half, without those of the mantissa that exceed 32.
    const LEAST: u64 = 0x3fe6_a09e_0000_0000;
    let above = x.to_bits().wrapping_sub(LEAST);
    let m = f64::from_bits((above & 0x000f_ffff_ffff_ffff).wrapping_add(LEAST));
    // An integer below 2^52 in the low bits of 2^52.
    let biased = f64::from_bits((above.wrapping_add(1023 << 52) >> 52) | 0x4330_0000_0000_0000);
    let k = biased - (4_503_599_627_370_496.0 + 1023.0);
    let s = (m - 1.0) / (m + 1.0);
    // Twice the series of the inverse hyperbolic tangent.
    let q = polynomial!(
        s * s,
        [
            2.0 / 17.0,
            2.0 / 15.0,
            2.0 / 13.0,
            2.0 / 11.0,
            2.0 / 9.0,
            2.0 / 7.0,
            2.0 / 5.0,
            2.0 / 3.0,
            2.0
        ]
    );
    let log = k * std::f64::consts::LN_2 + s * q;
    let log = if x == 0.0 { f64::NEG_INFINITY } else { log };
    let log = if x < 0.0 { f64::NAN } else { log };
    // Infinity and NaN are their own logarithms.
    if x < f64::INFINITY { log } else { x }
}

/// The hyperbolic tangent. Near 0 the quotient would cancel, and a series takes its place.
#[inline(always)]
fn tanh(x: f64) -> f64 {
    let square = x * x;
    let near = x * polynomial!(
        square,
        [62.0 / 2835.0, -17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0]
    );
    let far = 1.0 - 2.0 / (exp(2.0 * x) + 1.0);
    if square < 4e-4 { near } else { far }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// The largest distance to the nearest number, in numbers, and the share of those that miss it,
    /// over every 97th F32.
    fn check(function: Function, exact: fn(f64) -> f64) {
        let (mut missed, mut count) = (0, 0);
        let all = Vec::from_iter((0..=u32::MAX).step_by(97).map(f32::from_bits));
        for x in all.chunks(1 << 16) {
            let mut bytes = Vec::from_iter(x.iter().map(|x| x.to_le_bytes()));
            map_bytes(function, &mut bytes);
            for (&x, bytes) in x.iter().zip(bytes) {
                let (found, expected) = (f32::from_le_bytes(bytes), exact(x.into()) as f32);
                count += 1;
                if found.to_bits() != expected.to_bits() && !(found.is_nan() && expected.is_nan()) {
                    let apart = found.to_bits().abs_diff(expected.to_bits());
                    assert!(
                        apart <= 1,
                        "{function:?}({x:e}) is {found:e}, not {expected:e}"
                    );
                    missed += 1;
                }
            }
        }
        assert!(missed * 50_000 < count, "{function:?}: {missed} of {count}");
    }

    #[test]
    fn functions_give_the_nearest_number() {
        check(Function::Exp, libm::exp);
        check(Function::Log, libm::log);
        check(Function::Sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)));
        check(Function::Tanh, libm::tanh);
    }
}
