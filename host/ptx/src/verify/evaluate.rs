//! What each instruction computes from the contents of its operands.

use super::Param;
use super::comparison::{comparison, limited};
use super::range::Range;
use super::ssa::{Definition, ValueId};
use super::values::{Contents, Origin, Subject, is_integer};
use crate::ast::{Instruction, Operand};
use crate::table::{Opcode, Role};
use crate::types::{Space, Type};

impl Subject<'_> {
    /// Evaluates a value from those that it is made of.
    pub(crate) fn evaluate(
        &self,
        value: ValueId,
        of: &mut dyn FnMut(ValueId) -> Contents,
    ) -> Contents {
        match &self.ssa.values[value.at()].definition {
            Definition::Zero => Contents::number(Range::constant(self.bits(value), 0)),
            Definition::Join { .. } => Contents::full(self.bits(value)),
            Definition::Choice { new, old, .. } => of(*new).union(of(*old)),
            Definition::Result { step, slot } => {
                let bits = self.bits(value);
                let found = self.result(*step, *slot, bits, of);
                if found.range.bits == bits {
                    found
                } else {
                    Contents::full(bits)
                }
            }
        }
    }

    fn result(
        &self,
        step: usize,
        slot: usize,
        bits: u32,
        of: &mut dyn FnMut(ValueId) -> Contents,
    ) -> Contents {
        let unknown = Contents::full(bits);
        let instruction = self.flow.steps[step].instruction;
        let Some(kind) = instruction.kind() else {
            return unknown;
        };
        if matches!(instruction.opcode, Opcode::Ld | Opcode::Ldu) {
            return self.loaded(step, slot, bits, kind).unwrap_or(unknown);
        }
        let is_plain = matches!(instruction.operands.first(), Some(Operand::Register(_)));
        if slot > 0
            || !is_plain
            || instruction
                .names()
                .any(|name| matches!(name, "cc" | "sat" | "relu"))
        {
            return unknown;
        }
        if instruction.opcode == Opcode::Cvt {
            return self.converted(step, bits, of).unwrap_or(unknown);
        }
        if !is_integer(kind) {
            return unknown;
        }
        self.computed(step, kind, bits, of).unwrap_or(unknown)
    }

    fn loaded(&self, step: usize, slot: usize, bits: u32, kind: Type) -> Option<Contents> {
        let instruction = self.flow.steps[step].instruction;
        let Some(Role::Memory(access)) = self.flow.steps[step].form.roles.get(1) else {
            return None;
        };
        if access.space == Space::Param && slot == 0 && instruction.vector() == 1 {
            let Some(Operand::Address(address)) = instruction.operands.get(1) else {
                return None;
            };
            let (index, offset) = super::parameter(self.function, address)?;
            match self.launch.params.get(index)? {
                Param::Buffer { .. } if offset == 0 && kind.bytes() == 8 && bits == 64 => {
                    return Some(Contents {
                        origin: Some(Origin::Buffer(index)),
                        range: Range::constant(64, 0),
                    });
                }
                Param::Value(bytes) if is_integer(kind) && !self.open.params => {
                    let end = offset + kind.bytes() as usize;
                    let found = bytes.get(offset..end)?;
                    let value = found
                        .iter()
                        .rev()
                        .fold(0, |word, &byte| (word << 8) | u64::from(byte));
                    let range = Range::constant(kind.bits(), value);
                    return Some(Contents::number(range.resized(kind.is_signed(), bits)));
                }
                _ => {}
            }
        }
        (is_integer(kind) && kind.bits() < bits)
            .then(|| Contents::number(Range::full(kind.bits()).resized(kind.is_signed(), bits)))
    }

    /// `cvt` between integers.
    fn converted(
        &self,
        step: usize,
        bits: u32,
        of: &mut dyn FnMut(ValueId) -> Contents,
    ) -> Option<Contents> {
        let instruction = self.flow.steps[step].instruction;
        let mut kinds = instruction.kinds();
        let (to, from) = (kinds.next()?, kinds.next()?);
        if !is_integer(to) || !is_integer(from) || instruction.operands.len() != 2 {
            return None;
        }
        let source = self.source(step, instruction.operands.get(1)?, from, of);
        if let Some(Origin::Variable(variable)) = source.origin
            && self.has_short_addresses(variable)
        {
            let (low, high) = source.range.signed();
            let is_inside = low >= 0 && high <= i128::from(self.variable_bytes(variable));
            let is_kept = to.bits() >= 32 && from.bits() >= 32 && bits == to.bits();
            return (is_inside && is_kept).then(|| Contents {
                origin: source.origin,
                range: source.range.resized(true, bits),
            });
        }
        if source.origin.is_some() && to.bits() == 64 && from.bits() == 64 {
            return Some(source);
        }
        let number = source.as_number().resized(from.is_signed(), to.bits());
        Some(Contents::number(number.resized(to.is_signed(), bits)))
    }

    /// An operand of `cvt`, whose register may be wider than the type.
    fn source(
        &self,
        step: usize,
        operand: &Operand,
        kind: Type,
        of: &mut dyn FnMut(ValueId) -> Contents,
    ) -> Contents {
        if let Operand::Register(register) = operand
            && let Some(value) = self.read(step, *register)
            && self.bits(value) > kind.bits()
        {
            let contents = of(value);
            return match contents.origin {
                None => Contents::number(contents.range.resized(false, kind.bits())),
                Some(_) => Contents::full(kind.bits()),
            };
        }
        self.operand(step, Some(operand), kind.bits(), of)
    }

    fn computed(
        &self,
        step: usize,
        kind: Type,
        bits: u32,
        of: &mut dyn FnMut(ValueId) -> Contents,
    ) -> Option<Contents> {
        let instruction = self.flow.steps[step].instruction;
        let width = kind.bits();
        let signed = kind.is_signed();
        let mut operand =
            |index: usize, bits: u32| self.operand(step, instruction.operands.get(index), bits, of);
        if matches!(instruction.opcode, Opcode::Mul | Opcode::Mad) {
            return product(instruction, kind, bits, &mut operand);
        }
        if bits != width {
            return None;
        }
        let mut number = |index: usize, bits: u32| operand(index, bits).as_number();
        let found = match instruction.opcode {
            Opcode::Mov | Opcode::Cvta if instruction.operands.len() == 2 => {
                return self.moved(instruction, operand(1, width));
            }
            Opcode::Add => return Some(operand(1, width).add(operand(2, width))),
            Opcode::Sub => return Some(operand(1, width).sub(operand(2, width))),
            Opcode::And => return Some(operand(1, width).mixed(operand(2, width), Range::and)),
            Opcode::Or | Opcode::Xor => {
                let is_exclusive = instruction.opcode == Opcode::Xor;
                let (a, b) = (operand(1, width), operand(2, width));
                return Some(a.mixed(b, |a, b| a.or(b, is_exclusive)));
            }
            Opcode::Selp => {
                let chosen = [operand(1, width), operand(2, width)];
                let [one, other] = [(0, true), (1, false)]
                    .map(|(index, holds)| self.chosen(step, index, holds, chosen[index], of));
                return Some(one.union(other));
            }
            Opcode::Not => {
                let ones = Range::constant(width, u64::MAX);
                ones.sub(number(1, width))
            }
            Opcode::Neg => number(1, width).negated(),
            Opcode::Shl => number(1, width).shifted_left(number(2, 32).value()? as u32),
            Opcode::Shr => number(1, width).shifted_right(number(2, 32).value()? as u32, signed),
            Opcode::Min | Opcode::Max if instruction.operands.len() == 3 => {
                let (a, b) = (number(1, width).read(signed), number(2, width).read(signed));
                if instruction.opcode == Opcode::Min {
                    Range::new(width, a.0.min(b.0), a.1.min(b.1))
                } else {
                    Range::new(width, a.0.max(b.0), a.1.max(b.1))
                }
            }
            Opcode::Div => quotient(number(1, width), number(2, width), signed)?,
            Opcode::Rem => remainder(number(1, width), number(2, width), signed)?,
            Opcode::Bfe => {
                let length = number(3, 32).value()?.min(u64::from(width)) as u32;
                if length == 0 {
                    return None;
                }
                Range::full(length).resized(signed, width)
            }
            _ => return None,
        };
        Some(Contents::number(found))
    }

    /// What `selp` chooses, if its condition compares just that, or what that is computed from.
    fn chosen(
        &self,
        step: usize,
        index: usize,
        holds: bool,
        contents: Contents,
        of: &mut dyn FnMut(ValueId) -> Contents,
    ) -> Contents {
        let mut limit = || {
            let operands = &self.flow.steps[step].instruction.operands;
            let register = |operand: Option<&Operand>| match operand {
                Some(Operand::Register(register)) => Some(*register),
                _ => None,
            };
            let value = self.read(step, register(operands.get(index + 1))?)?;
            let condition = self.read(step, register(operands.get(3))?)?;
            let Definition::Result {
                step: compares,
                slot: 0,
            } = self.ssa.values[condition.at()].definition
            else {
                return None;
            };
            let compared = self.flow.steps[compares].instruction;
            if compared.opcode != Opcode::Setp || compared.operands.len() != 3 {
                return None;
            }
            let left = self.read(compares, register(compared.operands.get(1))?)?;
            let (order, is_signed, bits) = comparison(compared)?;
            let before = of(left);
            if bits != self.bits(left) || before.origin.is_some() {
                return None;
            }
            let right = self.operand(compares, compared.operands.get(2), bits, of);
            let order = if holds { order } else { order.negated() };
            let range = limited(before.range, order, right.as_number(), is_signed);
            let limited = Contents::number(range);
            match self.ssa.values[value.at()].definition {
                _ if value == left => Some(limited),
                // Another `selp` would look at what it chooses in turn, as deep as they are
                // chained.
                Definition::Result { step, .. }
                    if self.reads(step, left)
                        && self.flow.steps[step].instruction.opcode != Opcode::Selp =>
                {
                    Some(self.evaluate(value, &mut |part| {
                        if part == left { limited } else { of(part) }
                    }))
                }
                _ => None,
            }
        };
        limit().map_or(contents, |limited| contents.meet(limited))
    }

    fn reads(&self, step: usize, value: ValueId) -> bool {
        self.ssa.reads[step].iter().any(|(_, read)| *read == value)
    }

    /// `mov`, and `cvta` for global memory, whose addresses are generic addresses.
    fn moved(&self, instruction: &Instruction, from: Contents) -> Option<Contents> {
        if instruction.opcode == Opcode::Mov || instruction.has("global") {
            return Some(from);
        }
        None
    }
}

