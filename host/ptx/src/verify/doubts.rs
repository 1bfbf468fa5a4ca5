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
//! So an exit is believed only if all numbers that its comparison depends on in the loop are far
//! from the ends of their types ([`is_near`]), and so are the steps by which they change. Otherwise
//! both ways out of the branch are possible and say nothing. The fence hides the comparisons of
//! such exits from the assembler ([`Doubts::steps`]), which then cannot count. It hides those of
//! other exits, too, if another number that the loop changes may come near an end: an assembler may
//! count by that one instead.

use std::collections::{BTreeSet, HashSet};

use super::comparison::comparison;
use super::range::Range;
use super::solve::Solution;
use super::ssa::{Definition, ValueId};
use super::values::{Contents, is_integer};
use crate::ast::{Instruction, Operand};
use crate::table::{Opcode, Role};
use crate::types::Space;

/// How much smaller than its type the step of a loop must be, in bits: assemblers unroll loops.
const STEP_BITS: u32 = 8;

/// How much smaller than its type a number must be, in bits.
const NEAR_BITS: u32 = 3;

/// The branches that are not believed, and the comparisons that are hidden.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts {
    /// The blocks that end with such a branch.
    blocks: BTreeSet<usize>,
    /// The comparisons that exits depend on, and that an assembler must not count turns by.
    pub(crate) steps: BTreeSet<usize>,
}

/// How the exits of a loop are examined.
#[derive(Clone, Copy)]
struct Exits {
    /// Whether each branch counts as an exit.
    are_all: bool,
    /// Whether an exit is believed that is not far.
    believes: bool,
}

/// A loop, and what changes in it.
struct LoopView<'v, 's> {
    solution: &'v Solution<'s>,
    /// The blocks of the loop, sorted.
    body: &'v [usize],
    /// The block of each step.
    blocks: &'v [usize],
    /// The values that are computed from joins of the loop.
    changing: HashSet<ValueId>,
    /// Whether a number that changes may be far from zero.
    has_far: bool,
}

/// What an exit's condition is computed from in a loop.
#[derive(Default)]
struct Slice {
    comparisons: Vec<usize>,
    /// Whether something of it may be far from zero.
    is_far: bool,
}

impl Doubts {
    /// Whether the branch at the end of a block is believed.
    pub(crate) fn believes(&self, block: usize) -> bool {
        !self.blocks.contains(&block)
    }

    /// Adds what is not believed, and what is hidden, with this solution: exits that may be far, or
    /// all exits if none is believed. Returns whether an exit was believed before and is not now,
    /// and `None` if there is too much work.
    pub(crate) fn grow(&mut self, solution: &Solution<'_>, believes: bool) -> Option<bool> {
        let flow = solution.subject.flow;
        let mut blocks = vec![0; flow.steps.len()];
        for &block in &flow.order {
            blocks[flow.blocks[block].first..flow.blocks[block].end].fill(block);
        }
        let before = self.blocks.len();
        if flow.loops.iter().all(|one| one.is_natural) {
            for one in &flow.loops {
                self.examine(
                    solution,
                    &one.body,
                    &blocks,
                    Exits {
                        are_all: false,
                        believes,
                    },
                )?;
            }
        } else {
            // Which blocks are in a loop is not known.
            let mut all = flow.order.clone();
            all.sort_unstable();
            self.examine(
                solution,
                &all,
                &blocks,
                Exits {
                    are_all: true,
                    believes,
                },
            )?;
        }
        Some(self.blocks.len() > before)
    }

    fn examine(
        &mut self,
        solution: &Solution<'_>,
        body: &[usize],
        blocks: &[usize],
        exits: Exits,
    ) -> Option<()> {
        let subject = solution.subject;
        let view = LoopView::new(solution, body, blocks)?;
        for &from in body {
            let block = &subject.flow.blocks[from];
            let leaves = |to| body.binary_search(&to).is_err();
            let is_exit =
                exits.are_all || block.leaves || block.next.iter().any(|edge| leaves(edge.to));
            let condition = block.next.iter().find_map(|edge| edge.condition);
            let Some(condition) = condition.filter(|_| is_exit) else {
                continue;
            };
            let Some(predicate) = subject.read(block.end.checked_sub(1)?, condition.predicate)
            else {
                continue;
            };
            let slice = view.slice(predicate)?;
            let is_doubted = slice.is_far || !exits.believes;
            if is_doubted {
                self.blocks.insert(from);
            }
            if is_doubted || view.has_far {
                self.steps.extend(slice.comparisons);
            }
        }
        Some(())
    }
}

