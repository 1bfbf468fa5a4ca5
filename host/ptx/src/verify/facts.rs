//! What is known at one place: the conditions of the branches that lead there, and of a guard.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::comparison::{can_hold, comparison, limited};
use super::range::Range;
use super::solve::Solution;
use super::ssa::{Definition, ValueId};
use super::values::{Contents, is_integer};
use crate::ast::{Operand, RegisterId};
use crate::table::Opcode;

/// The greatest depth to which expressions are evaluated again and conditions are taken apart.
const DEPTH: u32 = 24;
/// The most values that are evaluated again at one place.
const WORK: u32 = 2_000;

/// Hashes numbers of values. They count from zero, so that no kernel makes them collide.
#[derive(Default)]
struct ValueHasher(u64);

impl Hasher for ValueHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type ByValue<T> = HashMap<ValueId, T, BuildHasherDefault<ValueHasher>>;

pub(crate) struct Place<'p, 's> {
    solution: &'p Solution<'s>,
    refined: ByValue<Range>,
    truths: ByValue<bool>,
    known: ByValue<Contents>,
    /// The least and the greatest number of turns that loops have made, by their headers.
    turns: BTreeMap<usize, (i128, i128)>,
    work: u32,
    /// Whether the conditions contradict one another: control never comes here.
    pub(crate) is_impossible: bool,
}

impl<'p, 's> Place<'p, 's> {
    pub(crate) fn new(solution: &'p Solution<'s>) -> Self {
        Self {
            solution,
            refined: ByValue::default(),
            truths: ByValue::default(),
            known: ByValue::default(),
            turns: BTreeMap::new(),
            work: WORK,
            is_impossible: false,
        }
    }

    /// Returns the place where these conditions hold. Two passes let a condition use what a later
    /// one says.
    pub(crate) fn with(solution: &'p Solution<'s>, conditions: &[(ValueId, bool)]) -> Self {
        let mut place = Self::new(solution);
        for _ in 0..2 {
            for &(predicate, is) in conditions {
                place.assume(predicate, is, DEPTH);
            }
        }
        place
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.refined.is_empty() && self.truths.is_empty()
    }

    /// The contents of a value at this place.
    pub(crate) fn contents(&mut self, value: ValueId) -> Contents {
        self.evaluate(value, DEPTH)
    }

    fn evaluate(&mut self, value: ValueId, depth: u32) -> Contents {
        let everywhere = self.solution.contents(value);
        if self.is_plain() {
            return everywhere;
        }
        if let Some(&known) = self.known.get(&value) {
            return known;
        }
        let mut found = everywhere;
        if depth > 0 && self.work > 0 {
            self.work -= 1;
            let subject = self.solution.subject;
            let again = match &subject.ssa.values[value.at()].definition {
                Definition::Zero => everywhere,
                Definition::Join { block, .. } => self.after_turns(value, *block),
                Definition::Choice { step, new, old } => match self.guard_truth(*step) {
                    Some(true) => self.evaluate(*new, depth - 1),
                    Some(false) => self.evaluate(*old, depth - 1),
                    None => self
                        .evaluate(*new, depth - 1)
                        .union(self.evaluate(*old, depth - 1)),
                },
                Definition::Result { .. } => {
                    subject.evaluate(value, &mut |part| self.evaluate(part, depth - 1))
                }
            };
            found = everywhere.meet(again);
        }
        if let Some(refined) = self.refined.get(&value)
            && found.origin.is_none()
        {
            found.range = found.range.meet(*refined);
        }
        if depth == DEPTH || self.work > 0 {
            self.known.insert(value, found);
        }
        found
    }

    /// The contents of a join after the turns that its loop has made.
    fn after_turns(&self, join: ValueId, header: usize) -> Contents {
        match (self.turns.get(&header), self.solution.induction(join)) {
            (Some(&(least, most)), Some((start, induction))) => induction.after(start, least, most),
            _ => self.solution.contents(join),
        }
    }

