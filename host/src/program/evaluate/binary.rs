//! Operations on two elements.

use num_complex::Complex;

use super::array::Elements;
use super::elementwise::{blocks, pairs};
use super::wide::{Kind, Wide};
use super::{bug, complex};
use crate::program::instruction::BinaryOperation;
use crate::values::{ElementType, Result, Status};

/// The operation on each two elements. `to` is the result's element type: the complex one for `complex`, and otherwise
/// the operands'.
pub(super) fn binary(
    operation: BinaryOperation,
    x: Elements<'_>,
    y: Elements<'_>,
    to: ElementType,
) -> Result<Vec<u8>> {
    let bits = x.element_type.bit_width();
    match (Kind::of(x.element_type)?, operation) {
        (Kind::Signed, _) => blocks([x, y], to, |[x, y], out| signed(operation, bits, x, y, out)),
        (Kind::Unsigned, _) => blocks([x, y], to, |[x, y], out| {
            unsigned(operation, bits, x, y, out)
        }),
        (Kind::Real, BinaryOperation::Complex) => {
            blocks([x, y], to, |[x, y], out: &mut [Complex<f64>]| {
                pairs(x, y, out, Complex::new);
                Ok(())
            })
        }
        (Kind::Real, _) => blocks([x, y], to, |[x, y], out| real(operation, x, y, out)),
        (Kind::Complex, _) => blocks([x, y], to, |[x, y], out| {
            complex_binary(operation, x, y, out)
        }),
    }
}

/// The larger; NaN if either is NaN. 0 is larger than -0.
pub(super) fn maximum(x: f64, y: f64) -> f64 {
    match x.is_nan() || x > y || (x == y && x.is_sign_positive()) {
        true => x,
        false => y,
    }
}

/// The smaller; NaN if either is NaN. -0 is smaller than 0.
pub(super) fn minimum(x: f64, y: f64) -> f64 {
    match x.is_nan() || x < y || (x == y && x.is_sign_negative()) {
        true => x,
        false => y,
    }
}

fn signed(
    operation: BinaryOperation,
    bits: u32,
    x: &[i64],
    y: &[i64],
    out: &mut [i64],
) -> Result<()> {
    // Of a negative amount the bits count, which make it a large one.
    let amount = |y: i64| u32::try_from(y).ok().filter(|&y| y < bits);
    match operation {
        BinaryOperation::Add => pairs(x, y, out, Wide::add),
        BinaryOperation::And => pairs(x, y, out, |x, y| x & y),
        BinaryOperation::Divide => pairs(x, y, out, |x, y| match y {
            0 => -1,
            _ => x.wrapping_div(y),
        }),
        BinaryOperation::Maximum => pairs(x, y, out, Ord::max),
        BinaryOperation::Minimum => pairs(x, y, out, Ord::min),
        BinaryOperation::Multiply => pairs(x, y, out, Wide::multiply),
        BinaryOperation::Or => pairs(x, y, out, |x, y| x | y),
        BinaryOperation::Power => pairs(x, y, out, signed_power),
        BinaryOperation::Remainder => pairs(x, y, out, |x, y| match y {
            0 => x,
            _ => x.wrapping_rem(y),
        }),
        BinaryOperation::ShiftLeft => pairs(x, y, out, |x, y| amount(y).map_or(0, |y| x << y)),
        BinaryOperation::ShiftRightArithmetic => {
            pairs(x, y, out, |x, y| x >> amount(y).unwrap_or(bits - 1));
        }
        BinaryOperation::ShiftRightLogical => pairs(x, y, out, |x, y| {
            let own = x as u64 & (u64::MAX >> (64 - bits));
            amount(y).map_or(0, |y| (own >> y) as i64)
        }),
        BinaryOperation::Subtract => pairs(x, y, out, i64::wrapping_sub),
        BinaryOperation::Xor => pairs(x, y, out, |x, y| x ^ y),
        BinaryOperation::Atan2 | BinaryOperation::Complex => {
            return Err(refused(operation, "signed integers"));
        }
    }
    Ok(())
}

