//! Elementwise operations on two operands.

use num_complex::Complex;

use super::array::Elements;
use super::elementwise::{blocks, pairs};
use super::wide::{Kind, Wide};
use super::{bug, complex, direct};
use crate::instruction::BinaryOperation as B;
use callbox_core::values::{ElementType, Result, Status};

/// Applies the operation to each pair of elements. `to` is the result's element type: a complex
/// type for `complex`, and otherwise the operands' type.
pub(super) fn binary(
    operation: B,
    x: Elements<'_>,
    y: Elements<'_>,
    to: ElementType,
) -> Result<Vec<u8>> {
    if x.element_type == ElementType::F32
        && to == ElementType::F32
        && let Some(bytes) = direct::binary(operation, x.bytes, y.bytes)
    {
        return bytes;
    }
    let bits = x.element_type.bit_width();
    match (Kind::of(x.element_type)?, operation) {
        (Kind::Signed, _) => blocks([x, y], to, |[x, y], out| signed(operation, bits, x, y, out)),
        (Kind::Unsigned, _) => blocks([x, y], to, |[x, y], out| {
            unsigned(operation, bits, x, y, out)
        }),
        (Kind::Real, B::Complex) => blocks([x, y], to, |[x, y], out: &mut [Complex<f64>]| {
            pairs(x, y, out, Complex::new)
        }),
        (Kind::Real, _) => blocks([x, y], to, |[x, y], out| real(operation, x, y, out)),
        (Kind::Complex, _) => blocks([x, y], to, |[x, y], out| {
            complex_binary(operation, x, y, out)
        }),
    }
}

/// The larger; NaN if either is NaN. 0 is larger than -0.
pub(super) fn maximum(x: f64, y: f64) -> f64 {
    // Without branches, the compiler computes several elements at once.
    if x.is_nan() | (x > y) | ((x == y) & x.is_sign_positive()) {
        x
    } else {
        y
    }
}

/// The smaller; NaN if either is NaN. -0 is smaller than 0.
pub(super) fn minimum(x: f64, y: f64) -> f64 {
    if x.is_nan() | (x < y) | ((x == y) & x.is_sign_negative()) {
        x
    } else {
        y
    }
}

fn signed(operation: B, bits: u32, x: &[i64], y: &[i64], out: &mut [i64]) -> Result<()> {
    // A negative amount is too large: XLA takes its bits as unsigned.
    let amount = |y: i64| u32::try_from(y).ok().filter(|&y| y < bits);
    match operation {
        B::Add => pairs(x, y, out, Wide::add),
        B::And => pairs(x, y, out, |x, y| x & y),
        B::Divide => pairs(x, y, out, |x, y| match y {
            0 => -1,
            _ => x.wrapping_div(y),
        }),
        B::Maximum => pairs(x, y, out, Ord::max),
        B::Minimum => pairs(x, y, out, Ord::min),
        B::Multiply => pairs(x, y, out, Wide::multiply),
        B::Or => pairs(x, y, out, |x, y| x | y),
        B::Power => pairs(x, y, out, signed_power),
        B::Remainder => pairs(x, y, out, |x, y| match y {
            0 => x,
            _ => x.wrapping_rem(y),
        }),
        B::ShiftLeft => pairs(x, y, out, |x, y| amount(y).map_or(0, |y| x << y)),
        B::ShiftRightArithmetic => pairs(x, y, out, |x, y| x >> amount(y).unwrap_or(bits - 1)),
        B::ShiftRightLogical => pairs(x, y, out, |x, y| {
            let own = x as u64 & (u64::MAX >> (64 - bits));
            amount(y).map_or(0, |y| (own >> y) as i64)
        }),
        B::Subtract => pairs(x, y, out, i64::wrapping_sub),
        B::Xor => pairs(x, y, out, |x, y| x ^ y),
        B::Atan2 | B::Complex => Err(refused(operation, "signed integers")),
    }
}

