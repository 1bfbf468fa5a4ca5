//! Arithmetic of f32 and f64.
//!
//! Operations that PTX calls approximate are computed in f64 and rounded, and are more precise than
//! on a device.

use super::{Decoded, Mnemonic, Operand, binary, exactly, ternary, unary};
use crate::ptx::body::Body;
use crate::ptx::code::{Binary, Ternary, Unary};
use crate::ptx::rounding::{Near, Rounding, SINGLE, SINGLE_NAN, double_bits, single_bits};
use crate::ptx::types::Type;

/// The modifiers of an f32 instruction.
#[derive(Clone, Copy)]
pub(super) struct Mode {
    pub(super) rounding: Rounding,
    /// `.ftz`: subnormal numbers count as zero.
    flushes: bool,
    /// `.sat`: clamps the result to the range from 0 to 1.
    saturates: bool,
}

impl Mode {
    pub(super) fn take(op: &mut Mnemonic) -> Self {
        let rounding = op.rounding().unwrap_or(Rounding::Nearest);
        Self {
            rounding,
            flushes: op.takes("ftz"),
            saturates: op.takes("sat"),
        }
    }

    pub(super) fn read(self, slot: u64) -> f32 {
        let value = f32::from_bits(slot as u32);
        if self.flushes && value.is_subnormal() {
            0.0_f32.copysign(value)
        } else {
            value
        }
    }

    /// Applies the modifiers to the bits of an f32 result.
    pub(super) fn finish(self, bits: u64) -> u64 {
        let value = self.read(bits);
        if !self.saturates {
            return single_bits(value);
        }
        // NaN and -0 become 0 as well.
        single_bits(if value > 0.0 { value.min(1.0) } else { 0.0 })
    }

    fn is_plain(self) -> bool {
        !self.flushes && !self.saturates && self.rounding == Rounding::Nearest
    }
}

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let is_approximate = op.takes("approx") || op.takes("full");
    let mode = Mode::take(op);
    let nan_wins = op.takes("NaN");
    if op.name == "testp" {
        return test(body, op, operands);
    }
    let kind = op.kind()?;
    let is_single = kind == Type::F32;
    if !is_single && !matches!(kind, Type::F64) {
        return op.no_type(kind);
    }
    if !is_single && mode.saturates {
        return Err("`.sat` is for f32".to_owned());
    }
    let three = [kind; 3];
    match op.name {
        "fma" | "mad" => ternary(
            body,
            operands,
            three,
            if is_single {
                single_fma(mode)
            } else {
                double_fma(mode)
            },
        ),
        "add" | "sub" | "mul" | "div" | "copysign" | "min" | "max" => {
            let function = match op.name {
                "min" | "max" => extreme(is_single, mode, op.name == "max", nan_wins),
                "copysign" => copy_sign(is_single),
                name if is_single => single_binary(name, mode, is_approximate)?,
                name => double_binary(name, mode.rounding)?,
            };
            binary(body, operands, [kind; 2], function)
        }
        name => {
            let function = if is_single {
                single_unary(name, mode, is_approximate)?
            } else {
                double_unary(name, mode, is_approximate)?
            };
            unary(body, operands, kind, function)
        }
    }
}

fn single_binary(name: &str, mode: Mode, is_approximate: bool) -> Result<Binary, String> {
    if mode.is_plain() {
        match name {
            "add" => return Ok(plain(|a, b| a + b)),
            "sub" => return Ok(plain(|a, b| a - b)),
            "mul" => return Ok(plain(|a, b| a * b)),
            "div" => return Ok(plain(|a, b| a / b)),
            _ => {}
        }
    }
    let function: fn(f64, f64, Rounding) -> Near = match name {
        "add" => Near::sum,
        "sub" => |a, b, rounding| Near::sum(a, -b, rounding),
        "mul" => |a, b, _| Near::product(a, b),
        "div" => |a, b, _| Near::quotient(a, b),
        _ => return Err("this instruction is not supported".to_owned()),
    };
    let rounding = if is_approximate {
        Rounding::Nearest
    } else {
        mode.rounding
    };
    Ok(Box::new(move |a, b| {
        let near = function(f64::from(mode.read(a)), f64::from(mode.read(b)), rounding);
        mode.finish(near.encode(SINGLE, rounding))
    }))
}

