//! Conversions of values between element types.
//!
//! - To an integer: truncates, saturates, and gives 0 for NaN.
//! - Between integers: keeps the low bits.
//! - To PRED: whether the number is not 0.
//! - To floating point: the nearest number, rounded once.

use num_complex::Complex;

use super::array::Elements;
use super::bug;
use super::elementwise::{blocks, each};
use super::wide::{Kind, Wide};
use callbox_core::values::{ElementType, Result};

/// Converts each element.
pub(super) fn convert(x: Elements<'_>, to: ElementType) -> Result<Vec<u8>> {
    match (Kind::of(x.element_type)?, Kind::of(to)?) {
        (Kind::Signed, Kind::Signed) => cast(x, to, |x: i64| x),
        (Kind::Signed, Kind::Unsigned) => cast(x, to, |x: i64| x as u64),
        (Kind::Unsigned, Kind::Signed) => cast(x, to, |x: u64| x as i64),
        (Kind::Unsigned, Kind::Unsigned) => cast(x, to, |x: u64| x),
        (Kind::Signed, Kind::Real | Kind::Complex) if rounds_twice(x.element_type, to) => {
            integer_to_float(x, to, |x: i64| (x.unsigned_abs(), x < 0))
        }
        (Kind::Unsigned, Kind::Real | Kind::Complex) if rounds_twice(x.element_type, to) => {
            integer_to_float(x, to, |x: u64| (x, false))
        }
        (Kind::Real, Kind::Signed) => {
            let largest = i64::MAX >> (64 - to.bit_width());
            cast(x, to, |x: f64| (x as i64).clamp(-largest - 1, largest))
        }
        (Kind::Real, Kind::Unsigned) if to.is_pred() => cast(x, to, |x: f64| u64::from(x != 0.0)),
        (Kind::Real, Kind::Unsigned) => {
            let largest = u64::MAX >> (64 - to.bit_width());
            cast(x, to, |x: f64| (x as u64).min(largest))
        }
        (Kind::Complex, Kind::Complex) => cast(x, to, |x: Complex<f64>| x),
        (_, Kind::Real) if x.element_type.is_complex() => {
            Err(bug("a conversion from complex to real was not refused"))
        }
        (_, Kind::Real) => cast(x, to, |x: f64| x),
        (_, Kind::Complex) => cast(x, to, |x: Complex<f64>| x),
        (Kind::Complex, _) => Err(bug("a conversion from complex to real was not refused")),
    }
}

fn cast<A: Wide, R: Wide>(x: Elements<'_>, to: ElementType, f: impl Fn(A) -> R) -> Result<Vec<u8>> {
    blocks([x], to, |[x], out| each(x, out, &f))
}

/// Whether rounding an integer to `f64` and then to `to` may miss the nearest number.
fn rounds_twice(from: ElementType, to: ElementType) -> bool {
    from.bit_width() == 64 && !matches!(to, ElementType::F64 | ElementType::C128)
}

/// Converts 64-bit integers to a type narrower than `f64`. `split` gives magnitude and sign.
fn integer_to_float<A: Wide>(
    x: Elements<'_>,
    to: ElementType,
    split: impl Fn(A) -> (u64, bool),
) -> Result<Vec<u8>> {
    let widen = |x| match split(x) {
        (magnitude, true) => -round_to_odd(magnitude),
        (magnitude, false) => round_to_odd(magnitude),
    };
    if to.is_complex() {
        cast(x, to, |x| Complex::from(widen(x)))
    } else {
        cast(x, to, widen)
    }
}

/// Rounds to `f64` with "round to odd": an inexact result has an odd last bit.
///
/// Rounding that result to a narrower type equals rounding `x` once, because both are on the same
/// side of every midpoint of the narrower type.
fn round_to_odd(x: u64) -> f64 {
    let excess = (u64::BITS - x.leading_zeros()).saturating_sub(f64::MANTISSA_DIGITS);
    let kept = x >> excess;
    let odd = u64::from(kept << excess != x);
    ((kept | odd) << excess) as f64
}

#[cfg(test)]
mod tests;
