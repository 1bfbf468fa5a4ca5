//! Functions of each element of an array of F32 or F64.
//!
//! Those of F64 are the crate `libm`'s, one element at a time. Each of F32 is straight-line code:
//! choices are selections between two computed values, so that the compiler can compute several
//! elements at once. The coefficients of the polynomials minimise the largest relative error, by
//! least squares with Lawson's weights.

use callbox_abi::Elementwise;

use crate::rows::{self, Real};
use crate::simd::{self, Vectorized};
use crate::{PIECE, canonical};

/// A type of elements: `f32` or `f64`.
pub trait Element: rows::Element {
    /// Replaces each element by the function of it.
    #[doc(hidden)]
    fn replace(function: Elementwise, y: &mut [Self]);
}

impl Element for f32 {
    fn replace(function: Elementwise, y: &mut [Self]) {
        piece(function, y);
    }
}

impl Element for f64 {
    fn replace(function: Elementwise, y: &mut [Self]) {
        let function = match function {
            Elementwise::Exp => libm::exp,
            Elementwise::Log => libm::log,
            Elementwise::Tanh => libm::tanh,
            Elementwise::Erf => libm::erf,
            Elementwise::Sigmoid => sigmoid_f64,
            Elementwise::Rsqrt => |x: Self| 1.0 / x.sqrt(),
            Elementwise::Sin => libm::sin,
            Elementwise::Cos => libm::cos,
        };
        for y in y {
            *y = Real::canonical(function(*y));
        }
    }
}

/// Writes the function of each element of `x` to `y`, as far as the shorter of the two goes.
///
/// # Errors
/// The error of `pause`.
pub fn map<T: Element, E>(
    function: Elementwise,
    x: &[T],
    y: &mut [T],
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    for (x, y) in x.chunks(PIECE).zip(y.chunks_mut(PIECE)) {
        let length = x.len().min(y.len());
        let (x, y) = (&x[..length], &mut y[..length]);
        y.copy_from_slice(x);
        T::replace(function, y);
        pause()?;
    }
    Ok(())
}

/// Replaces each element of `y` by the function of it.
///
/// # Errors
/// The error of `pause`.
pub fn map_in_place<T: Element, E>(
    function: Elementwise,
    y: &mut [T],
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    for y in y.chunks_mut(PIECE) {
        T::replace(function, y);
        pause()?;
    }
    Ok(())
}

fn piece(function: Elementwise, y: &mut [f32]) {
    match function {
        Elementwise::Exp => each(y, exp),
        Elementwise::Log => each(y, log),
        Elementwise::Tanh => each(y, tanh),
        Elementwise::Erf => each(y, erf),
        Elementwise::Sigmoid => each(y, sigmoid),
        Elementwise::Rsqrt => each(y, |x| 1.0 / x.sqrt()),
        Elementwise::Sin => angles(y, sin, libm::sinf),
        Elementwise::Cos => angles(y, cos, libm::cosf),
    }
}

/// Replaces each element by a function of it.
#[inline(always)]
pub(crate) fn each(y: &mut [f32], function: impl Fn(f32) -> f32) {
    struct Each<'a, F>(&'a mut [f32], F);
    impl<F: Fn(f32) -> f32> Vectorized for Each<'_, F> {
        type Output = ();
        #[inline(always)]
        fn run(self) {
            for y in self.0 {
                *y = canonical((self.1)(*y));
            }
        }
    }
    simd::run(Each(y, function));
}

/// The largest angle that [`reduce`] reduces exactly enough.
const LARGEST_ANGLE: f32 = 1_000_000.0;

/// Replaces each angle by `small` of it, or by `large` if it is too large for the former.
fn angles(y: &mut [f32], small: impl Fn(f32) -> f32, large: impl Fn(f32) -> f32) {
    let is_large = |x: f32| x.abs() > LARGEST_ANGLE;
    if y.iter().fold(false, |any, &x| any | is_large(x)) {
        for y in y {
            *y = canonical(if is_large(*y) { large(*y) } else { small(*y) });
        }
    } else {
        each(y, small);
    }
}

/// Evaluates a polynomial, whose coefficients begin with that of the highest power.
macro_rules! polynomial {
    ($x:expr, [$first:literal $(, $coefficient:literal)*]) => {{
        let x = $x;
        let sum = $first;
        $(let sum = sum * x + $coefficient;)*
        sum
    }};
}

/// The upper part of `ln 2`, of 9 bits, so that its product with an exponent is exact.
const LN2_UPPER: f32 = 0.693_359_4;
/// `ln 2` less its upper part.
const LN2_LOWER: f32 = -2.121_944_4e-4;

/// `e^x`: `x = k ln 2 + r` with an integer `k`, so that `e^x` is `2^k e^r`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding a number whose unit in the last place is 1 rounds to an integer, and leaves it in the
    // low bits.
    const ROUND: f32 = 12_582_912.0;
    // The order of the operands keeps NaN.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = (x - k * LN2_UPPER) - k * LN2_LOWER;
    let q = polynomial!(
        r,
        [
            0.001_381_443_1_f32,
            0.008_368_797,
            0.041_668_396,
            0.166_665_2,
            0.499_999_94
        ]
    );
    let e = (r * r * q + r) + 1.0;
    // Two factors, because 2^k alone can be too large or too small for a number.
    let k = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = k >> 1;
    let power = |k: i32| f32::from_bits((k.wrapping_add(127) as u32) << 23);
    e * power(half) * power(k.wrapping_sub(half))
}

