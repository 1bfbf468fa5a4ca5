//! Loads, stores, atomic operations, and address conversions.

use super::{Decoded, Mnemonic, Operand, exactly};
use crate::ptx::body::Body;
use callbox_ptx::ast::Immediate;
use callbox_ptx::table::is_hint;

use crate::ptx::code::{Atomic, CopyAsync, Extension, Operation, Slot, Ternary};
use crate::ptx::rounding::{BRAIN, HALF, Near, Rounding, double_bits, single_bits};
use crate::ptx::types::{Space, Type, from_generic, low_bits, sign_extended};

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    match op.name {
        "ld" | "ldu" | "st" => access(body, op, operands),
        "atom" | "red" => atomic(body, op, operands),
        "cvta" => convert(body, op, operands),
        "isspacep" => is_space(body, op, operands),
        _ => {
            // Prefetches have no effect.
            op.parts.clear();
            Ok(Operation::Nothing)
        }
    }
}

/// Removes suffixes for ordering, scope and caching: memory here is ordered and has no caches.
fn take_hints(op: &mut Mnemonic) {
    op.parts.retain(|part| !is_hint(part));
}

fn access(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    take_hints(op);
    let space = op.take(Space::from_name);
    let elements = op.take(|part| match part {
        "v2" => Some(2),
        "v4" => Some(4),
        _ => None,
    });
    let kind = op.kind()?;
    if matches!(kind, Type::Pred) {
        return op.no_type(kind);
    }
    let bytes = kind.bytes() as u8;
    let [first, second] = exactly(operands)?;
    let (place, value) = if op.name == "st" {
        (first, second)
    } else {
        (second, first)
    };
    let address = body.address(place, space)?;
    let Some(count) = elements else {
        if op.name == "st" {
            return Ok(Operation::Store {
                from: body.value(value, kind)?,
                address,
                bytes,
            });
        }
        let (to, declared) = body.target_type(value)?;
        return Ok(Operation::Load {
            to,
            address,
            bytes,
            sign: extension(kind, declared),
        });
    };
    let Operand::Vector(values) = value else {
        return Err("registers in braces were expected".to_owned());
    };
    if values.len() != count {
        return Err(format!(
            "{count} registers were expected in braces, and {} found",
            values.len()
        ));
    }
    if op.name == "st" {
        let from = values
            .iter()
            .map(|value| body.value(value, kind))
            .collect::<Result<_, _>>()?;
        return Ok(Operation::StoreVector {
            from,
            address,
            bytes,
        });
    }
    let mut to = Vec::with_capacity(count);
    let mut sign = None;
    for value in values {
        let (slot, declared) = body.target_type(value)?;
        to.push(slot);
        sign = sign.or(extension(kind, declared));
    }
    Ok(Operation::LoadVector {
        to: to.into_boxed_slice(),
        address,
        bytes,
        sign,
    })
}

/// Returns how a loaded value is extended to its register, if it is.
fn extension(kind: Type, declared: Option<Type>) -> Option<Extension> {
    let to_bits = declared?.bits();
    (kind.is_signed() && to_bits > kind.bits()).then_some(Extension {
        from_bits: kind.bits(),
        to_bits,
    })
}

fn atomic(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    take_hints(op);
    let space = op.take(Space::from_name);
    let names = [
        "add", "min", "max", "exch", "cas", "inc", "dec", "and", "or", "xor",
    ];
    let Some(name) = op.take(|part| names.into_iter().find(|&name| name == part)) else {
        return Err(format!("one of {names:?} is missing"));
    };
    let kind = op.kind()?;
    let function = change(name, kind).ok_or_else(|| format!("there is no `{name}` of {kind:?}"))?;
    let (to, rest) = if op.name == "red" {
        (None, operands)
    } else {
        match operands.split_first() {
            Some((to, rest)) => (Some(body.target(to)?), rest),
            None => return Err("operands are missing".to_owned()),
        }
    };
    let wanted = if name == "cas" { 3 } else { 2 };
    if rest.len() != wanted {
        return Err(format!(
            "{wanted} operands were expected for `{name}`, and {} found",
            rest.len()
        ));
    }
    let address = body.address(&rest[0], space)?;
    let first = body.value(&rest[1], kind)?;
    let second: Slot = if wanted == 3 {
        body.value(&rest[2], kind)?
    } else {
        first
    };
    let bytes = kind.bytes() as u8;
    Ok(Operation::Atomic(Box::new(Atomic {
        to,
        address,
        bytes,
        operands: [first, second],
        function,
    })))
}

