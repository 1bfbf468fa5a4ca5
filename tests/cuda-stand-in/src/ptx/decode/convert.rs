//! Conversions: `cvt`.

use super::half::decode_half;
use super::{Decoded, Mnemonic, Operand, exactly, unary};
use crate::ptx::body::Body;
use crate::ptx::code::{Operation, Unary};
use crate::ptx::rounding::{BRAIN, DOUBLE, Format, HALF, Rounding, SINGLE, double_bits};
use crate::ptx::types::{Type, low_bits, sign_extended};

/// The modifiers of `cvt`.
#[derive(Clone, Copy)]
struct Mode {
    rounding: Option<Rounding>,
    /// `.rni` and similar: rounds to an integer.
    to_integer: Option<Rounding>,
    flushes: bool,
    saturates: bool,
    rectifies: bool,
}

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let rounding = op.rounding();
    let to_integer = op.take(|part| match part {
        "rni" => Some(Rounding::Nearest),
        "rzi" => Some(Rounding::Zero),
        "rmi" => Some(Rounding::Down),
        "rpi" => Some(Rounding::Up),
        _ => None,
    });
    let (flushes, saturates, rectifies) = (op.takes("ftz"), op.takes("sat"), op.takes("relu"));
    let mode = Mode {
        rounding,
        to_integer,
        flushes,
        saturates,
        rectifies,
    };
    let to = op.kind()?;
    let from = op.kind()?;
    if let Some(half) = to.half_of_pair() {
        if from != Type::F32 {
            return op.no_type(from);
        }
        let (high, low) = (
            float_to_float(Type::F32, half, mode)?,
            float_to_float(Type::F32, half, mode)?,
        );
        let [target, a, b] = exactly(operands)?;
        let slots = [body.value(a, from)?, body.value(b, from)?];
        let function = Box::new(move |a, b| (high(a) << 16) | low(b));
        return Ok(Operation::Binary {
            to: body.target(target)?,
            from: slots,
            function,
        });
    }
    if [to, from]
        .iter()
        .any(|kind| matches!(kind, Type::Pred | Type::F16x2 | Type::Bf16x2))
    {
        return Err(format!("there is no conversion from {from:?} to {to:?}"));
    }
    if rectifies && !to.is_float() {
        return Err("`.relu` is for floating-point numbers".to_owned());
    }
    let function: Unary = match (from.is_float(), to.is_float()) {
        (true, true) => float_to_float(from, to, mode)?,
        (true, false) => float_to_integer(from, to, mode)?,
        (false, true) => integer_to_float(from, to, mode)?,
        (false, false) => {
            // The destination register may be wider.
            let (_, declared) = match operands.first() {
                Some(target) => body.target_type(target)?,
                None => return Err("operands are missing".to_owned()),
            };
            let width = declared.map_or(to.bits(), Type::bits);
            integer_to_integer(from, to, mode, width)
        }
    };
    unary(body, operands, from, function)
}

fn integer_to_integer(from: Type, to: Type, mode: Mode, width: u32) -> Unary {
    let (least, most) = range(to);
    Box::new(move |a| {
        let wide = if from.is_signed() {
            i128::from(sign_extended(a, from.bits()))
        } else {
            i128::from(low_bits(a, from.bits()))
        };
        let value = if mode.saturates {
            wide.clamp(least, most)
        } else {
            wide
        };
        widened(value as u64, to, width)
    })
}

/// Extends a value to a wider register.
fn widened(value: u64, kind: Type, width: u32) -> u64 {
    if kind.is_signed() {
        low_bits(sign_extended(value, kind.bits()) as u64, width)
    } else {
        low_bits(value, kind.bits())
    }
}

/// Returns the smallest and the largest number of an integer type.
fn range(kind: Type) -> (i128, i128) {
    let bits = kind.bits();
    if kind.is_signed() {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

fn format(kind: Type) -> Format {
    match kind {
        Type::F16 => HALF,
        Type::Bf16 => BRAIN,
        Type::F32 => SINGLE,
        _ => DOUBLE,
    }
}

/// Reads a number from a slot. An f64 represents it exactly.
fn read(slot: u64, kind: Type, flushes: bool) -> f64 {
    match kind {
        Type::F16 | Type::Bf16 => decode_half(slot, format(kind)),
        Type::F32 => {
            let value = f32::from_bits(slot as u32);
            f64::from(if flushes && value.is_subnormal() {
                0.0_f32.copysign(value)
            } else {
                value
            })
        }
        _ => f64::from_bits(slot),
    }
}

fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

fn float_to_float(from: Type, to: Type, mode: Mode) -> Result<Unary, String> {
    if from.bits() > to.bits() && mode.rounding.is_none() && mode.to_integer.is_none() {
        return Err("a rounding such as `.rn` is missing".to_owned());
    }
    let rounding = mode.rounding.unwrap_or(Rounding::Nearest);
    let format = format(to);
    let is_double = to == Type::F64;
    Ok(Box::new(move |a| {
        let mut value = read(a, from, mode.flushes);
        if let Some(rounding) = mode.to_integer {
            value = integral(value, rounding);
        }
        if mode.saturates {
            value = if value > 0.0 { value.min(1.0) } else { 0.0 };
        }
        if mode.rectifies && value < 0.0 {
            value = 0.0;
        }
        if is_double {
            return double_bits(value, &[value]);
        }
        let bits = format.encode(value, rounding);
        if mode.flushes && to == Type::F32 && f32::from_bits(bits as u32).is_subnormal() {
            return bits & (1 << 31);
        }
        bits
    }))
}

fn float_to_integer(from: Type, to: Type, mode: Mode) -> Result<Unary, String> {
    let Some(rounding) = mode.to_integer else {
        return Err("a rounding such as `.rzi` is missing".to_owned());
    };
    let (least, most) = range(to);
    // NaN becomes 0 if both types have fewer than 64 bits, otherwise the sign bit alone, as PTX
    // specifies.
    let of_nan = if from != Type::F64 && to.bits() < 64 {
        0
    } else {
        1 << (to.bits() - 1)
    };
    let mask = low_bits(u64::MAX, if to.bits() < 32 { 32 } else { to.bits() });
    Ok(Box::new(move |a| {
        let value = read(a, from, mode.flushes);
        if value.is_nan() {
            return of_nan;
        }
        // Numbers out of range are clamped.
        (integral(value, rounding) as i128).clamp(least, most) as u64 & mask
    }))
}

fn integer_to_float(from: Type, to: Type, mode: Mode) -> Result<Unary, String> {
    let Some(rounding) = mode.rounding else {
        return Err("a rounding such as `.rn` is missing".to_owned());
    };
    let format = format(to);
    let one = format.encode(1.0, Rounding::Nearest);
    Ok(Box::new(move |a| {
        let value = if from.is_signed() {
            i128::from(sign_extended(a, from.bits()))
        } else {
            i128::from(low_bits(a, from.bits()))
        };
        if mode.saturates {
            return if value > 0 { one } else { 0 };
        }
        format.encode_scaled(value < 0, value.unsigned_abs() as u64, 0, rounding)
    }))
}
