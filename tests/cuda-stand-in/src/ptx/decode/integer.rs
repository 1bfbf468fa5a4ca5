//! Integer arithmetic.

use super::{
    Decoded, Integer, Mnemonic, Operand, binary, of_one, of_two, ternary, unary, with_integer,
};
use crate::ptx::body::Body;
use crate::ptx::code::{Binary, Ternary};
use crate::ptx::types::{Type, low_bits, sign_extended};

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    match op.name {
        "mul" | "mad" => return product(body, op, operands),
        "mul24" | "mad24" => return product_of_24(body, op, operands),
        "dp4a" => return dot_product(body, op, operands),
        _ => {}
    }
    let saturates = op.takes("sat");
    let kind = op.kind()?;
    if saturates && (kind != Type::S32 || !matches!(op.name, "add" | "sub")) {
        return Err("`.sat` is for add.s32 and sub.s32".to_owned());
    }
    let kinds = [kind, kind];
    match op.name {
        "abs" => match kind {
            Type::S16 => unary(body, operands, kind, of_one(i16::wrapping_abs)),
            Type::S32 => unary(body, operands, kind, of_one(i32::wrapping_abs)),
            Type::S64 => unary(body, operands, kind, of_one(i64::wrapping_abs)),
            other => op.no_type(other),
        },
        "neg" => {
            with_integer!(op, kind, T => unary(body, operands, kind, of_one(|a: T| a.wrapping_neg())))
        }
        "sad" => {
            with_integer!(op, kind, T => ternary(body, operands, [kind; 3], Box::new(|a, b, c| {
                let (a, b, c) = (T::take(a), T::take(b), T::take(c));
                c.wrapping_add(if a < b { b.wrapping_sub(a) } else { a.wrapping_sub(b) }).give()
            })))
        }
        "add" if saturates => binary(body, operands, kinds, of_two(i32::saturating_add)),
        "sub" if saturates => binary(body, operands, kinds, of_two(i32::saturating_sub)),
        name => {
            let function: Binary = with_integer!(op, kind, T => match name {
                "add" => of_two(|a: T, b| a.wrapping_add(b)),
                "sub" => of_two(|a: T, b| a.wrapping_sub(b)),
                "min" => of_two(|a: T, b| a.min(b)),
                "max" => of_two(|a: T, b| a.max(b)),
                // The result of a division by zero is unspecified. Devices return all ones.
                "div" => of_two(|a: T, b| if b == 0 { T::take(u64::MAX) } else { a.wrapping_div(b) }),
                "rem" => of_two(|a: T, b| if b == 0 { a } else { a.wrapping_rem(b) }),
                _ => return Err("this instruction is not supported".to_owned()),
            });
            binary(body, operands, kinds, function)
        }
    }
}

/// The requested half of a product.
#[derive(Clone, Copy)]
pub(super) enum Half {
    Low,
    High,
    /// The whole product, in twice the bits.
    Wide,
}

pub(super) fn half(op: &mut Mnemonic) -> Result<Half, String> {
    op.take(|part| match part {
        "lo" => Some(Half::Low),
        "hi" => Some(Half::High),
        "wide" => Some(Half::Wide),
        _ => None,
    })
    .ok_or_else(|| "`.lo`, `.hi` or `.wide` is missing".to_owned())
}

/// Returns the requested half of a product.
pub(super) fn multiplied(a: u64, b: u64, kind: Type, half: Half) -> u64 {
    let bits = kind.bits();
    let product = if kind.is_signed() {
        (i128::from(sign_extended(a, bits)) * i128::from(sign_extended(b, bits))) as u128
    } else {
        u128::from(low_bits(a, bits)) * u128::from(low_bits(b, bits))
    };
    match half {
        Half::Low => low_bits(product as u64, bits),
        Half::High => low_bits((product >> bits) as u64, bits),
        Half::Wide => low_bits(product as u64, 2 * bits),
    }
}

