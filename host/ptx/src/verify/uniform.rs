//! Which values and which blocks all threads of a block, or all lanes of a warp, have in common.

use super::flow::Flow;
use super::solve::Solution;
use super::ssa::{Definition, ValueId};
use super::values::Subject;
use crate::ast::{Immediate, Instruction, Operand};
use crate::special::Special;
use crate::table::{Form, Opcode, Role};
use crate::types::Space;

/// The threads that are proved to agree. A lesser value means more threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Agreement {
    /// All threads of the block.
    Block,
    /// All lanes of each warp.
    Warp,
    /// None.
    Thread,
}

/// The steps of finding who agrees on one value.
const VALUE: usize = 8;

/// The agreement on each value, and on whether and how often each block runs.
pub(crate) struct Uniformity {
    pub(crate) values: Vec<Agreement>,
    pub(crate) blocks: Vec<Agreement>,
}

impl Uniformity {
    /// `None` if there is too much work.
    pub(crate) fn new(solution: &Solution<'_>) -> Option<Self> {
        let subject = solution.subject;
        let flow = subject.flow;
        let mut found = Self {
            values: vec![Agreement::Block; subject.ssa.values.len()],
            blocks: vec![Agreement::Block; flow.blocks.len()],
        };
        // The agreement on each branch that has been spread to the blocks that depend on it.
        let mut spread = vec![Agreement::Block; flow.blocks.len()];
        let mut joins = vec![Agreement::Block; flow.blocks.len()];
        loop {
            let mut has_changed = false;
            for &block in &flow.order {
                subject.work.spend(VALUE * subject.values_of(block))?;
                for &join in &subject.ssa.joins[block] {
                    let parts = match &subject.ssa.values[join.at()].definition {
                        Definition::Join { from, .. } => from.as_slice(),
                        _ => &[],
                    };
                    let parts = parts.iter().map(|part| found.values[part.at()]).max();
                    let now = joins[block].max(parts.unwrap_or(Agreement::Block));
                    has_changed |= raise(&mut found.values[join.at()], now);
                }
                for step in flow.blocks[block].first..flow.blocks[block].end {
                    for &value in &subject.ssa.defines[step] {
                        let now = found.defined(solution, value);
                        has_changed |= raise(&mut found.values[value.at()], now);
                    }
                }
            }
            for &block in &flow.order {
                let agreement = found.branch(subject, block);
                if agreement > spread[block] {
                    spread[block] = agreement;
                    has_changed = true;
                    subject.work.spend(flow.blocks.len())?;
                    depend(flow, block, agreement, &mut found.blocks, &mut joins);
                }
            }
            if !has_changed {
                return Some(found);
            }
        }
    }

    /// The agreement on a step's guard.
    pub(crate) fn guard(&self, subject: &Subject<'_>, step: usize) -> Agreement {
        let guard = subject.flow.steps[step].instruction.guard;
        let Some(guard) = guard else {
            return Agreement::Block;
        };
        subject
            .read(step, guard.predicate)
            .map_or(Agreement::Thread, |value| self.values[value.at()])
    }

    /// The agreement on where control goes after a block.
    fn branch(&self, subject: &Subject<'_>, block: usize) -> Agreement {
        let blocks = &subject.flow.blocks;
        let ways = blocks[block].next.len() + usize::from(blocks[block].leaves);
        match blocks[block].end.checked_sub(1) {
            Some(last) if ways > 1 && last >= blocks[block].first => self.guard(subject, last),
            _ => Agreement::Block,
        }
    }

    fn defined(&self, solution: &Solution<'_>, value: ValueId) -> Agreement {
        let subject = solution.subject;
        let of = |value: ValueId| self.values[value.at()];
        if solution.contents(value).origin.is_none()
            && solution.contents(value).range.value().is_some()
        {
            return Agreement::Block;
        }
        match subject.ssa.values[value.at()].definition {
            Definition::Zero => Agreement::Block,
            Definition::Join { .. } => of(value),
            Definition::Choice { step, new, old } => {
                self.guard(subject, step).max(of(new)).max(of(old))
            }
            Definition::Result { step, .. } => self.result(solution, step),
        }
    }

    fn result(&self, solution: &Solution<'_>, step: usize) -> Agreement {
        let subject = solution.subject;
        let instruction = subject.flow.steps[step].instruction;
        let operand = |index: usize| instruction.operands.get(index);
        let constant = |index: usize| match operand(index) {
            Some(Operand::Immediate(Immediate::Integer(value))) => Some(*value),
            Some(Operand::Register(register)) => {
                let contents = solution.contents(subject.read(step, *register)?);
                contents.as_number().value()
            }
            _ => None,
        };
        let is_thread = |index: usize| self.is_thread_index(subject, step, operand(index));
        let inputs = self.inputs(subject, step);
        match instruction.opcode {
            Opcode::Ld | Opcode::Ldu if reads_constants(&subject.flow.steps[step].form) => inputs,
            Opcode::Ld | Opcode::Ldu => Agreement::Thread,
            // The carry of the instruction before it is none of its operands.
            Opcode::Addc
            | Opcode::Subc
            | Opcode::Madc
            | Opcode::Atom
            | Opcode::Activemask
            | Opcode::Elect
            | Opcode::Match
            | Opcode::Mma
            | Opcode::Wmma
            | Opcode::Ldmatrix
            | Opcode::Movmatrix
            | Opcode::Mbarrier => Agreement::Thread,
            Opcode::Bar | Opcode::Barrier => Agreement::Block,
            Opcode::Vote | Opcode::Redux => Agreement::Warp,
            Opcode::Shfl => {
                // Every lane reads the same lane.
                let is_broadcast = instruction.has("idx") && constant(3) == Some(31);
                let has_predicate = matches!(operand(0), Some(Operand::Pair(_)));
                if is_broadcast && constant(2).is_some() && !has_predicate {
                    Agreement::Warp
                } else {
                    Agreement::Thread
                }
            }
            Opcode::Shr if is_thread(1) && constant(2).is_some_and(|by| by >= 5) => Agreement::Warp,
            Opcode::And if is_thread(1) && constant(2).is_some_and(|mask| mask & 31 == 0) => {
                Agreement::Warp
            }
            Opcode::Setp
                if instruction.operands.len() == 3
                    && is_thread(1)
                    && constant(2).is_some_and(|by| splits_at_warp(instruction, by)) =>
            {
                Agreement::Warp
            }
            _ => inputs,
        }
    }