impl<'v, 's> LoopView<'v, 's> {
    /// `None` if there is too much work.
    fn new(solution: &'v Solution<'s>, body: &'v [usize], blocks: &'v [usize]) -> Option<Self> {
        let subject = solution.subject;
        let mut view = Self {
            solution,
            body,
            blocks,
            changing: HashSet::new(),
            has_far: false,
        };
        for &block in body {
            view.changing.extend(&subject.ssa.joins[block]);
        }
        // All that a value is computed from comes before it in this order, or is a join.
        let inside = |block: &&usize| body.binary_search(block).is_ok();
        for &block in subject.flow.order.iter().filter(inside) {
            for step in subject.flow.blocks[block].first..subject.flow.blocks[block].end {
                subject.work.spend(1)?;
                if !view.changes(step) {
                    continue;
                }
                view.changing.extend(&subject.ssa.defines[step]);
                let instruction = subject.flow.steps[step].instruction;
                let is_counted = !matches!(instruction.opcode, Opcode::Setp | Opcode::Set);
                view.has_far |= is_counted && !view.stays_near(step, instruction);
            }
        }
        Some(view)
    }

    /// Whether a step computes from numbers that the loop changes. What memory holds is not
    /// counted.
    fn changes(&self, step: usize) -> bool {
        !self.is_loaded(step)
            && self
                .operands(step)
                .any(|value| self.changing.contains(&value))
    }

    fn is_loaded(&self, step: usize) -> bool {
        let mut roles = self.solution.subject.flow.steps[step].form.roles.iter();
        roles.any(|role| matches!(role, Role::Memory(access) if access.space != Space::Param))
    }

    /// The values that a step reads, without its guard.
    fn operands(&self, step: usize) -> impl Iterator<Item = ValueId> + use<'_, 'v, 's> {
        let subject = self.solution.subject;
        let guard = subject.flow.steps[step].instruction.guard;
        let guard = guard.map(|guard| guard.predicate);
        let reads = subject.ssa.reads[step].iter();
        reads
            .filter(move |(register, _)| Some(*register) != guard)
            .map(|(_, value)| *value)
    }

    /// Follows a predicate back through the loop. `None` if there is too much work.
    fn slice(&self, predicate: ValueId) -> Option<Slice> {
        let subject = self.solution.subject;
        let mut slice = Slice::default();
        let mut seen = HashSet::new();
        let mut open = vec![predicate];
        let is_inside = |block: usize| self.body.binary_search(&block).is_ok();
        while let Some(value) = open.pop() {
            if !seen.insert(value) {
                continue;
            }
            subject.work.spend(1)?;
            match &subject.ssa.values[value.at()].definition {
                Definition::Join { block, from } if is_inside(*block) => {
                    subject.work.spend(from.len())?;
                    open.extend(from);
                }
                Definition::Choice { step, new, old } if is_inside(self.blocks[*step]) => {
                    open.extend([*new, *old]);
                }
                Definition::Result { step, .. }
                    if is_inside(self.blocks[*step]) && !self.is_loaded(*step) =>
                {
                    let instruction = subject.flow.steps[*step].instruction;
                    if instruction.opcode == Opcode::Setp {
                        slice.comparisons.push(*step);
                    }
                    slice.is_far |= !self.stays_near(*step, instruction);
                    open.extend(self.operands(*step));
                }
                _ => {}
            }
        }
        Some(slice)
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
                // What does not change is the step, or both are. Unrolling takes it several times.
                let [a_changes, b_changes] =
                    [1, 2].map(|index| self.is_changing(step, instruction.operands.get(index)));
                let is_step = |one: &Contents, changes: bool, other_changes: bool| {
                    (changes && !other_changes)
                        || one.origin.is_some()
                        || within(one.range.signed(), bits - STEP_BITS)
                };
                [a, b, sum].iter().all(is_near)
                    && is_step(&a, a_changes, b_changes)
                    && is_step(&b, b_changes, a_changes)
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
                let is_small = |ends| within(ends, bits - NEAR_BITS - 1);
                product(read(1), read(2)).is_some_and(is_small)
                    && is_near(&more)
                    && (more.origin.is_some() || is_small(more.range.signed()))
            }
            O::Shl => {
                let by = self.part(step, instruction.operands.get(2), 32).as_number();
                let (low, high) = part(1).as_number().signed();
                let by = by.value().filter(|by| *by < 32);
                by.is_some_and(|by| within((low << by, high << by), bits - NEAR_BITS))
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

    fn is_changing(&self, step: usize, operand: Option<&Operand>) -> bool {
        match operand {
            Some(Operand::Register(register)) => {
                let value = self.solution.subject.read(step, *register);
                value.is_none_or(|value| self.changing.contains(&value))
            }
            _ => false,
        }
    }

    fn part(&self, step: usize, operand: Option<&Operand>, bits: u32) -> Contents {
        let of = &mut |value| self.solution.contents(value);
        self.solution.subject.operand(step, operand, bits, of)
    }
}

/// Whether all contents are so near zero that differences of them, and multiples of a step more, do
/// not wrap. Addresses are far from the ends of their type.
fn is_near(contents: &Contents) -> bool {
    match contents.origin {
        Some(_) => !contents.range.is_full(),
        None => within(contents.range.signed(), contents.range.bits - NEAR_BITS),
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