fn unsigned(operation: B, bits: u32, x: &[u64], y: &[u64], out: &mut [u64]) -> Result<()> {
    let amount = |y: u64| u32::try_from(y).ok().filter(|&y| y < bits);
    // An arithmetic shift copies the highest bit, also for unsigned types.
    let signed = |x: u64| (x << (64 - bits)) as i64 >> (64 - bits);
    match operation {
        B::Add => pairs(x, y, out, Wide::add),
        B::And => pairs(x, y, out, |x, y| x & y),
        B::Divide => pairs(x, y, out, |x, y| x.checked_div(y).unwrap_or(u64::MAX)),
        B::Maximum => pairs(x, y, out, Ord::max),
        B::Minimum => pairs(x, y, out, Ord::min),
        B::Multiply => pairs(x, y, out, Wide::multiply),
        B::Or => pairs(x, y, out, |x, y| x | y),
        B::Power => pairs(x, y, out, power),
        B::Remainder => pairs(x, y, out, |x, y| x.checked_rem(y).unwrap_or(x)),
        B::ShiftLeft => pairs(x, y, out, |x, y| amount(y).map_or(0, |y| x << y)),
        B::ShiftRightArithmetic => pairs(x, y, out, |x, y| {
            (signed(x) >> amount(y).unwrap_or(bits - 1)) as u64
        }),
        B::ShiftRightLogical => pairs(x, y, out, |x, y| amount(y).map_or(0, |y| x >> y)),
        B::Subtract => pairs(x, y, out, u64::wrapping_sub),
        B::Xor => pairs(x, y, out, |x, y| x ^ y),
        B::Atan2 | B::Complex => Err(refused(operation, "unsigned integers")),
    }
}

fn real(operation: B, x: &[f64], y: &[f64], out: &mut [f64]) -> Result<()> {
    match operation {
        B::Add => pairs(x, y, out, Wide::add),
        B::Atan2 => pairs(x, y, out, libm::atan2),
        B::Divide => pairs(x, y, out, |x, y| x / y),
        B::Maximum => pairs(x, y, out, maximum),
        B::Minimum => pairs(x, y, out, minimum),
        B::Multiply => pairs(x, y, out, Wide::multiply),
        B::Power => pairs(x, y, out, libm::pow),
        B::Remainder => pairs(x, y, out, |x, y| x % y),
        B::Subtract => pairs(x, y, out, |x, y| x - y),
        _ => Err(refused(operation, "floating-point numbers")),
    }
}

fn complex_binary(
    operation: B,
    x: &[Complex<f64>],
    y: &[Complex<f64>],
    out: &mut [Complex<f64>],
) -> Result<()> {
    match operation {
        B::Add => pairs(x, y, out, Wide::add),
        B::Atan2 => pairs(x, y, out, complex::atan2),
        B::Divide => pairs(x, y, out, complex::divide),
        B::Multiply => pairs(x, y, out, Wide::multiply),
        B::Power => pairs(x, y, out, complex::power),
        B::Subtract => pairs(x, y, out, |x, y| x - y),
        _ => Err(refused(operation, "complex numbers")),
    }
}

/// For a negative exponent, the truncated reciprocal. As in XLA, that of 0 is 0.
fn signed_power(base: i64, exponent: i64) -> i64 {
    match (base, u64::try_from(exponent)) {
        (_, Ok(exponent)) => power(base as u64, exponent) as i64,
        (1, Err(_)) => 1,
        (-1, Err(_)) if exponent % 2 == 0 => 1,
        (-1, Err(_)) => -1,
        (_, Err(_)) => 0,
    }
}

/// The wrapping power, for signed bases too: low bits depend on low bits alone.
///
/// `u64::wrapping_pow` takes exponents of 32 bits only.
fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1u64;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    result
}

fn refused(operation: B, found: &str) -> Status {
    bug(format_args!("{operation:?} of {found} was not refused"))
}

#[cfg(test)]
mod tests;
