//! Operations on one element.

use num_complex::Complex;

use super::array::Elements;
use super::elementwise::{blocks, each};
use super::wide::Kind;
use super::{bug, complex};
use crate::program::instruction::UnaryOperation;
use crate::values::{ElementType, Result, Status};

/// The operation on each element. `to` is the result's element type: PRED for `is-finite`, that of a part for the real
/// parts of complex numbers, and otherwise the operand's.
pub(super) fn unary(
    operation: UnaryOperation,
    x: Elements<'_>,
    to: ElementType,
) -> Result<Vec<u8>> {
    use UnaryOperation as U;
    let bits = match x.element_type {
        ElementType::Pred => 1,
        other => other.bit_width(),
    };
    match (Kind::of(x.element_type)?, operation) {
        (Kind::Signed, _) => blocks([x], to, |[x], out| signed(operation, bits, x, out)),
        (Kind::Unsigned, _) => blocks([x], to, |[x], out| unsigned(operation, bits, x, out)),
        (Kind::Real, U::IsFinite) => blocks([x], to, |[x]: [&[f64]; 1], out: &mut [u64]| {
            each(x, out, |x| x.is_finite().into());
            Ok(())
        }),
        (Kind::Real, _) => blocks([x], to, |[x], out| real(operation, x, out)),
        (Kind::Complex, U::Abs | U::Real | U::Imag) => {
            blocks([x], to, |[x], out| part(operation, x, out))
        }
        (Kind::Complex, _) => blocks([x], to, |[x], out| complex_unary(operation, x, out)),
    }
}

fn signed(operation: UnaryOperation, bits: u32, x: &[i64], out: &mut [i64]) -> Result<()> {
    // The element's own bits, without those of the sign's extension.
    let own = |x: i64| x as u64 & (u64::MAX >> (64 - bits));
    match operation {
        UnaryOperation::Abs => each(x, out, i64::wrapping_abs),
        UnaryOperation::CountLeadingZeros => {
            each(x, out, |x| i64::from(own(x).leading_zeros() + bits) - 64);
        }
        UnaryOperation::Negate => each(x, out, i64::wrapping_neg),
        UnaryOperation::Not => each(x, out, |x| !x),
        UnaryOperation::PopulationCount => each(x, out, |x| own(x).count_ones().into()),
        UnaryOperation::Sign => each(x, out, i64::signum),
        _ => return Err(refused(operation, "signed integers")),
    }
    Ok(())
}

fn unsigned(operation: UnaryOperation, bits: u32, x: &[u64], out: &mut [u64]) -> Result<()> {
    match operation {
        UnaryOperation::Abs => each(x, out, |x| x),
        UnaryOperation::CountLeadingZeros => {
            each(x, out, |x| u64::from(x.leading_zeros() + bits) - 64);
        }
        UnaryOperation::Negate => each(x, out, u64::wrapping_neg),
        UnaryOperation::Not => each(x, out, |x| !x & (u64::MAX >> (64 - bits))),
        UnaryOperation::PopulationCount => each(x, out, |x| x.count_ones().into()),
        UnaryOperation::Sign => each(x, out, |x| x.min(1)),
        _ => return Err(refused(operation, "unsigned integers")),
    }
    Ok(())
}

/// Transcendental functions are those of the crate `libm`, not of the platform's C library: a result does not depend on
/// where it is computed.
fn real(operation: UnaryOperation, x: &[f64], out: &mut [f64]) -> Result<()> {
    match operation {
        UnaryOperation::Abs => each(x, out, f64::abs),
        UnaryOperation::Cbrt => each(x, out, libm::cbrt),
        UnaryOperation::Ceil => each(x, out, f64::ceil),
        UnaryOperation::Cosine => each(x, out, libm::cos),
        UnaryOperation::Erf => each(x, out, libm::erf),
        UnaryOperation::Exponential => each(x, out, libm::exp),
        UnaryOperation::ExponentialMinusOne => each(x, out, libm::expm1),
        UnaryOperation::Floor => each(x, out, f64::floor),
        UnaryOperation::Imag => each(x, out, |_| 0.0),
        UnaryOperation::Log => each(x, out, libm::log),
        UnaryOperation::LogPlusOne => each(x, out, libm::log1p),
        UnaryOperation::Logistic => each(x, out, logistic),
        UnaryOperation::Negate => each(x, out, |x| -x),
        UnaryOperation::Real => each(x, out, |x| x),
        UnaryOperation::RoundNearestAfz => each(x, out, f64::round),
        UnaryOperation::RoundNearestEven => each(x, out, f64::round_ties_even),
        UnaryOperation::Rsqrt => each(x, out, |x| 1.0 / x.sqrt()),
        UnaryOperation::Sign => each(x, out, sign),
        UnaryOperation::Sine => each(x, out, libm::sin),
        UnaryOperation::Sqrt => each(x, out, f64::sqrt),
        UnaryOperation::Tan => each(x, out, libm::tan),
        UnaryOperation::Tanh => each(x, out, libm::tanh),
        UnaryOperation::CountLeadingZeros
        | UnaryOperation::IsFinite
        | UnaryOperation::Not
        | UnaryOperation::PopulationCount => {
            return Err(refused(operation, "floating-point numbers"));
        }
    }
    Ok(())
}

/// Zeros and NaN are their own signs.
fn sign(x: f64) -> f64 {
    match x == 0.0 || x.is_nan() {
        true => x,
        false => 1f64.copysign(x),
    }
}

/// Without the overflow that `exp(-x)` has.
fn logistic(x: f64) -> f64 {
    let small = libm::exp(-x.abs());
    match x < 0.0 {
        true => small / (1.0 + small),
        false => 1.0 / (1.0 + small),
    }
}

fn part(operation: UnaryOperation, x: &[Complex<f64>], out: &mut [f64]) -> Result<()> {
    match operation {
        UnaryOperation::Abs => each(x, out, complex::abs),
        UnaryOperation::Real => each(x, out, |x| x.re),
        UnaryOperation::Imag => each(x, out, |x| x.im),
        _ => return Err(refused(operation, "complex numbers' parts")),
    }
    Ok(())
}

fn complex_unary(
    operation: UnaryOperation,
    x: &[Complex<f64>],
    out: &mut [Complex<f64>],
) -> Result<()> {
    match operation {
        UnaryOperation::Cosine => each(x, out, complex::cos),
        UnaryOperation::Exponential => each(x, out, complex::exp),
        UnaryOperation::ExponentialMinusOne => each(x, out, complex::exp_m1),
        UnaryOperation::Log => each(x, out, complex::ln),
        UnaryOperation::LogPlusOne => each(x, out, complex::ln_1p),
        UnaryOperation::Logistic => each(x, out, complex::logistic),
        UnaryOperation::Negate => each(x, out, |x| -x),
        UnaryOperation::Rsqrt => each(x, out, complex::rsqrt),
        UnaryOperation::Sign => each(x, out, complex::sign),
        UnaryOperation::Sine => each(x, out, complex::sin),
        UnaryOperation::Sqrt => each(x, out, complex::sqrt),
        UnaryOperation::Tan => each(x, out, complex::tan),
        UnaryOperation::Tanh => each(x, out, complex::tanh),
        _ => return Err(refused(operation, "complex numbers")),
    }
    Ok(())
}

fn refused(operation: UnaryOperation, found: &str) -> Status {
    bug(format_args!("{operation:?} of {found} was not refused"))
}

#[cfg(test)]
mod tests;
