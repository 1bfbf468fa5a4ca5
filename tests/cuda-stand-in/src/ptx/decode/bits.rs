//! Logic, shifts and bit fields.

use super::{Decoded, Mnemonic, Operand, all_ones, binary, exactly, many, ternary, unary};
use crate::ptx::body::Body;
use crate::ptx::code::{Binary, Operation, Ternary};
use crate::ptx::types::{Type, low_bits, sign_extended};
use callbox_ptx::ast::Immediate;

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    match op.name {
        "and" | "or" | "xor" | "not" | "cnot" => logic(body, op, operands),
        "shl" | "shr" => shift(body, op, operands),
        "bfe" | "bfi" => field(body, op, operands),
        "prmt" => permute(body, op, operands),
        "lop3" => any_logic(body, op, operands),
        "shf" => funnel(body, op, operands),
        _ => count(body, op, operands),
    }
}

fn logic(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let kind = op.kind()?;
    if !matches!(kind, Type::Pred | Type::B16 | Type::B32 | Type::B64) {
        return op.no_type(kind);
    }
    let ones = all_ones(kind);
    let function: Binary = match op.name {
        "not" => return unary(body, operands, kind, Box::new(move |a| !a & ones)),
        "cnot" => {
            return unary(
                body,
                operands,
                kind,
                Box::new(move |a| u64::from(a & ones == 0)),
            );
        }
        "and" => Box::new(|a, b| a & b),
        "or" => Box::new(|a, b| a | b),
        _ => Box::new(|a, b| a ^ b),
    };
    // The upper bits of a wider register are not part of the operand.
    binary(
        body,
        operands,
        [kind; 2],
        Box::new(move |a, b| function(a, b) & ones),
    )
}

fn shift(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let kind = op.kind()?;
    let bits = kind.bits();
    if !matches!(bits, 16 | 32 | 64) || kind.is_float() {
        return op.no_type(kind);
    }
    // The amount is an unsigned 32-bit number; amounts beyond the type's width shift out all bits.
    let function: Binary = match (op.name, kind.is_signed()) {
        ("shl", _) => Box::new(move |a, by| {
            let by = by as u32;
            if by < bits {
                low_bits(a << by, bits)
            } else {
                0
            }
        }),
        (_, false) => Box::new(move |a, by| {
            let by = by as u32;
            if by < bits {
                low_bits(a, bits) >> by
            } else {
                0
            }
        }),
        (_, true) => Box::new(move |a, by| {
            let by = (by as u32).min(bits - 1);
            low_bits((sign_extended(a, bits) >> by) as u64, bits)
        }),
    };
    binary(body, operands, [kind, Type::U32], function)
}

fn field(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let kind = op.kind()?;
    let bits = kind.bits();
    if !matches!(bits, 32 | 64) || kind.is_float() {
        return op.no_type(kind);
    }
    if op.name == "bfe" {
        let signed = kind.is_signed();
        let function: Ternary = Box::new(move |a, from, length| {
            let (from, length) = (low_bits(from, 8) as u32, low_bits(length, 8) as u32);
            if length == 0 {
                return 0;
            }
            // Above the register are copies of its sign bit, or zeros.
            let wide = if signed {
                i128::from(sign_extended(a, bits))
            } else {
                i128::from(low_bits(a, bits))
            };
            let moved = wide >> from.min(127);
            if length >= bits {
                return low_bits(moved as u64, bits);
            }
            let field = low_bits(moved as u64, length);
            // A field that extends beyond the register takes the register's sign.
            low_bits(
                if signed {
                    sign_extended(field, length) as u64
                } else {
                    field
                },
                bits,
            )
        });
        return ternary(body, operands, [kind, Type::U32, Type::U32], function);
    }
    let [to, a, b, from, length] = exactly(operands)?;
    let slots = vec![
        body.value(a, kind)?,
        body.value(b, kind)?,
        body.value(from, Type::U32)?,
        body.value(length, Type::U32)?,
    ];
    let to = vec![body.target(to)?];
    Ok(many(
        to,
        slots,
        Box::new(move |from, to| {
            let (at, length) = (low_bits(from[2], 8) as u32, low_bits(from[3], 8) as u32);
            let mask = if at >= bits {
                0
            } else {
                low_bits(low_bits(u64::MAX, length) << at, bits)
            };
            let moved = if at >= bits { 0 } else { from[0] << at };
            to[0] = low_bits((from[1] & !mask) | (moved & mask), bits);
        }),
    ))
}

