//! Arithmetic of f16 and bf16, scalar and in pairs: computed in f64 and rounded once.

use half::{bf16, f16};

use super::float::extreme_of;
use super::{Decoded, Mnemonic, Operand, binary, ternary, unary};
use crate::ptx::body::Body;
use crate::ptx::code::{Binary, Ternary, Unary};
use crate::ptx::rounding::{BRAIN, Format, HALF, Near, Rounding};
use crate::ptx::types::Type;

/// A 16-bit format and the modifiers of an instruction.
#[derive(Clone, Copy)]
struct Mode {
    format: Format,
    flushes: bool,
    saturates: bool,
    /// `.relu`: negative results become 0.
    rectifies: bool,
    is_pair: bool,
}

/// Decodes a 16-bit number.
pub(in crate::ptx) fn decode_half(bits: u64, format: Format) -> f64 {
    if format == HALF {
        f16::from_bits(bits as u16).to_f64()
    } else {
        bf16::from_bits(bits as u16).to_f64()
    }
}

impl Mode {
    fn read(self, bits: u64) -> f64 {
        let value = decode_half(bits & 0xffff, self.format);
        if self.flushes {
            self.flushed(value)
        } else {
            value
        }
    }

    fn flushed(self, value: f64) -> f64 {
        let least = if self.format == HALF {
            f16::MIN_POSITIVE.to_f64()
        } else {
            bf16::MIN_POSITIVE.to_f64()
        };
        if value.abs() < least {
            0.0_f64.copysign(value)
        } else {
            value
        }
    }

    fn finish(self, near: Near) -> u64 {
        let bits = near.encode(self.format, Rounding::Nearest);
        let rounded = self.read(bits);
        if self.saturates {
            let kept = if rounded > 0.0 { rounded.min(1.0) } else { 0.0 };
            return self.format.encode(kept, Rounding::Nearest);
        }
        if self.rectifies && rounded < 0.0 {
            return 0;
        }
        self.format.encode(rounded, Rounding::Nearest)
    }

    /// Applies a function to both halves of a pair, or to a scalar.
    fn each(self, function: impl Fn(u32) -> u64) -> u64 {
        if self.is_pair {
            function(0) | (function(16) << 16)
        } else {
            function(0)
        }
    }

    fn unary(self, function: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Unary {
        Box::new(move |a| self.each(|at| function((a >> at) & 0xffff)))
    }

    fn binary(self, function: impl Fn(f64, f64) -> Near + Send + Sync + 'static) -> Binary {
        Box::new(move |a, b| {
            self.each(|at| self.finish(function(self.read(a >> at), self.read(b >> at))))
        })
    }
}

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    if !matches!(op.rounding(), None | Some(Rounding::Nearest)) {
        return Err("of 16 bits there is only `.rn`".to_owned());
    }
    op.takes("approx");
    let (flushes, saturates, rectifies) = (op.takes("ftz"), op.takes("sat"), op.takes("relu"));
    let nan_wins = op.takes("NaN");
    let kind = op.kind()?;
    let format = match kind.half_of_pair().unwrap_or(kind) {
        Type::F16 => HALF,
        Type::Bf16 => BRAIN,
        other => return op.no_type(other),
    };
    let is_pair = kind.half_of_pair().is_some();
    let mode = Mode {
        format,
        flushes,
        saturates,
        rectifies,
        is_pair,
    };
    let exact: fn(f64) -> Near = |value| Near::product(value, 1.0);
    match op.name {
        "fma" => {
            let function: Ternary = Box::new(move |a, b, c| {
                mode.each(|at| {
                    let [a, b, c] = [a, b, c].map(|slot| mode.read(slot >> at));
                    mode.finish(Near::product_sum(a, b, c, Rounding::Nearest))
                })
            });
            ternary(body, operands, [kind; 3], function)
        }
        "abs" => unary(body, operands, kind, mode.unary(|a| a & 0x7fff)),
        "neg" => unary(body, operands, kind, mode.unary(|a| a ^ 0x8000)),
        "ex2" => unary(
            body,
            operands,
            kind,
            mode.unary(move |a| mode.finish(exact(libm::exp2(mode.read(a))))),
        ),
        "tanh" => unary(
            body,
            operands,
            kind,
            mode.unary(move |a| mode.finish(exact(libm::tanh(mode.read(a))))),
        ),
        name => {
            let function = match name {
                "add" => mode.binary(|a, b| Near::sum(a, b, Rounding::Nearest)),
                "sub" => mode.binary(|a, b| Near::sum(a, -b, Rounding::Nearest)),
                "mul" => mode.binary(Near::product),
                "min" => mode.binary(move |a, b| exact(extreme_of(a, b, false, nan_wins))),
                "max" => mode.binary(move |a, b| exact(extreme_of(a, b, true, nan_wins))),
                _ => return Err("this instruction is not supported".to_owned()),
            };
            binary(body, operands, [kind; 2], function)
        }
    }
}
