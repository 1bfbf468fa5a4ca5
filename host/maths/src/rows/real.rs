//! The number types of rows, each with an exponential function that compiles to vector
//! instructions.

use std::ops::{Add, AddAssign, Mul, Sub};

use super::{Dot, Exponentials, Max, Sum};
use crate::simd;

/// A floating-point type. The numbers of lanes are part of the results' bits.
pub trait Real:
    Copy
    + PartialOrd
    + Into<f64>
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + 'static
{
    const ZERO: Self;
    const NEG_INFINITY: Self;
    /// The factor of [`exp_scaled`](Self::exp_scaled), a power of two.
    const SCALE: Self;

    fn is_nan(self) -> bool;

    /// The canonical NaN for any NaN, and any other number as it is.
    fn canonical(self) -> Self;

    /// Rounds a number to the nearest one of this type.
    fn from_f64(value: f64) -> Self;

    /// Returns `e^t * SCALE` for `t <= 0`, and NaN for NaN.
    ///
    /// The scale keeps results normal that would be subnormal or zero. A quotient of two such
    /// results underflows gradually and is rounded once. Below `t` = -104 (F32) or -746 (F64),
    /// where `e^t` rounds to zero, the result is at most half the smallest subnormal number times
    /// `SCALE`.
    ///
    /// Accuracy in units in the last place of the result: the error of F32 is at most 0.99,
    /// measured on all inputs from -104 to 0. F64 differs by at most 1 from the C library's `exp`,
    /// which is within 1 of the true value, measured on a hundred million inputs. A test checks a
    /// sample of them.
    fn exp_scaled(t: Self) -> Self;

    fn sum(x: &[Self]) -> f64;
    fn dot(a: &[Self], b: &[Self]) -> f64;
    fn max(x: &[Self]) -> Self;
    fn exponentials(y: &mut [Self], max: Self) -> f64;
}

/// The exponential: `t = k ln 2 + r` with an integer `k` and `|r| <= ln 2 / 2`, so that `e^t` is
/// `2^k e^r`.
///
/// Adding a number whose unit in the last place is 1 finds `k`. The sum's low bits are those of
/// `k`, and shifting them to the exponent makes `2^k` without a conversion. `ln 2` is split in two
/// parts, so that the product of `k` and the upper part is exact. The polynomial's coefficients
/// minimise the largest relative error of `1 + r + r^2 q(r)`; Remez's algorithm found them in 50
/// digits.
macro_rules! real {
    (
        $type:ident, lanes: $lanes:literal, nan: $nan:literal, scale: $scale:literal,
        lowest: $lowest:literal, mantissa: $mantissa:literal, bias: $bias:literal,
        ln2: [$ln2_upper:expr, $ln2_lower:expr],
        polynomial: [$first:literal, $($coefficient:literal),*]
    ) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const NEG_INFINITY: Self = Self::NEG_INFINITY;
            const SCALE: Self = Self::from_bits(($bias + $scale) << $mantissa);

            #[inline(always)]
            fn is_nan(self) -> bool {
                self != self
            }

            #[inline(always)]
            fn canonical(self) -> Self {
                Self::from_bits(if Real::is_nan(self) { $nan } else { self.to_bits() })
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn exp_scaled(t: Self) -> Self {
                const ROUND: $type = 1.5 * (1_u64 << $mantissa) as $type + ($bias + $scale) as $type;
                const LN2_UPPER: $type = $ln2_upper;
                const LN2_LOWER: $type = $ln2_lower;
                // The order of the operands preserves NaN.
                let t = if t < $lowest { $lowest } else { t };
                let shifted = t * std::$type::consts::LOG2_E + ROUND;
                let k = shifted - ROUND;
                let r = (t - k * LN2_UPPER) - k * LN2_LOWER;
                let mut q: Self = $first;
                $(q = q * r + $coefficient;)*
                let power_of_two = Self::from_bits(shifted.to_bits() << $mantissa);
                ((r * r * q + r) + 1.0) * power_of_two
            }

            fn sum(x: &[Self]) -> f64 {
                simd::run(Sum::<_, $lanes>(x))
            }

            fn dot(a: &[Self], b: &[Self]) -> f64 {
                simd::run(Dot::<_, $lanes>(a, b))
            }

            fn max(x: &[Self]) -> Self {
                simd::run(Max::<_, $lanes>(x))
            }

            fn exponentials(y: &mut [Self], max: Self) -> f64 {
                simd::run(Exponentials::<_, $lanes> { y, max })
            }
        }
    };
}