fn count(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let as_shift = op.takes("shiftamt");
    let kind = op.kind()?;
    let bits = kind.bits();
    if !matches!(bits, 32 | 64) || kind.is_float() {
        return op.no_type(kind);
    }
    let signed = kind.is_signed();
    match op.name {
        "popc" => unary(
            body,
            operands,
            kind,
            Box::new(move |a| u64::from(low_bits(a, bits).count_ones())),
        ),
        "clz" => {
            let function =
                Box::new(move |a| u64::from(low_bits(a, bits).leading_zeros() - (64 - bits)));
            unary(body, operands, kind, function)
        }
        "brev" => unary(
            body,
            operands,
            kind,
            Box::new(move |a: u64| a.reverse_bits() >> (64 - bits)),
        ),
        "bfind" => {
            // The highest set bit, or for a negative number the highest clear bit.
            let function = Box::new(move |a| {
                let a = if signed && sign_extended(a, bits) < 0 {
                    low_bits(!a, bits)
                } else {
                    low_bits(a, bits)
                };
                match a.checked_ilog2() {
                    None => u64::from(u32::MAX),
                    Some(at) if as_shift => u64::from(bits - 1 - at),
                    Some(at) => u64::from(at),
                }
            });
            unary(body, operands, kind, function)
        }
        _ => Err("this instruction is not supported".to_owned()),
    }
}

fn permute(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let mode = op.take(|part| {
        ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]
            .contains(&part)
            .then_some(part)
    });
    let kind = op.kind()?;
    if kind != Type::B32 {
        return op.no_type(kind);
    }
    // In a mode, the two low bits of the selector choose one of four selectors.
    let selectors: Option<[u64; 4]> = mode.map(|mode| match mode {
        "f4e" => [0x3210, 0x4321, 0x5432, 0x6543],
        "b4e" => [0x5670, 0x6701, 0x7012, 0x0123],
        "rc8" => [0x0000, 0x1111, 0x2222, 0x3333],
        "ecl" => [0x3210, 0x3211, 0x3222, 0x3333],
        "ecr" => [0x0000, 0x1110, 0x2210, 0x3210],
        _ => [0x1010, 0x3232, 0x1010, 0x3232],
    });
    let function = Box::new(move |a, b: u64, selector: u64| {
        let selector = selectors.map_or(selector, |selectors| selectors[(selector & 3) as usize]);
        let bytes = low_bits(a, 32) | (b << 32);
        (0..4).fold(0, |word, at| {
            let choice = (selector >> (4 * at)) & 0xf;
            let byte = (bytes >> (8 * (choice & 7))) & 0xff;
            let byte = if choice & 8 == 0 {
                byte
            } else {
                0xff * (byte >> 7)
            };
            word | (byte << (8 * at))
        })
    });
    ternary(body, operands, [Type::B32; 3], function)
}

fn any_logic(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let kind = op.kind()?;
    if kind != Type::B32 {
        return op.no_type(kind);
    }
    let [to, a, b, c, table] = exactly(operands)?;
    let Operand::Constant(Immediate::Integer(table @ 0..=255)) = *table else {
        return Err("a table from 0 to 255 was expected as the last operand".to_owned());
    };
    let function = Box::new(move |a: u64, b: u64, c: u64| {
        let mut result = 0;
        // The table's bit at index abc is the result for these three bits.
        for row in (0..8).filter(|row| (table >> row) & 1 == 1) {
            let of = |word: u64, bit: u64| if row & bit == 0 { !word } else { word };
            result |= of(a, 4) & of(b, 2) & of(c, 1);
        }
        low_bits(result, 32)
    });
    let from = [
        body.value(a, kind)?,
        body.value(b, kind)?,
        body.value(c, kind)?,
    ];
    Ok(Operation::Ternary {
        to: body.target(to)?,
        from,
        function,
    })
}

fn funnel(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let left = op.takes("l");
    if !left && !op.takes("r") {
        return Err("`.l` or `.r` is missing".to_owned());
    }
    let wraps = op.takes("wrap");
    if !wraps && !op.takes("clamp") {
        return Err("`.wrap` or `.clamp` is missing".to_owned());
    }
    let kind = op.kind()?;
    if kind != Type::B32 {
        return op.no_type(kind);
    }
    let function = Box::new(move |low, high, by| {
        let by = if wraps {
            by & 31
        } else {
            low_bits(by, 32).min(32)
        };
        let both = low_bits(low, 32) | (high << 32);
        if left {
            (both << by) >> 32
        } else {
            low_bits(both >> by, 32)
        }
    });
    ternary(body, operands, [Type::B32; 3], function)
}