fn twice(kind: Type) -> Result<Type, String> {
    match kind {
        Type::S16 => Ok(Type::S32),
        Type::U16 => Ok(Type::U32),
        Type::S32 => Ok(Type::S64),
        Type::U32 => Ok(Type::U64),
        other => Err(format!("there is no type of twice the bits of {other:?}")),
    }
}

fn product(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let half = half(op)?;
    let saturates = op.takes("sat");
    let kind = op.kind()?;
    let sum = if matches!(half, Half::Wide) {
        twice(kind)?
    } else {
        kind
    };
    let function: Binary = match (half, kind) {
        (Half::Low, Type::S32 | Type::U32) => of_two(u32::wrapping_mul),
        (Half::Low, Type::S64 | Type::U64) => of_two(u64::wrapping_mul),
        (Half::Low, Type::S16 | Type::U16) => of_two(u16::wrapping_mul),
        (Half::Wide, Type::U32) => Box::new(|a, b| u64::from(a as u32) * u64::from(b as u32)),
        (Half::Wide, Type::S32) => {
            Box::new(|a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64)
        }
        (_, Type::S16 | Type::U16 | Type::S32 | Type::U32 | Type::S64 | Type::U64) => {
            Box::new(move |a, b| multiplied(a, b, kind, half))
        }
        _ => return op.no_type(kind),
    };
    if op.name == "mul" {
        return binary(body, operands, [kind; 2], function);
    }
    let function: Ternary = match (saturates, kind, half) {
        (true, Type::S32, Half::High) => Box::new(move |a, b, c| {
            u64::from((function(a, b) as i32).saturating_add(c as i32) as u32)
        }),
        (true, ..) => return Err("`.sat` is for mad.hi.sat.s32".to_owned()),
        (false, Type::S32 | Type::U32, Half::Low) => {
            Box::new(|a, b, c| u64::from((a as u32).wrapping_mul(b as u32).wrapping_add(c as u32)))
        }
        _ => Box::new(move |a, b, c| low_bits(function(a, b).wrapping_add(c), sum.bits())),
    };
    ternary(body, operands, [kind, kind, sum], function)
}

fn product_of_24(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let shift = match half(op)? {
        Half::Low => 0,
        Half::High => 16,
        Half::Wide => return Err("`.lo` or `.hi` is missing".to_owned()),
    };
    let kind = op.kind()?;
    let part = match kind {
        Type::S32 => |a: u64| sign_extended(a, 24),
        Type::U32 => |a: u64| low_bits(a, 24) as i64,
        other => return op.no_type(other),
    };
    let multiply = move |a, b| ((part(a) * part(b)) >> shift) as u32;
    match op.name {
        "mul24" => binary(
            body,
            operands,
            [kind; 2],
            Box::new(move |a, b| u64::from(multiply(a, b))),
        ),
        _ => {
            let function =
                Box::new(move |a, b, c| u64::from(multiply(a, b).wrapping_add(c as u32)));
            ternary(body, operands, [kind; 3], function)
        }
    }
}

/// Decodes a sum of a number and the products of four bytes.
fn dot_product(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let kinds = [op.kind()?, op.kind()?];
    let byte = |kind: Type| match kind {
        Type::U32 => Ok(false),
        Type::S32 => Ok(true),
        other => Err(format!("type {other:?} is not supported here")),
    };
    let signed = [byte(kinds[0])?, byte(kinds[1])?];
    let element = |word: u64, at: u32, signed: bool| {
        let bits = low_bits(word >> (8 * at), 8);
        if signed {
            sign_extended(bits, 8)
        } else {
            bits as i64
        }
    };
    let function = Box::new(move |a, b, c: u64| {
        let sum: i64 = (0..4)
            .map(|at| element(a, at, signed[0]) * element(b, at, signed[1]))
            .sum();
        u64::from((sum as u32).wrapping_add(c as u32))
    });
    ternary(body, operands, [kinds[0], kinds[1], Type::S32], function)
}
