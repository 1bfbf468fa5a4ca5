//! What a value's range tells about the values that it is made of.

use super::Place;
use crate::ast::{Immediate, Instruction, Operand};
use crate::table::Opcode;
use crate::verify::range::Range;
use crate::verify::ssa::{Definition, ValueId};
use crate::verify::values::is_integer;

impl Place<'_, '_> {
    /// The value of an operand, if it is a register of these bits.
    pub(super) fn register(&self, step: usize, index: usize, bits: u32) -> Option<ValueId> {
        let subject = self.solution.subject;
        let operand = subject.flow.steps[step].instruction.operands.get(index)?;
        let Operand::Register(register) = operand else {
            return None;
        };
        let value = subject.read(step, *register)?;
        (subject.bits(value) == bits).then_some(value)
    }

    /// Learns that a value is in a range, and what follows for the values that it is made of.
    pub(super) fn refine(&mut self, value: ValueId, range: Range, depth: u32) {
        let before = self.contents(value);
        if before.origin.is_some() {
            return;
        }
        let now = before.range.meet(range);
        if now == before.range && self.refined.contains_key(&value) {
            return;
        }
        self.refined.insert(value, now);
        self.known.clear();
        let subject = self.solution.subject;
        if let Definition::Join { block, .. } = subject.ssa.values[value.at()].definition {
            self.count_turns(value, block, now);
        }
        let Definition::Result { step, slot: 0 } = subject.ssa.values[value.at()].definition else {
            return;
        };
        if let Some(depth) = depth.checked_sub(1) {
            self.refine_operands(step, now, subject.bits(value), depth);
        }
    }

    /// Learns what follows for the operands of an instruction whose result of `bits` is in a range.
    fn refine_operands(&mut self, step: usize, now: Range, bits: u32, depth: u32) {
        let instruction = self.solution.subject.flow.steps[step].instruction;
        if instruction
            .names()
            .any(|name| matches!(name, "cc" | "sat" | "hi"))
        {
            return;
        }
        let Some(kind) = instruction.kind().filter(|kind| is_integer(*kind)) else {
            return;
        };
        match instruction.opcode {
            Opcode::Mov if kind.bits() == bits => {
                if let Some(from) = self.register(step, 1, bits) {
                    self.refine(from, now, depth);
                }
            }
            Opcode::Cvt => self.refine_converted(step, now, bits, depth),
            Opcode::Add | Opcode::Sub if kind.bits() == bits => {
                self.refine_terms(step, now, bits, depth);
            }
            Opcode::Or if kind.bits() == bits => self.refine_disjoint(step, now, bits, depth),
            Opcode::Shl if kind.bits() == bits => {
                let amount = match instruction.operands.get(2) {
                    Some(Operand::Immediate(Immediate::Integer(amount))) => *amount,
                    _ => return,
                };
                if let Some(from) = self.register(step, 1, bits)
                    && amount < u64::from(bits)
                {
                    self.refine_factor(from, now, 1 << amount, depth);
                }
            }
            Opcode::Mul if instruction.has("lo") || instruction.has("wide") => {
                if let Some((factor, at)) = constant_factor(instruction)
                    && let Some(from) = self.register(step, at, kind.bits())
                    && kind.bits() == bits
                {
                    self.refine_factor(from, now, factor, depth);
                }
            }
            _ => {}
        }
    }

    /// Learns what follows for the source of a conversion that keeps the value: to all of the
    /// register, and from a narrower type or from a small number.
    fn refine_converted(&mut self, step: usize, now: Range, bits: u32, depth: u32) {
        let instruction = self.solution.subject.flow.steps[step].instruction;
        let kinds: Vec<_> = instruction.kinds().collect();
        let [to, from] = kinds.as_slice() else {
            return;
        };
        if !is_integer(*to) || to.bits() != bits {
            return;
        }
        let Some(source) = self.register(step, 1, from.bits()) else {
            return;
        };
        if from.bits() > to.bits() {
            let before = self.contents(source).as_number().unsigned();
            if before.1 < 1_i128 << bits {
                let (low, high) = now.unsigned();
                self.refine(source, Range::new(from.bits(), low, high), depth);
            }
            return;
        }
        let (low, high) = now.read(from.is_signed());
        let (least, most) = Range::full(from.bits()).read(from.is_signed());
        let (low, high) = (low.max(least), high.min(most));
        if low <= high {
            self.refine(source, Range::new(from.bits(), low, high), depth);
        }
    }