/// The logarithm: `x = 2^k (1 + f)` with `sqrt(1/2) <= 1 + f < sqrt(2)`.
#[inline(always)]
fn log(x: f32) -> f32 {
    const SQRT_HALF: i32 = 0x3f35_04f3;
    let is_subnormal = x < f32::MIN_POSITIVE;
    let scaled = if is_subnormal { x * 8_388_608.0 } else { x };
    let shift = if is_subnormal { 23.0 } else { 0.0 };
    let bits = (scaled.to_bits() as i32).wrapping_sub(SQRT_HALF);
    let k = (bits >> 23) as f32 - shift;
    let f = f32::from_bits((bits & 0x7f_ffff).wrapping_add(SQRT_HALF) as u32) - 1.0;
    let q = polynomial!(
        f,
        [
            0.067_520_59_f32,
            -0.116_849_706,
            0.118_908_48,
            -0.124_043_435,
            0.142_190_53,
            -0.166_680_43,
            0.200_021_43,
            -0.250_000_1,
            0.333_333_13
        ]
    );
    let square = f * f;
    let rest = square * f * q + k * LN2_LOWER - 0.5 * square;
    let finite = f + rest + k * LN2_UPPER;
    let positive = if x == f32::INFINITY { x } else { finite };
    let zero_or_more = if x == 0.0 {
        f32::NEG_INFINITY
    } else {
        positive
    };
    if x >= 0.0 { zero_or_more } else { f32::NAN }
}

#[inline(always)]
fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let q = polynomial!(
        z,
        [
            -0.005_704_978_5_f32,
            0.020_639_079,
            -0.053_739_71,
            0.133_314_42,
            -0.333_332_8
        ]
    );
    let small = x + x * (z * q);
    // At 10 the result has long become 1.
    let a = if a > 10.0 { 10.0 } else { a };
    let large = 1.0 - 2.0 / (exp(a + a) + 1.0);
    // The sign is that of `x`, for a zero, too.
    (if a < 0.625 { small } else { large }).copysign(x)
}

#[inline(always)]
fn erf(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let q = polynomial!(
        z,
        [
            7.853_858e-5_f32,
            -0.000_801_019_25,
            0.005_188_327_7,
            -0.026_853_811,
            0.112_835_854,
            -0.376_126_26,
            0.128_379_17
        ]
    );
    let small = x + x * q;
    // At 3.95 the result has become 1.
    let a = if a > 3.95 { 3.95 } else { a };
    let exponent = polynomial!(
        a,
        [
            2.168_685e-5_f32,
            -0.000_441_336_4,
            0.004_204_562,
            -0.025_208_257,
            0.108_418_58,
            0.633_219_9,
            1.129_578_5,
            -0.000_188_040_33
        ]
    );
    let large = 1.0 - exp(-exponent);
    if a < 1.0 { small } else { large.copysign(x) }
}

/// `1 / (1 + e^-x)`, by the power that does not overflow.
#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    let numerator = if x < 0.0 { e } else { 1.0 };
    numerator / (1.0 + e)
}

/// [`sigmoid`] of F64.
fn sigmoid_f64(x: f64) -> f64 {
    let e = libm::exp(-x.abs());
    let numerator = if x < 0.0 { e } else { 1.0 };
    numerator / (1.0 + e)
}

/// An angle less the nearest multiple of a quarter turn, and the low bits of that multiple.
#[inline(always)]
fn reduce(x: f32) -> (f64, u64) {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // pi / 2 in two parts: the upper one has 33 bits.
    const UPPER: f64 = 1.570_796_326_734_125_6;
    const LOWER: f64 = 6.077_100_506_506_192e-11;
    let x = f64::from(x);
    let shifted = x * std::f64::consts::FRAC_2_PI + ROUND;
    let k = shifted - ROUND;
    ((x - k * UPPER) - k * LOWER, shifted.to_bits())
}

/// The sine of `r` plus `quarters` quarter turns.
#[inline(always)]
fn sin_of(r: f64, quarters: u64) -> f32 {
    let z = r * r;
    let sin = r
        * (1.0
            + z * polynomial!(
                z,
                [
                    2.718_304_140_528_333e-6_f64,
                    -0.000_198_393_340_718_202_16,
                    0.008_333_329_383_537_863,
                    -0.166_666_666_416_064_54
                ]
            ));
    let cos = 1.0 - 0.5 * z
        + z * z
            * polynomial!(
                z,
                [
                    -2.721_016_788_138_249e-7_f64,
                    2.479_951_917_133_346_8e-5,
                    -0.001_388_888_375_026_921,
                    0.041_666_666_622_791_99
                ]
            );
    let value = if quarters & 1 == 0 { sin } else { cos };
    let sign = (quarters & 2) << 62;
    f64::from_bits(value.to_bits() ^ sign) as f32
}

#[inline(always)]
fn sin(x: f32) -> f32 {
    let (r, quarters) = reduce(x);
    sin_of(r, quarters)
}

#[inline(always)]
fn cos(x: f32) -> f32 {
    let (r, quarters) = reduce(x);
    sin_of(r, quarters.wrapping_add(1))
}
