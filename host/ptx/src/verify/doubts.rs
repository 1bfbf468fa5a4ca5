//! Conditions that are not believed: those on which loops are left, where what they compare may
//! come near the ends of its type.
//!
//! PTX says that integers wrap. Assemblers count the turns of a loop as if neither what its exit
//! compares nor a difference of it did. ptxas 13.0 turns `do { i += 0x80000000; } while (i >= 64);`
//! with unsigned numbers from -1 on, which never ends, into one turn, so that what follows runs
//! with an `i` that no condition allows; this faulted on an H100. It unrolls
//! `do { i += 1; } while (i < n);` for signed numbers if `n - i > 3`, which wraps for a small `n`
//! and a great `i`, and then makes two thousand million turns in place of one.
//!
//! So the condition of an exit is a fact only if all numbers that its comparison depends on in the
//! loop are far from the ends of their types ([`is_near`]). Otherwise both ways out of the branch
//! are possible and say nothing, and the fence hides the comparison from the assembler
//! ([`Doubts::steps`]), which then cannot count.

use std::collections::{BTreeSet, HashSet};

use super::comparison::comparison;
use super::range::Range;
use super::solve::Solution;
use super::ssa::{Definition, ValueId};
use super::values::{Contents, is_integer};
use crate::ast::{Instruction, Operand};
use crate::table::{Opcode, Role};
use crate::types::Space;

/// The step of a loop, as a part of its type: ptxas unrolls at most 2^4 turns.
const STEP_BITS: u32 = 6;

/// The branches and comparisons that are not believed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts {
    /// The blocks that end with such a branch.
    blocks: BTreeSet<usize>,
    /// The comparisons that these branches depend on.
    pub(crate) steps: BTreeSet<usize>,
}

/// What a predicate is computed from in a loop.
struct Slice<'v, 's> {
    solution: &'v Solution<'s>,
    /// The blocks of the loop, sorted.
    body: &'v [usize],
    /// The block of each step.
    blocks: &'v [usize],
    open: Vec<ValueId>,
    seen: HashSet<ValueId>,
    comparisons: Vec<usize>,
    /// Whether something of it may be far from zero.
    is_far: bool,
}

impl Doubts {
    /// Whether the branch at the end of a block is believed.
    pub(crate) fn believes(&self, block: usize) -> bool {
        !self.blocks.contains(&block)
    }

    /// Adds the exits that are not believed with this solution. Returns whether there was any that
    /// was believed before, and `None` if there is too much work.
    pub(crate) fn grow(&mut self, solution: &Solution<'_>) -> Option<bool> {
        let flow = solution.subject.flow;
        let mut blocks = vec![0; flow.steps.len()];
        for &block in &flow.order {
            blocks[flow.blocks[block].first..flow.blocks[block].end].fill(block);
        }
        let before = self.blocks.len();
        if flow.loops.iter().all(|one| one.is_natural) {
            for one in &flow.loops {
                self.examine(solution, &one.body, &blocks, false)?;
            }
        } else {
            // Which blocks are in a loop is not known.
            let mut all = flow.order.clone();
            all.sort_unstable();
            self.examine(solution, &all, &blocks, true)?;
        }
        Some(self.blocks.len() > before)
    }

    fn examine(
        &mut self,
        solution: &Solution<'_>,
        body: &[usize],
        blocks: &[usize],
        is_exit: bool,
    ) -> Option<()> {
        let subject = solution.subject;
        for &from in body {
            let block = &subject.flow.blocks[from];
            let leaves = |to| body.binary_search(&to).is_err();
            let is_exit = is_exit || block.leaves || block.next.iter().any(|edge| leaves(edge.to));
            let condition = block.next.iter().find_map(|edge| edge.condition);
            let Some(condition) = condition.filter(|_| is_exit && self.believes(from)) else {
                continue;
            };
            let Some(predicate) = subject.read(block.end.checked_sub(1)?, condition.predicate)
            else {
                continue;
            };
            let mut slice = Slice {
                solution,
                body,
                blocks,
                open: vec![predicate],
                seen: HashSet::new(),
                comparisons: Vec::new(),
                is_far: false,
            };
            slice.walk()?;
            if slice.is_far {
                self.blocks.insert(from);
                self.steps.extend(slice.comparisons);
            }
        }
        Some(())
    }
}

impl Slice<'_, '_> {
    /// `None` if there is too much work.
    fn walk(&mut self) -> Option<()> {
        while let Some(value) = self.open.pop() {
            let subject = self.solution.subject;
            if !self.seen.insert(value) {
                continue;
            }
            subject.work.spend(1)?;
            let is_inside = |block: usize| self.body.binary_search(&block).is_ok();
            match &subject.ssa.values[value.at()].definition {
                Definition::Join { block, from } if is_inside(*block) => {
                    subject.work.spend(from.len())?;
                    self.open.extend(from);
                }
                Definition::Choice { step, new, old } if is_inside(self.blocks[*step]) => {
                    self.open.extend([*new, *old]);
                }
                Definition::Result { step, .. } if is_inside(self.blocks[*step]) => {
                    self.result(*step);
                }
                _ => {}
            }
        }
        Some(())
    }