    /// Learns what follows for both operands of a sum or a difference.
    fn refine_terms(&mut self, step: usize, now: Range, bits: u32, depth: u32) {
        let subject = self.solution.subject;
        let instruction = subject.flow.steps[step].instruction;
        let is_sum = instruction.opcode == Opcode::Add;
        let sides = [1, 2].map(|index| self.register(step, index, bits));
        let [left, right] = [1, 2].map(|index| {
            let operand = instruction.operands.get(index);
            subject.operand(step, operand, bits, &mut |value| self.contents(value))
        });
        if left.origin.is_some() || right.origin.is_some() {
            return;
        }
        let (left, right) = (left.range, right.range);
        if let Some(a) = sides[0] {
            let from = if is_sum {
                now.sub(right)
            } else {
                now.add(right)
            };
            self.refine(a, from, depth);
        }
        if let Some(b) = sides[1] {
            let from = if is_sum { now.sub(left) } else { left.sub(now) };
            self.refine(b, from, depth);
        }
    }

    /// `or` of numbers that share no bits is their sum.
    fn refine_disjoint(&mut self, step: usize, now: Range, bits: u32, depth: u32) {
        let subject = self.solution.subject;
        let instruction = subject.flow.steps[step].instruction;
        let sides = [1, 2].map(|index| {
            let operand = instruction.operands.get(index);
            let contents = subject.operand(step, operand, bits, &mut |value| self.contents(value));
            (contents, self.register(step, index, bits))
        });
        let [(a, left), (b, right)] = sides;
        if a.origin.is_some() || b.origin.is_some() {
            return;
        }
        if a.range.is_disjoint(b.range) {
            if let Some(left) = left {
                self.refine(left, now.sub(b.range), depth);
            }
            if let Some(right) = right {
                self.refine(right, now.sub(a.range), depth);
            }
        }
    }

    /// Learns from the range of a product what a factor is, if the product did not overflow.
    fn refine_factor(&mut self, from: ValueId, now: Range, factor: i128, depth: u32) {
        let contents = self.contents(from);
        if contents.origin.is_some() {
            return;
        }
        let size = 1_i128 << now.bits;
        let range = contents.range;
        let ends = range
            .low
            .checked_mul(factor)
            .zip(range.high.checked_mul(factor));
        let Some((low, high)) = ends.filter(|(low, high)| high - low < size) else {
            return;
        };
        // How often the product went around: it must be one number.
        let first = -(now.high - low).div_euclid(size);
        let last = (high - now.low).div_euclid(size);
        if first != last {
            return;
        }
        let least = low.max(now.low + first * size);
        let most = high.min(now.high + first * size);
        // The least and the greatest number whose product is between them.
        let least = -(-least).div_euclid(factor);
        let most = most.div_euclid(factor);
        if least <= most {
            self.refine(from, Range::new(now.bits, least, most), depth);
        }
    }
}

/// The constant factor of a multiplication, if it has the same value read as signed, and the index
/// of the other factor.
fn constant_factor(instruction: &Instruction) -> Option<(i128, usize)> {
    let integer = |index: usize| match instruction.operands.get(index) {
        Some(Operand::Immediate(Immediate::Integer(factor))) => Some(i128::from(*factor)),
        _ => None,
    };
    let found = integer(2).map(|factor| (factor, 1));
    let found = found.or_else(|| Some((integer(1)?, 2)));
    found.filter(|(factor, _)| (1..1 << 30).contains(factor))
}
