//! Joins that a loop changes by a constant each turn, and how often the loop turns.

use super::Solution;
use crate::ast::Operand;
use crate::table::Opcode;
use crate::verify::range::Range;
use crate::verify::ssa::{Definition, ValueId};
use crate::verify::values::{Contents, is_integer};

/// A join that a loop changes by `step` each turn, at most `turns` times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Induction {
    pub(crate) step: i128,
    pub(crate) turns: i128,
}

impl Solution<'_> {
    pub(super) fn bound_inductions(&mut self) {
        let subject = self.subject;
        for one in subject.flow.loops.iter().filter(|one| one.is_natural) {
            let Some(turns) = self.turns(one.header) else {
                continue;
            };
            for &join in &subject.ssa.joins[one.header] {
                if let Some(step) = self.step_of(join) {
                    self.inductions[join.at()] = Some(Induction { step, turns });
                }
            }
        }
    }

    /// How often control can go back to the header of a natural loop before it leaves the loop.
    pub(crate) fn turns(&self, header: usize) -> Option<i128> {
        let joins = &self.subject.ssa.joins[header];
        let bounds = joins.iter().filter_map(|&join| {
            let step = self.step_of(join)?;
            let range = self.contents[join.at()]?.range;
            let size = 1_i128 << range.bits;
            // Without overflow the join only grows, or only shrinks, and it stays in its range.
            let own = (range.high - range.low + step.abs() < size && step != 0)
                .then(|| (range.high - range.low) / step.abs());
            let known = self.inductions[join.at()].map(|induction| induction.turns);
            match (own, known) {
                (Some(own), Some(known)) => Some(own.min(known)),
                (own, known) => own.or(known),
            }
        });
        bounds.min()
    }

    /// The constant that each back edge of the loop adds to a join, if all add the same.
    fn step_of(&self, join: ValueId) -> Option<i128> {
        let flow = self.subject.flow;
        let Definition::Join { block, from } = &self.subject.ssa.values[join.at()].definition
        else {
            return None;
        };
        let ways = &flow.blocks[*block].before;
        let mut found = None;
        for (way, part) in ways.iter().zip(from) {
            if !flow.dominates(*block, *way) {
                continue;
            }
            let step = self.difference(*part, join)?;
            if found.is_some_and(|found| found != step) {
                return None;
            }
            found = Some(step);
        }
        found.filter(|step| *step != 0)
    }

    /// The constant `value - join`, if `value` is computed from `join` by additions of constants.
    fn difference(&self, mut value: ValueId, join: ValueId) -> Option<i128> {
        let subject = self.subject;
        let bits = subject.bits(join);
        let mut sum = Range::constant(bits, 0);
        for _ in 0..8 {
            if value == join {
                return Some(sum.low);
            }
            let Definition::Result { step, .. } = subject.ssa.values[value.at()].definition else {
                return None;
            };
            let instruction = subject.flow.steps[step].instruction;
            let is_exact = instruction
                .names()
                .all(|name| !matches!(name, "cc" | "sat"));
            let kind = instruction
                .kind()
                .filter(|kind| is_exact && kind.bits() == bits)?;
            if !is_integer(kind) {
                return None;
            }
            let constant = |operand: Option<&Operand>| {
                subject
                    .operand(step, operand, bits, &mut |part| self.contents_so_far(part))
                    .as_number()
                    .value()
            };
            let register = |index: usize| match instruction.operands.get(index) {
                Some(Operand::Register(register)) => subject.read(step, *register),
                _ => None,
            };
            let right = constant(instruction.operands.get(2));
            let left = constant(instruction.operands.get(1));
            (value, sum) = match (instruction.opcode, left, right) {
                (Opcode::Mov, ..) => (register(1)?, sum),
                (Opcode::Add, _, Some(right)) => {
                    (register(1)?, sum.add(Range::constant(bits, right)))
                }
                (Opcode::Add, Some(left), _) => {
                    (register(2)?, sum.add(Range::constant(bits, left)))
                }
                (Opcode::Sub, _, Some(right)) => {
                    (register(1)?, sum.sub(Range::constant(bits, right)))
                }
                _ => return None,
            };
        }
        None
    }
}

impl Induction {
    /// The contents of a join after `least` to `most` turns, if they were `first` before the loop.
    pub(crate) fn after(self, first: Contents, least: i128, most: i128) -> Contents {
        let bits = first.range.bits;
        if !self.is_exact(bits) {
            return Contents::full(bits);
        }
        let (a, b) = (self.step * least, self.step * most.min(self.turns));
        let zeros = self.step.trailing_zeros().min(bits);
        let moved = Range::new(bits, a.min(b), a.max(b)).knowing(zeros, 0);
        Contents {
            origin: first.origin,
            range: first.range.add(moved),
        }
    }

    /// Whether all turns together do not wrap around, so that no two turns have the same value.
    fn is_exact(self, bits: u32) -> bool {
        let end = self.step.checked_mul(self.turns);
        end.is_some_and(|end| end.abs() < 1_i128 << bits)
    }

    /// The least and the greatest number of turns after which the join is in `now`.
    pub(crate) fn turns_until(self, first: Range, now: Range) -> Option<(i128, i128)> {
        if !self.is_exact(now.bits) || first.bits != now.bits {
            return None;
        }
        let distance = if self.step > 0 {
            now.sub(first)
        } else {
            first.sub(now)
        };
        let ((low, high), step) = (distance.unsigned(), self.step.abs());
        Some((-(-low).div_euclid(step), (high / step).min(self.turns)))
    }
}