    fn result(&mut self, step: usize) {
        let one = &self.solution.subject.flow.steps[step];
        let instruction = one.instruction;
        let is_loaded =
            |role: &Role| matches!(role, Role::Memory(access) if access.space != Space::Param);
        if one.form.roles.iter().any(is_loaded) {
            // What memory holds is not counted.
            return;
        }
        if instruction.opcode == Opcode::Setp {
            self.comparisons.push(step);
        }
        self.is_far |= !self.stays_near(step, instruction);
        for (register, value) in &self.solution.subject.ssa.reads[step] {
            let is_guard = instruction
                .guard
                .is_some_and(|guard| guard.predicate == *register);
            if !is_guard {
                self.open.push(*value);
            }
        }
    }

    /// Whether the numbers of an instruction, and its result as a whole number, are near zero.
    fn stays_near(&self, step: usize, instruction: &Instruction) -> bool {
        use Opcode as O;
        let kind = match instruction.kind() {
            Some(kind) if is_integer(kind) => kind,
            // No loop is counted by other numbers.
            Some(_) => return true,
            None => return !matches!(instruction.opcode, O::Addc | O::Subc | O::Madc),
        };
        let bits = kind.bits();
        let part = |index: usize| self.part(step, instruction.operands.get(index), bits);
        match instruction.opcode {
            O::Setp | O::Set => {
                let is_signed = comparison(instruction)
                    .is_none_or(|(order, is_signed, _)| is_signed || order.is_equality());
                [1, 2].map(part).iter().all(|side| {
                    let (low, _) = side.range.signed();
                    is_near(side) && (is_signed || side.origin.is_some() || low >= 0)
                })
            }
            // These compute no greater numbers than they get; parameters are the same in each turn.
            O::Ld
            | O::Ldu
            | O::Mov
            | O::Cvta
            | O::And
            | O::Or
            | O::Xor
            | O::Not
            | O::Shr
            | O::Min
            | O::Max
            | O::Selp
            | O::Rem
            | O::Div
            | O::Vote
            | O::Popc
            | O::Clz
            | O::Bfe
            | O::Lop3
            | O::Prmt
            | O::Shf => true,
            O::Cvt => self.keeps(step, instruction),
            _ if instruction.has("cc") || instruction.has("hi") => false,
            O::Add | O::Sub => {
                let (a, b) = (part(1), part(2));
                let sum = if instruction.opcode == O::Add {
                    a.add(b)
                } else {
                    a.sub(b)
                };
                // The smaller one is the step. Unrolling takes it several times.
                let is_step = |one: &Contents| {
                    one.origin.is_none() && within(one.range.signed(), bits - STEP_BITS)
                };
                [a, b, sum].iter().all(is_near) && (is_step(&a) || is_step(&b))
            }
            O::Mul | O::Mad => {
                let is_wide = instruction.has("wide");
                let read = |index: usize| {
                    let number = part(index).as_number();
                    if is_wide {
                        number.read(kind.is_signed())
                    } else {
                        number.signed()
                    }
                };
                let bits = if is_wide { 2 * bits } else { bits };
                let more = match instruction.opcode {
                    O::Mad => self.part(step, instruction.operands.get(3), bits),
                    _ => Contents::number(Range::constant(bits, 0)),
                };
                // Twice as near, so that the sum is near.
                let is_small = |ends| within(ends, bits - 3);
                product(read(1), read(2)).is_some_and(is_small)
                    && is_near(&more)
                    && (more.origin.is_some() || is_small(more.range.signed()))
            }
            O::Shl => {
                let by = self.part(step, instruction.operands.get(2), 32).as_number();
                let (low, high) = part(1).as_number().signed();
                let by = by.value().filter(|by| *by < 32);
                by.is_some_and(|by| within((low << by, high << by), bits - 2))
            }
            O::Neg => is_near(&part(1)),
            _ => false,
        }
    }

    /// Whether a conversion keeps all numbers that it may get.
    fn keeps(&self, step: usize, instruction: &Instruction) -> bool {
        let mut kinds = instruction.kinds();
        let (Some(to), Some(from)) = (kinds.next(), kinds.next()) else {
            return false;
        };
        if !is_integer(to) {
            return true;
        }
        let part = self.part(step, instruction.operands.get(1), from.bits());
        if part.origin.is_some() {
            return to.bits() >= from.bits();
        }
        let (low, high) = part.range.read(from.is_signed());
        let (least, most) = Range::full(to.bits()).read(to.is_signed());
        is_near(&part) && least <= low && high <= most
    }

    fn part(&self, step: usize, operand: Option<&Operand>, bits: u32) -> Contents {
        let of = &mut |value| self.solution.contents(value);
        self.solution.subject.operand(step, operand, bits, of)
    }
}

/// Whether all contents are less than a quarter of what their type can hold away from zero, so that
/// the difference of two of them does not wrap. Addresses are far from the ends of their type.
fn is_near(contents: &Contents) -> bool {
    match contents.origin {
        Some(_) => !contents.range.is_full(),
        None => within(contents.range.signed(), contents.range.bits - 2),
    }
}

/// Whether all numbers from the first to the second are at most 2 to this power away from zero.
fn within((low, high): (i128, i128), bits: u32) -> bool {
    let most = 1_i128 << bits;
    -most <= low && high <= most
}

/// The least and the greatest product.
fn product((a, b): (i128, i128), (c, d): (i128, i128)) -> Option<(i128, i128)> {
    let ends = [
        a.checked_mul(c)?,
        a.checked_mul(d)?,
        b.checked_mul(c)?,
        b.checked_mul(d)?,
    ];
    let (low, high) = (ends.iter().min()?, ends.iter().max()?);
    Some((*low, *high))
}