fn unsigned(
    operation: BinaryOperation,
    bits: u32,
    x: &[u64],
    y: &[u64],
    out: &mut [u64],
) -> Result<()> {
    let amount = |y: u64| u32::try_from(y).ok().filter(|&y| y < bits);
    // An arithmetic shift takes the highest bit for a sign, whatever the type.
    let signed = |x: u64| (x << (64 - bits)) as i64 >> (64 - bits);
    match operation {
        BinaryOperation::Add => pairs(x, y, out, Wide::add),
        BinaryOperation::And => pairs(x, y, out, |x, y| x & y),
        BinaryOperation::Divide => pairs(x, y, out, |x, y| x.checked_div(y).unwrap_or(u64::MAX)),
        BinaryOperation::Maximum => pairs(x, y, out, Ord::max),
        BinaryOperation::Minimum => pairs(x, y, out, Ord::min),
        BinaryOperation::Multiply => pairs(x, y, out, Wide::multiply),
        BinaryOperation::Or => pairs(x, y, out, |x, y| x | y),
        BinaryOperation::Power => pairs(x, y, out, power),
        BinaryOperation::Remainder => pairs(x, y, out, |x, y| x.checked_rem(y).unwrap_or(x)),
        BinaryOperation::ShiftLeft => pairs(x, y, out, |x, y| amount(y).map_or(0, |y| x << y)),
        BinaryOperation::ShiftRightArithmetic => {
            pairs(x, y, out, |x, y| {
                (signed(x) >> amount(y).unwrap_or(bits - 1)) as u64
            });
        }
        BinaryOperation::ShiftRightLogical => {
            pairs(x, y, out, |x, y| amount(y).map_or(0, |y| x >> y));
        }
        BinaryOperation::Subtract => pairs(x, y, out, u64::wrapping_sub),
        BinaryOperation::Xor => pairs(x, y, out, |x, y| x ^ y),
        BinaryOperation::Atan2 | BinaryOperation::Complex => {
            return Err(refused(operation, "unsigned integers"));
        }
    }
    Ok(())
}

fn real(operation: BinaryOperation, x: &[f64], y: &[f64], out: &mut [f64]) -> Result<()> {
    match operation {
        BinaryOperation::Add => pairs(x, y, out, Wide::add),
        BinaryOperation::Atan2 => pairs(x, y, out, libm::atan2),
        BinaryOperation::Divide => pairs(x, y, out, |x, y| x / y),
        BinaryOperation::Maximum => pairs(x, y, out, maximum),
        BinaryOperation::Minimum => pairs(x, y, out, minimum),
        BinaryOperation::Multiply => pairs(x, y, out, Wide::multiply),
        BinaryOperation::Power => pairs(x, y, out, libm::pow),
        BinaryOperation::Remainder => pairs(x, y, out, |x, y| x % y),
        BinaryOperation::Subtract => pairs(x, y, out, |x, y| x - y),
        _ => return Err(refused(operation, "floating-point numbers")),
    }
    Ok(())
}

fn complex_binary(
    operation: BinaryOperation,
    x: &[Complex<f64>],
    y: &[Complex<f64>],
    out: &mut [Complex<f64>],
) -> Result<()> {
    match operation {
        BinaryOperation::Add => pairs(x, y, out, Wide::add),
        BinaryOperation::Atan2 => pairs(x, y, out, complex::atan2),
        BinaryOperation::Divide => pairs(x, y, out, complex::divide),
        BinaryOperation::Multiply => pairs(x, y, out, Wide::multiply),
        BinaryOperation::Power => pairs(x, y, out, complex::power),
        BinaryOperation::Subtract => pairs(x, y, out, |x, y| x - y),
        _ => return Err(refused(operation, "complex numbers")),
    }
    Ok(())
}

/// Of a negative exponent the reciprocal, without its fraction: XLA's choice also where it would be infinite.
fn signed_power(base: i64, exponent: i64) -> i64 {
    match (base, u64::try_from(exponent)) {
        (_, Ok(exponent)) => power(base as u64, exponent) as i64,
        (1, Err(_)) => 1,
        (-1, Err(_)) if exponent % 2 == 0 => 1,
        (-1, Err(_)) => -1,
        (_, Err(_)) => 0,
    }
}

/// Wrapping, which also serves signed bases: low bits depend on low bits alone.
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

fn refused(operation: BinaryOperation, found: &str) -> Status {
    bug(format_args!("{operation:?} of {found} was not refused"))
}

#[cfg(test)]
mod tests;
