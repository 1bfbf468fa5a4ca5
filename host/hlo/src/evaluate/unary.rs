//! Elementwise operations on one operand.

use num_complex::Complex;

use super::array::Elements;
use super::elementwise::{blocks, each};
use super::wide::Kind;
use super::{bug, complex, direct};
use crate::instruction::UnaryOperation as U;
use callbox_core::values::{ElementType, Result, Status};

/// Applies the operation to each element. `to` is the result's element type: PRED for `is-finite`,
/// the type of the parts for `abs`, `real` and `imag` of complex numbers, and otherwise the
/// operand's type.
pub(super) fn unary(operation: U, x: Elements<'_>, to: ElementType) -> Result<Vec<u8>> {
    if x.element_type == ElementType::F32
        && to == ElementType::F32
        && let Some(bytes) = direct::unary(operation, x.bytes)
    {
        return bytes;
    }
    let bits = match x.element_type {
        ElementType::Pred => 1,
        other => other.bit_width(),
    };
    match (Kind::of(x.element_type)?, operation) {
        (Kind::Signed, _) => blocks([x], to, |[x], out| signed(operation, bits, x, out)),
        (Kind::Unsigned, _) => blocks([x], to, |[x], out| unsigned(operation, bits, x, out)),
        (Kind::Real, U::IsFinite) => blocks([x], to, |[x]: [&[f64]; 1], out: &mut [u64]| {
            each(x, out, |x| x.is_finite().into())
        }),
        (Kind::Real, _) => blocks([x], to, |[x], out| real(operation, x, out)),
        (Kind::Complex, U::Abs | U::Real | U::Imag) => {
            blocks([x], to, |[x], out| part(operation, x, out))
        }
        (Kind::Complex, _) => blocks([x], to, |[x], out| complex_unary(operation, x, out)),
    }
}

fn signed(operation: U, bits: u32, x: &[i64], out: &mut [i64]) -> Result<()> {
    // The element's own bits, without the sign extension.
    let own = |x: i64| x as u64 & (u64::MAX >> (64 - bits));
    match operation {
        U::Abs => each(x, out, i64::wrapping_abs),
        U::CountLeadingZeros => each(x, out, |x| i64::from(own(x).leading_zeros() + bits) - 64),
        U::Negate => each(x, out, i64::wrapping_neg),
        U::Not => each(x, out, |x| !x),
        U::PopulationCount => each(x, out, |x| own(x).count_ones().into()),
        U::Sign => each(x, out, i64::signum),
        _ => Err(refused(operation, "signed integers")),
    }
}

fn unsigned(operation: U, bits: u32, x: &[u64], out: &mut [u64]) -> Result<()> {
    match operation {
        U::Abs => each(x, out, |x| x),
        U::CountLeadingZeros => each(x, out, |x| u64::from(x.leading_zeros() + bits) - 64),
        U::Negate => each(x, out, u64::wrapping_neg),
        U::Not => each(x, out, |x| !x & (u64::MAX >> (64 - bits))),
        U::PopulationCount => each(x, out, |x| x.count_ones().into()),
        U::Sign => each(x, out, |x| x.min(1)),
        _ => Err(refused(operation, "unsigned integers")),
    }
}

/// Transcendental functions come from the crate `libm`, so that results do not depend on the
/// platform's C library.
fn real(operation: U, x: &[f64], out: &mut [f64]) -> Result<()> {
    match operation {
        U::Abs => each(x, out, f64::abs),
        U::Cbrt => each(x, out, libm::cbrt),
        U::Ceil => each(x, out, f64::ceil),
        U::Cosine => each(x, out, libm::cos),
        U::Erf => each(x, out, libm::erf),
        U::Exponential => each(x, out, libm::exp),
        U::ExponentialMinusOne => each(x, out, libm::expm1),
        U::Floor => each(x, out, f64::floor),
        U::Imag => each(x, out, |_| 0.0),
        U::Log => each(x, out, libm::log),
        U::LogPlusOne => each(x, out, libm::log1p),
        U::Logistic => each(x, out, logistic),
        U::Negate => each(x, out, |x| -x),
        U::Real => each(x, out, |x| x),
        U::RoundNearestAfz => each(x, out, f64::round),
        U::RoundNearestEven => each(x, out, f64::round_ties_even),
        U::Rsqrt => each(x, out, |x| 1.0 / x.sqrt()),
        U::Sign => each(x, out, sign),
        U::Sine => each(x, out, libm::sin),
        U::Sqrt => each(x, out, f64::sqrt),
        U::Tan => each(x, out, libm::tan),
        U::Tanh => each(x, out, libm::tanh),
        U::CountLeadingZeros | U::IsFinite | U::Not | U::PopulationCount => {
            Err(refused(operation, "floating-point numbers"))
        }
    }
}

/// 1 or -1. Zeros and NaN are their own signs.
fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() {
        x
    } else {
        1f64.copysign(x)
    }
}

/// 1 / (1 + exp(-x)), without overflow.
fn logistic(x: f64) -> f64 {
    let small = libm::exp(-x.abs());
    if x < 0.0 {
        small / (1.0 + small)
    } else {
        1.0 / (1.0 + small)
    }
}

fn part(operation: U, x: &[Complex<f64>], out: &mut [f64]) -> Result<()> {
    match operation {
        U::Abs => each(x, out, complex::abs),
        U::Real => each(x, out, |x| x.re),
        U::Imag => each(x, out, |x| x.im),
        _ => Err(refused(operation, "complex numbers' parts")),
    }
}

fn complex_unary(operation: U, x: &[Complex<f64>], out: &mut [Complex<f64>]) -> Result<()> {
    match operation {
        U::Cosine => each(x, out, complex::cos),
        U::Exponential => each(x, out, complex::exp),
        U::ExponentialMinusOne => each(x, out, complex::exp_m1),
        U::Log => each(x, out, complex::ln),
        U::LogPlusOne => each(x, out, complex::ln_1p),
        U::Logistic => each(x, out, complex::logistic),
        U::Negate => each(x, out, |x| -x),
        U::Rsqrt => each(x, out, complex::rsqrt),
        U::Sign => each(x, out, complex::sign),
        U::Sine => each(x, out, complex::sin),
        U::Sqrt => each(x, out, complex::sqrt),
        U::Tan => each(x, out, complex::tan),
        U::Tanh => each(x, out, complex::tanh),
        _ => Err(refused(operation, "complex numbers")),
    }
}

fn refused(operation: U, found: &str) -> Status {
    bug(format_args!("{operation:?} of {found} was not refused"))
}

#[cfg(test)]
mod tests;