/// Returns the function from memory's old value and the operands to its new value.
fn change(name: &str, kind: Type) -> Option<Ternary> {
    let bits = kind.bits();
    if bits < 16 {
        return None;
    }
    if kind.is_float() || kind.half_of_pair().is_some() {
        return (name == "add").then(|| float_sum(kind));
    }
    let signed = kind.is_signed();
    Some(match name {
        "add" => Box::new(move |old: u64, a, _| low_bits(old.wrapping_add(a), bits)),
        "min" | "max" => {
            let greater = name == "max";
            Box::new(move |old, a, _| {
                let is_less = if signed {
                    sign_extended(a, bits) < sign_extended(old, bits)
                } else {
                    low_bits(a, bits) < low_bits(old, bits)
                };
                low_bits(if is_less == greater { old } else { a }, bits)
            })
        }
        "exch" => Box::new(move |_, a, _| low_bits(a, bits)),
        "cas" => Box::new(move |old, wanted, new| {
            if old == low_bits(wanted, bits) {
                low_bits(new, bits)
            } else {
                old
            }
        }),
        "inc" => Box::new(|old, most, _| if old >= most { 0 } else { old + 1 }),
        "dec" => Box::new(|old, most, _| {
            if old == 0 || old > most {
                most
            } else {
                old - 1
            }
        }),
        "and" => Box::new(move |old, a, _| old & low_bits(a, bits)),
        "or" => Box::new(move |old, a, _| old | low_bits(a, bits)),
        "xor" => Box::new(move |old, a, _| old ^ low_bits(a, bits)),
        _ => return None,
    })
}

fn float_sum(kind: Type) -> Ternary {
    match kind {
        Type::F32 => {
            Box::new(|old, a, _| single_bits(f32::from_bits(old as u32) + f32::from_bits(a as u32)))
        }
        Type::F64 => Box::new(|old, a, _| {
            let (old, a) = (f64::from_bits(old), f64::from_bits(a));
            double_bits(old + a, &[old, a])
        }),
        _ => {
            let format = if kind.half_of_pair().unwrap_or(kind) == Type::F16 {
                HALF
            } else {
                BRAIN
            };
            let add = move |a: u64, b: u64| {
                let [a, b] = [a, b].map(|bits| super::half::decode_half(bits & 0xffff, format));
                Near::sum(a, b, Rounding::Nearest).encode(format, Rounding::Nearest)
            };
            let is_pair = kind.half_of_pair().is_some();
            Box::new(move |old, a, _| {
                let low = add(old, a);
                if is_pair {
                    low | (add(old >> 16, a >> 16) << 16)
                } else {
                    low
                }
            })
        }
    }
}

fn convert(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let from_generic = op.takes("to");
    let Some(space) = op.take(Space::from_name) else {
        return Err("a state space such as `.global` is missing".to_owned());
    };
    let kind = op.kind()?;
    if kind != Type::U64 {
        return op.no_type(kind);
    }
    let [to, from] = exactly(operands)?;
    let (to, from) = (body.target(to)?, body.value(from, kind)?);
    let window = space.window();
    if window == 0 {
        return Ok(Operation::Move { to, from });
    }
    let function: crate::ptx::code::Unary = if from_generic {
        Box::new(move |address: u64| address.wrapping_sub(window))
    } else {
        Box::new(move |address: u64| address.wrapping_add(window))
    };
    Ok(Operation::Unary { to, from, function })
}

fn is_space(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let Some(space) = op.take(Space::from_name) else {
        return Err("a state space such as `.global` is missing".to_owned());
    };
    let [to, from] = exactly(operands)?;
    let (to, from) = (body.target(to)?, body.value(from, Type::U64)?);
    let function = Box::new(move |address| u64::from(from_generic(address).0 == space));
    Ok(Operation::Unary { to, from, function })
}

/// Decodes `cp.async` without `.bulk`.
pub(super) fn copy(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    if !op.takes("async") {
        return Err("only `cp.async` is supported".to_owned());
    }
    // A copy is done at once: there is nothing to wait for.
    if op.takes("commit_group") || op.takes("wait_group") || op.takes("wait_all") {
        return Ok(Operation::Nothing);
    }
    take_hints(op);
    let (to, from) = (op.take(Space::from_name), op.take(Space::from_name));
    if (to, from) != (Some(Space::Shared), Some(Space::Global)) {
        return Err("only copies from `.global` to `.shared` are supported".to_owned());
    }
    let [target, source, size, rest @ ..] = operands else {
        return Err("operands are missing".to_owned());
    };
    let Operand::Constant(Immediate::Integer(bytes @ (4 | 8 | 16))) = *size else {
        return Err("4, 8 or 16 was expected as the third operand".to_owned());
    };
    let (source_bytes, ignores_source) = match rest {
        [] => (None, None),
        [predicate @ Operand::Register(_, Type::Pred)] => {
            (None, Some(body.value(predicate, Type::Pred)?))
        }
        [bytes] => (Some(body.value(bytes, Type::U32)?), None),
        _ => return Err("at most four operands are supported".to_owned()),
    };
    Ok(Operation::CopyAsync(Box::new(CopyAsync {
        to: body.address(target, to)?,
        from: body.address(source, from)?,
        bytes: bytes as u8,
        source_bytes,
        ignores_source,
    })))
}