fn plain(function: impl Fn(f32, f32) -> f32 + Send + Sync + 'static) -> Binary {
    Box::new(move |a, b| single_bits(function(f32::from_bits(a as u32), f32::from_bits(b as u32))))
}

fn double_binary(name: &str, rounding: Rounding) -> Result<Binary, String> {
    let function: fn(f64, f64, Rounding) -> f64 = match (name, rounding) {
        ("add", Rounding::Nearest) => |a, b, _| a + b,
        ("sub", Rounding::Nearest) => |a, b, _| a - b,
        ("mul", Rounding::Nearest) => |a, b, _| a * b,
        ("div", Rounding::Nearest) => |a, b, _| a / b,
        ("add", _) => |a, b, rounding| Near::sum(a, b, rounding).to_double(rounding),
        ("sub", _) => |a, b, rounding| Near::sum(a, -b, rounding).to_double(rounding),
        ("mul", _) => |a, b, rounding| Near::product(a, b).to_double(rounding),
        ("div", _) => |a, b, rounding| Near::quotient(a, b).to_double(rounding),
        _ => return Err("this instruction is not supported".to_owned()),
    };
    Ok(Box::new(move |a, b| {
        let (a, b) = (f64::from_bits(a), f64::from_bits(b));
        double_bits(function(a, b, rounding), &[a, b])
    }))
}

fn single_fma(mode: Mode) -> Ternary {
    if mode.is_plain() {
        return Box::new(|a, b, c| {
            let [a, b, c] = [a, b, c].map(|slot| f32::from_bits(slot as u32));
            single_bits(a.mul_add(b, c))
        });
    }
    Box::new(move |a, b, c| {
        let [a, b, c] = [a, b, c].map(|slot| f64::from(mode.read(slot)));
        mode.finish(Near::product_sum(a, b, c, mode.rounding).encode(SINGLE, mode.rounding))
    })
}

fn double_fma(mode: Mode) -> Ternary {
    let rounding = mode.rounding;
    Box::new(move |a, b, c| {
        let [a, b, c] = [a, b, c].map(f64::from_bits);
        let value = match rounding {
            Rounding::Nearest => a.mul_add(b, c),
            _ => Near::product_sum(a, b, c, rounding).to_double(rounding),
        };
        double_bits(value, &[a, b, c])
    })
}

/// Returns the smaller or larger number; -0 is smaller than 0. A number wins over NaN unless
/// `nan_wins`.
pub(super) fn extreme_of(a: f64, b: f64, greater: bool, nan_wins: bool) -> f64 {
    if a.is_nan() || b.is_nan() {
        return match (nan_wins, a.is_nan(), b.is_nan()) {
            (false, true, false) => b,
            (false, false, true) => a,
            _ => f64::NAN,
        };
    }
    if (a.total_cmp(&b) == std::cmp::Ordering::Greater) == greater {
        a
    } else {
        b
    }
}

fn extreme(is_single: bool, mode: Mode, greater: bool, nan_wins: bool) -> Binary {
    if is_single {
        return Box::new(move |a, b| {
            let (a, b) = (mode.read(a), mode.read(b));
            single_bits(extreme_of(f64::from(a), f64::from(b), greater, nan_wins) as f32)
        });
    }
    Box::new(move |a, b| {
        let (a, b) = (f64::from_bits(a), f64::from_bits(b));
        double_bits(extreme_of(a, b, greater, nan_wins), &[a, b])
    })
}

/// Returns the second operand with the first one's sign.
fn copy_sign(is_single: bool) -> Binary {
    let sign = if is_single { 1 << 31 } else { 1 << 63 };
    Box::new(move |a, b| (a & sign) | (b & !sign))
}

