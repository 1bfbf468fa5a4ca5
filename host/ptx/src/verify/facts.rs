//! What is known at one place: the conditions of the branches that lead there, and of a guard.

mod refine;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::comparison::{can_hold, comparison, limited};
use super::range::Range;
use super::solve::Solution;
use super::ssa::{Definition, ValueId};
use super::values::Contents;
use crate::ast::Operand;
use crate::table::Opcode;

/// The greatest depth to which expressions are evaluated again and conditions are taken apart.
const DEPTH: u32 = 24;
/// The most values and conditions that are looked at again at one place. Less work proves less, so
/// that more is checked at run time.
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

    /// Takes one from the work that is left, here and at all places. Returns whether there was any.
    fn spend(&mut self) -> bool {
        let has_work = self.work > 0 && self.solution.spend();
        self.work = if has_work { self.work - 1 } else { 0 };
        has_work
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
        if depth > 0 && self.spend() {
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
        if !self.spend() {
            return;
        }
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
        let [a, b] = [1, 2].map(|index| self.register(step, index, bits));
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
}