    /// Learns from the range of a join how many turns its loop has made. All joins of the loop that
    /// grow by constants have made as many.
    fn count_turns(&mut self, join: ValueId, header: usize, range: Range) {
        let Some((start, induction)) = self.solution.induction(join) else {
            return;
        };
        if start.origin.is_some() {
            return;
        }
        let Some((least, most)) = induction.turns_until(start.range, range) else {
            return;
        };
        let known = self.turns.entry(header).or_insert((0, induction.turns));
        let (least, most) = (least.max(known.0), most.min(known.1));
        if least > most {
            self.is_impossible = true;
        } else {
            *known = (least, most);
        }
    }

    fn guard_truth(&self, step: usize) -> Option<bool> {
        let subject = self.solution.subject;
        let guard = subject.flow.steps[step].instruction.guard?;
        let value = subject.read(step, guard.predicate)?;
        self.truths
            .get(&value)
            .map(|truth| *truth != guard.is_negated)
    }

    fn assume(&mut self, predicate: ValueId, is: bool, depth: u32) {
        self.truths.insert(predicate, is);
        self.known.clear();
        let subject = self.solution.subject;
        let Definition::Result { step, slot } = subject.ssa.values[predicate.at()].definition
        else {
            return;
        };
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        let instruction = subject.flow.steps[step].instruction;
        let part = |index: usize| match instruction.operands.get(index) {
            Some(Operand::Register(register)) => Some((subject.read(step, *register)?, true)),
            Some(Operand::Not(register)) => Some((subject.read(step, *register)?, false)),
            _ => None,
        };
        match (instruction.opcode, is) {
            (Opcode::And, true) | (Opcode::Or, false) => {
                for (value, polarity) in [part(1), part(2)].into_iter().flatten() {
                    self.assume(value, is == polarity, depth);
                }
            }
            (Opcode::Not, _) => {
                if let Some((value, polarity)) = part(1) {
                    self.assume(value, is != polarity, depth);
                }
            }
            (Opcode::Mov, _) => {
                if let Some((value, polarity)) = part(1) {
                    self.assume(value, is == polarity, depth);
                }
            }
            (Opcode::Setp, _) if slot == 0 => {
                let third = instruction.operands.len() == 4;
                let joins = |name| third && instruction.has(name);
                if (joins("and") && is) || (joins("or") && !is) {
                    self.compare(step, is);
                    if let Some((value, polarity)) = part(3) {
                        self.assume(value, is == polarity, depth);
                    }
                } else if !third {
                    self.compare(step, is);
                }
            }
            _ => {}
        }
    }

    /// Learns from a comparison that it holds, or does not.
    fn compare(&mut self, step: usize, holds: bool) {
        let subject = self.solution.subject;
        let instruction = subject.flow.steps[step].instruction;
        let Some((order, is_signed, bits)) = comparison(instruction) else {
            return;
        };
        let order = if holds { order } else { order.negated() };
        let mut side = |index: usize| {
            let operand = instruction.operands.get(index);
            subject.operand(step, operand, bits, &mut |value| self.contents(value))
        };
        let (left, right) = (side(1), side(2));
        if left.origin.is_none() && right.origin.is_none() {
            self.is_impossible |= !can_hold(left.range, order, right.range, is_signed);
        }
        let value = |index: usize| match instruction.operands.get(index) {
            Some(Operand::Register(register)) => self.value_of(step, *register, bits),
            _ => None,
        };
        let (a, b) = (value(1), value(2));
        if let Some(a) = a.filter(|_| left.origin.is_none()) {
            let limit = limited(left.as_number(), order, right.as_number(), is_signed);
            self.refine(a, limit, DEPTH);
        }
        if let Some(b) = b.filter(|_| right.origin.is_none()) {
            let limit = limited(
                right.as_number(),
                order.turned(),
                left.as_number(),
                is_signed,
            );
            self.refine(b, limit, DEPTH);
        }
    }

    fn value_of(&self, step: usize, register: RegisterId, bits: u32) -> Option<ValueId> {
        let subject = self.solution.subject;
        let value = subject.read(step, register)?;
        (subject.bits(value) == bits).then_some(value)
    }