fn single_unary(name: &str, mode: Mode, is_approximate: bool) -> Result<Unary, String> {
    let function: fn(f64) -> f64 = match name {
        "abs" => {
            return Ok(Box::new(move |a| {
                sign_only(mode.read(a), mode.read(a).abs())
            }));
        }
        "neg" => return Ok(Box::new(move |a| sign_only(mode.read(a), -mode.read(a)))),
        "rcp" | "sqrt" if !is_approximate => {
            let is_root = name == "sqrt";
            return Ok(Box::new(move |a| {
                let a = f64::from(mode.read(a));
                let near = if is_root {
                    Near::root(a)
                } else {
                    Near::quotient(1.0, a)
                };
                mode.finish(near.encode(SINGLE, mode.rounding))
            }));
        }
        "rcp" => |a| 1.0 / a,
        "sqrt" => f64::sqrt,
        "rsqrt" => |a| 1.0 / a.sqrt(),
        "ex2" => libm::exp2,
        "lg2" => libm::log2,
        "sin" => libm::sin,
        "cos" => libm::cos,
        "tanh" => libm::tanh,
        _ => return Err("this instruction is not supported".to_owned()),
    };
    Ok(Box::new(move |a| {
        mode.finish(SINGLE.encode(function(f64::from(mode.read(a))), Rounding::Nearest))
    }))
}

/// Returns the bits of a result that differs in its sign, with NaN made canonical.
fn sign_only(value: f32, result: f32) -> u64 {
    if value.is_nan() {
        u64::from(SINGLE_NAN)
    } else {
        u64::from(result.to_bits())
    }
}

fn double_unary(name: &str, mode: Mode, is_approximate: bool) -> Result<Unary, String> {
    let rounding = mode.rounding;
    if is_approximate {
        // These instructions read the upper 32 bits of their operand, and write the same.
        let function: fn(f64) -> f64 = match name {
            "rcp" => |a| 1.0 / a,
            "rsqrt" => |a| 1.0 / a.sqrt(),
            _ => return Err("there is no such approximation of f64".to_owned()),
        };
        return Ok(Box::new(move |a| {
            let a = f64::from_bits(a & !0xffff_ffff);
            let a = if a.is_subnormal() {
                0.0_f64.copysign(a)
            } else {
                a
            };
            let result = function(a);
            let result = if result.is_subnormal() {
                0.0_f64.copysign(result)
            } else {
                result
            };
            double_bits(result, &[a]) & !0xffff_ffff
        }));
    }
    Ok(match name {
        "abs" => Box::new(|a| a & !(1 << 63)),
        "neg" => Box::new(|a| a ^ (1 << 63)),
        "sqrt" => Box::new(move |a| {
            let a = f64::from_bits(a);
            double_bits(Near::root(a).to_double(rounding), &[a])
        }),
        "rcp" => Box::new(move |a| {
            let a = f64::from_bits(a);
            double_bits(Near::quotient(1.0, a).to_double(rounding), &[a])
        }),
        _ => return Err("this instruction is not supported".to_owned()),
    })
}

fn test(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let names = [
        "finite",
        "infinite",
        "number",
        "notanumber",
        "normal",
        "subnormal",
    ];
    let Some(name) = op.take(|part| names.into_iter().find(|&name| name == part)) else {
        return Err(format!("one of {names:?} is missing"));
    };
    let kind = op.kind()?;
    let single: fn(f32) -> bool = match name {
        "finite" => |x| x.is_finite(),
        "infinite" => |x| x.is_infinite(),
        "number" => |x| !x.is_nan(),
        "notanumber" => |x| x.is_nan(),
        "normal" => |x| x.is_normal(),
        _ => |x| x.is_subnormal(),
    };
    let double: fn(f64) -> bool = match name {
        "finite" => |x| x.is_finite(),
        "infinite" => |x| x.is_infinite(),
        "number" => |x| !x.is_nan(),
        "notanumber" => |x| x.is_nan(),
        "normal" => |x| x.is_normal(),
        _ => |x| x.is_subnormal(),
    };
    let [_, _] = exactly(operands)?;
    match kind {
        Type::F32 => unary(
            body,
            operands,
            kind,
            Box::new(move |a| u64::from(single(f32::from_bits(a as u32)))),
        ),
        Type::F64 => unary(
            body,
            operands,
            kind,
            Box::new(move |a| u64::from(double(f64::from_bits(a)))),
        ),
        other => op.no_type(other),
    }
}
