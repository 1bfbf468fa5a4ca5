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
    /// The error function.
    Erf,
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
        Function::Erf => simd::run(Each(y, erf)),
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

/// The error function, by the rational approximations of W. J. Cody ("Rational Chebyshev
/// approximations for the error function", 1969), whose errors are below 1e-15. From 4 on the
/// result is 1 in F32.
#[inline(always)]
fn erf(x: f64) -> f64 {
    let square = x * x;
    let near = x * polynomial!(
        square,
        [
            1.857_777_061_846_031_5e-1,
            3.161_123_743_870_565_6,
            1.138_641_541_510_501_6e2,
            3.774_852_376_853_02e2,
            3.209_377_589_138_469_5e3
        ]
    ) / polynomial!(
        square,
        [
            1.0,
            2.360_129_095_234_412e1,
            2.440_246_379_344_441_7e2,
            1.282_616_526_077_372_3e3,
            2.844_236_833_439_171e3
        ]
    );
    let y = x.abs();
    let y = if y > 4.0 { 4.0 } else { y };
    let far = polynomial!(
        y,
        [
            2.153_115_354_744_038_5e-8,
            5.641_884_969_886_701e-1,
            8.883_149_794_388_376,
            6.611_919_063_714_163e1,
            2.986_351_381_974_001e2,
            8.819_522_212_417_69e2,
            1.712_047_612_634_070_6e3,
            2.051_078_377_826_071_5e3,
            1.230_339_354_797_997_2e3
        ]
    ) / polynomial!(
        y,
        [
            1.0,
            1.574_492_611_070_983_5e1,
            1.176_939_508_913_125e2,
            5.371_811_018_620_099e2,
            1.621_389_574_566_690_2e3,
            3.290_799_235_733_459_6e3,
            4.362_619_090_143_247e3,
            3.439_367_674_143_721_6e3,
            1.230_339_354_803_749_4e3
        ]
    );
    let far = (1.0 - exp(-y * y) * far).copysign(x);
    if y < 0.468_75 { near } else { far }
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
        check(Function::Erf, libm::erf);
        check(Function::Exp, libm::exp);
        check(Function::Log, libm::log);
        check(Function::Sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)));
        check(Function::Tanh, libm::tanh);
    }
}
