//! Floating-point types, each with an exponential function that compiles to vector instructions.

use core::fmt::Debug;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, DivAssign, Sub};

/// A floating-point type that softmax is computed in.
pub trait Real:
    Copy
    + Debug
    + PartialOrd
    + Sum
    + Into<f64>
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Div<Output = Self>
    + DivAssign
    + 'static
{
    /// Zero.
    const ZERO: Self;
    /// Minus infinity.
    const NEG_INFINITY: Self;
    /// What [`exp_scaled`](Self::exp_scaled) multiplies by: a power of two.
    const SCALE: Self;

    /// `e^t * SCALE` for `t` that is not positive, and NaN for NaN.
    ///
    /// The scale keeps results normal numbers that would be subnormal or zero. Who divides by a number with the same scale
    /// gets a quotient that underflows gradually, rounded once. Below `t` = -104 (F32) or -746 (F64), where `e^t` itself
    /// rounds to zero, the result is no more than half the smallest subnormal number times `SCALE`.
    ///
    /// Accuracy, in units in the last place of the result: F32 has an error of at most 0.99 (all inputs from -104 to 0 were
    /// tried). F64 differs by at most 1 from the C library's `exp`, which is itself within 1 of the true value (a hundred
    /// million inputs were tried). `tests/accuracy.rs` tries a part of them each time.
    fn exp_scaled(t: Self) -> Self;

    /// The number nearest to a sum that was made in F64.
    fn from_f64(value: f64) -> Self;
}

/// The exponential: `t = k ln 2 + r` with a whole `k` and `|r| <= ln 2 / 2`, so that `e^t` is `2^k e^r`.
///
/// `k` is found by adding a number so large that its unit in the last place is 1; the bits of the sum then end in those of
/// `k`, and shifting them into the place of an exponent makes `2^k` without a conversion. `ln 2` is in two parts, of
/// which the product of `k` and the upper is exact. The polynomial's coefficients minimise the largest relative error
/// of `1 + r + r^2 q(r)` (found by Remez's algorithm in 50 digits).
macro_rules! real {
    (
        $type:ident, scale: $scale:literal, lowest: $lowest:literal, mantissa: $mantissa:literal, bias: $bias:literal,
        ln2: [$ln2_upper:expr, $ln2_lower:expr], polynomial: [$first:literal, $($coefficient:literal),*]
    ) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const NEG_INFINITY: Self = Self::NEG_INFINITY;
            const SCALE: Self = Self::from_bits(($bias + $scale) << $mantissa);

            #[inline(always)]
            fn exp_scaled(t: Self) -> Self {
                const ROUND: $type = 1.5 * (1_u64 << $mantissa) as $type + ($bias + $scale) as $type;
                const LN2_UPPER: $type = $ln2_upper;
                const LN2_LOWER: $type = $ln2_lower;
                // In this order a NaN stays one.
                let t = if t < $lowest { $lowest } else { t };
                let shifted = t * core::$type::consts::LOG2_E + ROUND;
                let k = shifted - ROUND;
                let r = (t - k * LN2_UPPER) - k * LN2_LOWER;
                let mut q: Self = $first;
                $(q = q * r + $coefficient;)*
                let power_of_two = Self::from_bits(shifted.to_bits() << $mantissa);
                ((r * r * q + r) + 1.0) * power_of_two
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as Self
            }
        }
    };
}

real! {
    f32, scale: 64, lowest: -128.0, mantissa: 23, bias: 127,
    ln2: [355.0 / 512.0, -2.121_944_4e-4],
    polynomial: [1.381_459_9e-3, 8.368_717e-3, 4.166_839e-2, 0.166_665_2, 0.499_999_94]
}

real! {
    f64, scale: 512, lowest: -768.0, mantissa: 52, bias: 1023,
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
