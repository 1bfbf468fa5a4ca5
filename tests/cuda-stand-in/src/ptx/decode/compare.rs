//! Comparisons: `setp` and `set`.

use std::cmp::Ordering;

use super::half::decode_half;
use super::{Decoded, Mnemonic, Operand, all_ones, many};
use crate::ptx::body::Body;
use crate::ptx::code::{Binary, Operation};
use crate::ptx::rounding::{BRAIN, HALF};
use crate::ptx::types::{Type, low_bits, sign_extended};

/// The outcomes of a comparison that count as true.
#[derive(Clone, Copy)]
struct Wanted {
    less: bool,
    equal: bool,
    greater: bool,
    /// An operand is NaN.
    unordered: bool,
    /// `lo`, `ls`, `hi`, `hs`: compares unsigned.
    is_unsigned: bool,
}

impl Wanted {
    fn from_name(name: &str) -> Option<Self> {
        let (name, unordered, is_unsigned) = match name {
            "lo" => ("lt", false, true),
            "ls" => ("le", false, true),
            "hi" => ("gt", false, true),
            "hs" => ("ge", false, true),
            "num" | "nan" => {
                let ordered = name == "num";
                return Some(Self {
                    less: ordered,
                    equal: ordered,
                    greater: ordered,
                    unordered: !ordered,
                    is_unsigned: false,
                });
            }
            _ => match name.strip_suffix('u') {
                Some(name) => (name, true, false),
                None => (name, false, false),
            },
        };
        let (less, equal, greater) = match name {
            "eq" => (false, true, false),
            "ne" => (true, false, true),
            "lt" => (true, false, false),
            "le" => (true, true, false),
            "gt" => (false, false, true),
            "ge" => (false, true, true),
            _ => return None,
        };
        Some(Self {
            less,
            equal,
            greater,
            unordered,
            is_unsigned,
        })
    }

    fn holds(self, order: Option<Ordering>) -> bool {
        match order {
            Some(Ordering::Less) => self.less,
            Some(Ordering::Equal) => self.equal,
            Some(Ordering::Greater) => self.greater,
            None => self.unordered,
        }
    }
}

fn flushed(value: f32, flushes: bool) -> f32 {
    if flushes && value.is_subnormal() {
        0.0
    } else {
        value
    }
}

/// Returns 1 if the comparison holds, otherwise 0.
fn comparison(wanted: Wanted, kind: Type, flushes: bool) -> Binary {
    let bits = kind.bits();
    match kind {
        Type::F32 => Box::new(move |a, b| {
            let [a, b] = [a, b].map(|slot| flushed(f32::from_bits(slot as u32), flushes));
            u64::from(wanted.holds(a.partial_cmp(&b)))
        }),
        Type::F64 => Box::new(move |a, b| {
            u64::from(wanted.holds(f64::from_bits(a).partial_cmp(&f64::from_bits(b))))
        }),
        Type::F16 | Type::Bf16 => {
            let format = if kind == Type::F16 { HALF } else { BRAIN };
            Box::new(move |a, b| {
                u64::from(wanted.holds(decode_half(a, format).partial_cmp(&decode_half(b, format))))
            })
        }
        Type::S16 | Type::S32 | Type::S64 if !wanted.is_unsigned => Box::new(move |a, b| {
            u64::from(wanted.holds(Some(sign_extended(a, bits).cmp(&sign_extended(b, bits)))))
        }),
        _ => Box::new(move |a, b| {
            u64::from(wanted.holds(Some(low_bits(a, bits).cmp(&low_bits(b, bits)))))
        }),
    }
}

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let Some(wanted) = op.take(Wanted::from_name) else {
        return Err("a comparison such as `.lt` is missing".to_owned());
    };
    let combine: Option<fn(u64, u64) -> u64> = op.take(|part| match part {
        "and" => Some((|a, b| a & b) as fn(u64, u64) -> u64),
        "or" => Some(|a, b| a | b),
        "xor" => Some(|a, b| a ^ b),
        _ => None,
    });
    let flushes = op.takes("ftz");
    let result = if op.name == "set" {
        Some(op.kind()?)
    } else {
        None
    };
    let kind = op.kind()?;
    let (to, sources) = match operands.split_first() {
        Some((to, sources)) if sources.len() == 2 + usize::from(combine.is_some()) => (to, sources),
        _ => {
            return Err(format!(
                "{} operands are too few or too many",
                operands.len()
            ));
        }
    };
    if let Some(half) = kind.half_of_pair() {
        return pairs(body, wanted, half, combine, (to, sources), result);
    }
    if matches!(kind, Type::Pred | Type::B8 | Type::U8 | Type::S8) {
        return op.no_type(kind);
    }
    let mut from = vec![
        body.value(&sources[0], kind)?,
        body.value(&sources[1], kind)?,
    ];
    if let Some(third) = sources.get(2) {
        from.push(body.value(third, Type::Pred)?);
    }
    let function = comparison(wanted, kind, flushes);
    if let Operand::Pair(p, q) = to {
        if result.is_some() {
            return Err("`set` has one destination".to_owned());
        }
        let to = vec![body.target(p)?, body.target(q)?];
        let combined = move |holds: u64, from: &[u64]| {
            combine.map_or(holds, |combine| combine(holds, from[2]))
        };
        return Ok(many(
            to,
            from,
            Box::new(move |from, to| {
                let holds = function(from[0], from[1]);
                to[0] = combined(holds, from);
                to[1] = combined(holds ^ 1, from);
            }),
        ));
    }
    // The result of `set` where the comparison holds.
    let yes = match result {
        None => 1,
        Some(Type::F32) => u64::from(1.0_f32.to_bits()),
        Some(kind @ (Type::U32 | Type::S32 | Type::U16 | Type::S16)) => all_ones(kind),
        Some(other) => return op.no_type(other),
    };
    let to = body.target(to)?;
    Ok(match combine {
        None if yes == 1 => Operation::Binary {
            to,
            from: [from[0], from[1]],
            function,
        },
        None => {
            let function: Binary = Box::new(move |a, b| function(a, b) * yes);
            Operation::Binary {
                to,
                from: [from[0], from[1]],
                function,
            }
        }
        Some(combine) => Operation::Ternary {
            to,
            from: [from[0], from[1], from[2]],
            function: Box::new(move |a, b, p| combine(function(a, b), p) * yes),
        },
    })
}

/// Compares both halves of a pair: `setp` with two predicates.
fn pairs(
    body: &mut Body<'_, '_>,
    wanted: Wanted,
    half: Type,
    combine: Option<fn(u64, u64) -> u64>,
    (to, sources): (&Operand, &[Operand]),
    result: Option<Type>,
) -> Decoded {
    let function = comparison(wanted, half, false);
    let pair = Type::B32;
    let mut from = vec![
        body.value(&sources[0], pair)?,
        body.value(&sources[1], pair)?,
    ];
    if let Some(third) = sources.get(2) {
        from.push(body.value(third, Type::Pred)?);
    }
    let (Operand::Pair(p, q), None) = (to, result) else {
        return Err(
            "comparisons of pairs are supported with two predicates `p|q` as destinations"
                .to_owned(),
        );
    };
    let to = vec![body.target(p)?, body.target(q)?];
    Ok(many(
        to,
        from,
        Box::new(move |from, to| {
            for (at, to) in [0, 16].into_iter().zip(to) {
                let holds = function((from[0] >> at) & 0xffff, (from[1] >> at) & 0xffff);
                *to = combine.map_or(holds, |combine| combine(holds, from[2]));
            }
        }),
    ))
}