fn product(
    instruction: &Instruction,
    kind: Type,
    bits: u32,
    operand: &mut dyn FnMut(usize, u32) -> Contents,
) -> Option<Contents> {
    let width = if instruction.has("wide") {
        2 * kind.bits()
    } else if instruction.has("lo") {
        kind.bits()
    } else {
        return None;
    };
    if bits != width {
        return None;
    }
    let (a, b) = (operand(1, kind.bits()), operand(2, kind.bits()));
    let found = a
        .as_number()
        .product(b.as_number(), kind.is_signed(), width);
    if instruction.opcode == Opcode::Mad {
        return Some(Contents::number(found).add(operand(3, width)));
    }
    Some(Contents::number(found))
}

/// The divisor, if it is a positive constant.
fn divisor(by: Range, signed: bool) -> Option<i128> {
    let by = by.read(signed);
    (by.0 == by.1 && by.0 > 0).then_some(by.0)
}

fn quotient(value: Range, by: Range, signed: bool) -> Option<Range> {
    let divisor = divisor(by, signed)?;
    let (low, high) = value.read(signed);
    Some(Range::new(value.bits, low / divisor, high / divisor))
}

fn remainder(value: Range, by: Range, signed: bool) -> Option<Range> {
    let divisor = divisor(by, signed)?;
    let (low, high) = value.read(signed);
    let most = divisor - 1;
    Some(if low < 0 {
        Range::new(value.bits, -most, most)
    } else if high < divisor {
        value
    } else {
        Range::new(value.bits, 0, most)
    })
}