    /// The agreement on all operands that an instruction reads.
    fn inputs(&self, subject: &Subject<'_>, step: usize) -> Agreement {
        let instruction = subject.flow.steps[step].instruction;
        let reads = subject.ssa.reads[step]
            .iter()
            .map(|(_, value)| self.values[value.at()]);
        let specials = instruction.operands.iter().flat_map(Operand::parts);
        let specials = specials.filter_map(|operand| match operand {
            Operand::Special(special) => Some(special_agreement(subject, *special)),
            _ => None,
        });
        reads.chain(specials).max().unwrap_or(Agreement::Block)
    }

    /// Whether an operand is the thread's index in its block.
    fn is_thread_index(
        &self,
        subject: &Subject<'_>,
        step: usize,
        operand: Option<&Operand>,
    ) -> bool {
        let [width, height, depth] = subject.launch.block;
        // Warps are cut from rows of threads. A bound of 1 is exact.
        let is_one_row = height == 1 && depth == 1;
        let is_whole = !subject.open.block && width.is_multiple_of(32);
        if !is_one_row && !is_whole {
            return false;
        }
        let mut step = step;
        let mut operand = operand.cloned();
        for _ in 0..4 {
            match operand {
                Some(Operand::Special(special)) => return special == Special::TidX,
                Some(Operand::Register(register)) => {
                    let Some(value) = subject.read(step, register) else {
                        return false;
                    };
                    let Definition::Result {
                        step: from,
                        slot: 0,
                    } = subject.ssa.values[value.at()].definition
                    else {
                        return false;
                    };
                    let instruction = subject.flow.steps[from].instruction;
                    let kinds: Vec<_> = instruction.kinds().collect();
                    let keeps = match instruction.opcode {
                        Opcode::Mov => true,
                        Opcode::Cvt => kinds
                            .iter()
                            .all(|kind| super::values::is_integer(*kind) && kind.bits() >= 32),
                        _ => false,
                    };
                    if !keeps || instruction.operands.len() != 2 {
                        return false;
                    }
                    step = from;
                    operand = instruction.operands.get(1).cloned();
                }
                _ => return false,
            }
        }
        false
    }
}

fn special_agreement(subject: &Subject<'_>, special: Special) -> Agreement {
    let [width, height, depth] = subject.launch.block;
    let is_known = !subject.open.block;
    let rows = is_known && width.is_multiple_of(32);
    let planes = is_known && (u64::from(width) * u64::from(height)).is_multiple_of(32);
    match special {
        Special::TidX if width == 1 => Agreement::Block,
        Special::TidY if height == 1 => Agreement::Block,
        Special::TidZ if depth == 1 => Agreement::Block,
        Special::TidY if rows => Agreement::Warp,
        Special::TidZ if planes => Agreement::Warp,
        Special::NtidX
        | Special::NtidY
        | Special::NtidZ
        | Special::CtaidX
        | Special::CtaidY
        | Special::CtaidZ
        | Special::NctaidX
        | Special::NctaidY
        | Special::NctaidZ
        | Special::DynamicSharedSize
        | Special::TotalSharedSize
        | Special::WarpSize => Agreement::Block,
        _ => Agreement::Thread,
    }
}

fn raise(place: &mut Agreement, to: Agreement) -> bool {
    let is_more = to > *place;
    *place = to.max(*place);
    is_more
}

/// Marks what depends on a branch on which threads do not agree: the blocks up to where all ways
/// meet again, and the joins there.
fn depend(
    flow: &Flow<'_>,
    branch: usize,
    agreement: Agreement,
    blocks: &mut [Agreement],
    joins: &mut [Agreement],
) {
    let end = flow.joins[branch];
    let next: Vec<usize> = flow.blocks[branch]
        .next
        .iter()
        .map(|edge| edge.to)
        .collect();
    for (block, is_reached) in flow.reachable(&next, end).into_iter().enumerate() {
        if is_reached {
            raise(&mut blocks[block], agreement);
            raise(&mut joins[block], agreement);
        }
    }
    if let Some(end) = end {
        raise(&mut joins[end], agreement);
    }
}

/// Whether an instruction reads parameters or constants, which all threads see alike.
fn reads_constants(form: &Form) -> bool {
    let mut roles = form.roles.iter();
    roles.any(|role| match role {
        Role::Memory(access) => matches!(access.space, Space::Param | Space::Const),
        _ => false,
    })
}

/// Whether the comparison of a thread's index with a number gives all lanes of a warp one answer:
/// whether a thread comes before the first lane of some warp.
fn splits_at_warp(instruction: &Instruction, by: u64) -> bool {
    by < 1 << 31
        && instruction.names().any(|name| match name {
            "lt" | "ge" | "lo" | "hs" => by.is_multiple_of(32),
            "gt" | "le" | "hi" | "ls" => by % 32 == 31,
            _ => false,
        })
}