    /// Learns that a value is in a range, and what follows for the values that it is made of.
    fn refine(&mut self, value: ValueId, range: Range, depth: u32) {
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
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        let instruction = subject.flow.steps[step].instruction;
        let bits = subject.bits(value);
        if instruction
            .names()
            .any(|name| matches!(name, "cc" | "sat" | "hi"))
        {
            return;
        }
        let Some(kind) = instruction.kind().filter(|kind| is_integer(*kind)) else {
            return;
        };
        let register = |index: usize, bits: u32| match instruction.operands.get(index) {
            Some(Operand::Register(register)) => self.value_of(step, *register, bits),
            _ => None,
        };
        match instruction.opcode {
            Opcode::Mov if kind.bits() == bits => {
                if let Some(from) = register(1, bits) {
                    self.refine(from, now, depth);
                }
            }
            Opcode::Cvt => {
                let kinds: Vec<_> = instruction.kinds().collect();
                let [to, from] = kinds.as_slice() else {
                    return;
                };
                // A conversion that keeps the value: to all of the register, and from a narrower
                // type or from a small number.
                if !is_integer(*to) || to.bits() != bits {
                    return;
                }
                if from.bits() > to.bits() {
                    let Some(source) = register(1, from.bits()) else {
                        return;
                    };
                    let before = self.contents(source).as_number().unsigned();
                    if before.1 < 1_i128 << bits {
                        let (low, high) = now.unsigned();
                        self.refine(source, Range::new(from.bits(), low, high), depth);
                    }
                    return;
                }
                if let Some(source) = register(1, from.bits()) {
                    let (low, high) = now.read(from.is_signed());
                    let (least, most) = Range::full(from.bits()).read(from.is_signed());
                    let (low, high) = (low.max(least), high.min(most));
                    if low <= high {
                        self.refine(source, Range::new(from.bits(), low, high), depth);
                    }
                }
            }
            Opcode::Add | Opcode::Sub if kind.bits() == bits => {
                let is_sum = instruction.opcode == Opcode::Add;
                let sides = [register(1, bits), register(2, bits)];
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
            Opcode::Or if kind.bits() == bits => self.refine_disjoint(step, now, bits, depth),
            Opcode::Shl if kind.bits() == bits => {
                let amount = match instruction.operands.get(2) {
                    Some(Operand::Immediate(crate::ast::Immediate::Integer(amount))) => *amount,
                    _ => return,
                };
                if let Some(from) = register(1, bits)
                    && amount < u64::from(bits)
                {
                    self.refine_factor(from, now, 1 << amount, depth);
                }
            }
            Opcode::Mul if instruction.has("lo") || instruction.has("wide") => {
                let (factor, at) = match (instruction.operands.get(1), instruction.operands.get(2))
                {
                    (_, Some(Operand::Immediate(crate::ast::Immediate::Integer(factor)))) => {
                        (*factor, 1)
                    }
                    (Some(Operand::Immediate(crate::ast::Immediate::Integer(factor))), _) => {
                        (*factor, 2)
                    }
                    _ => return,
                };
                let factor = i128::from(factor);
                // Factors that have the same value read as signed.
                if (1..1 << 30).contains(&factor)
                    && let Some(from) = register(at, kind.bits())
                    && kind.bits() == bits
                {
                    self.refine_factor(from, now, factor, depth);
                }
            }
            _ => {}
        }
    }

    /// `or` of numbers that share no bits is their sum.
    fn refine_disjoint(&mut self, step: usize, now: Range, bits: u32, depth: u32) {
        let subject = self.solution.subject;
        let instruction = subject.flow.steps[step].instruction;
        let sides = [1, 2].map(|index| {
            let operand = instruction.operands.get(index);
            let contents = subject.operand(step, operand, bits, &mut |value| self.contents(value));
            let value = match operand {
                Some(Operand::Register(register)) => self.value_of(step, *register, bits),
                _ => None,
            };
            (contents, value)
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
        let (low, high) = (range.low * factor, range.high * factor);
        if high - low >= size {
            return;
        }
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