real! {
    f32, lanes: 64, nan: 0x7fc0_0000, scale: 64, lowest: -128.0, mantissa: 23, bias: 127,
    ln2: [355.0 / 512.0, -2.121_944_4e-4],
    polynomial: [1.381_459_9e-3, 8.368_717e-3, 4.166_839e-2, 0.166_665_2, 0.499_999_94]
}

real! {
    f64, lanes: 32, nan: 0x7ff8_0000_0000_0000, scale: 512, lowest: -768.0, mantissa: 52,
    bias: 1023,
    ln2: [22_713.0 / 32_768.0, 1.428_606_820_309_417_3e-6],
    polynomial: [
        2.500_006_160_283_566_7e-8,
        2.763_024_837_921_144e-7,
        2.755_758_637_384_016_4e-6,
        2.480_149_309_890_655e-5,
        1.984_126_950_957_868_7e-4,
        1.388_888_894_363_011_3e-3,
        8.333_333_333_494_462e-3,
        4.166_666_666_653_016e-2,
        0.166_666_666_666_664_12,
        0.500_000_000_000_001_1
    ]
}

#[cfg(test)]
mod tests {
    //! Compares the accuracy that `Real::exp_scaled` documents with the C library's exponential in
    //! F64.

    use super::Real;

    fn f32_error(t: f32) -> f64 {
        let found = f64::from(f32::exp_scaled(t));
        let expected = f64::from(t).exp() * f64::from(f32::SCALE);
        let nearest = expected as f32;
        let unit = f64::from(nearest.next_up()) - f64::from(nearest);
        (found - expected).abs() / unit
    }

    fn f64_error(t: f64) -> f64 {
        let found = f64::exp_scaled(t) / f64::SCALE;
        let expected = t.exp();
        (found - expected).abs() / (expected.next_up() - expected)
    }

    /// Checks every 251st number from zero down to where the exponential rounds to zero.
    #[test]
    fn f32_is_within_one_unit_in_the_last_place() {
        let inputs = (0..=104.0_f32.to_bits()).step_by(251);
        let worst = inputs
            .map(|bits| f32_error(-f32::from_bits(bits)))
            .fold(0.0, f64::max);
        assert!(worst < 0.99, "{worst}");
    }

    /// Checks a million evenly spaced numbers, and a million evenly spaced over the exponents.
    #[test]
    fn f64_is_within_one_unit_of_the_c_library() {
        let even = (0..1_000_000).map(|i| f64::from(i) * -708.0e-6);
        let by_exponent =
            (0..1_000_000).map(|i| -(f64::from(i) * 60.0e-6 - 50.0).exp2().min(708.0));
        let worst = even.chain(by_exponent).map(f64_error).fold(0.0, f64::max);
        assert!(worst <= 1.0, "{worst}");
    }

    #[test]
    fn quotients_underflow_gradually() {
        let mut t = -87.0_f32;
        while t > -104.0 {
            let found = f64::from(f32::exp_scaled(t) / f32::SCALE);
            let smallest = f64::from(f32::from_bits(1));
            assert!(
                (found - f64::from(t).exp()).abs() / smallest < 1.5 || t > -88.0,
                "{t}"
            );
            t -= 0.01;
        }
        assert_eq!(f64::exp_scaled(-744.0) / f64::SCALE, (-744.0_f64).exp());
    }

    #[test]
    fn special_values() {
        assert_eq!(f32::exp_scaled(0.0).to_bits(), f32::SCALE.to_bits());
        assert_eq!(f64::exp_scaled(-0.0).to_bits(), f64::SCALE.to_bits());
        for t in [-105.0, -128.0, -1e30, f32::NEG_INFINITY] {
            assert_eq!((f32::exp_scaled(t) / f32::SCALE).to_bits(), 0, "{t}");
        }
        for t in [-746.0, -768.0, -1e300, f64::NEG_INFINITY] {
            assert_eq!((f64::exp_scaled(t) / f64::SCALE).to_bits(), 0, "{t}");
        }
        assert!(f32::is_nan(f32::exp_scaled(f32::NAN)) && f64::is_nan(f64::exp_scaled(f64::NAN)));
    }
}
