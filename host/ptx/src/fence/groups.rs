//! Accesses that one check covers: from one base register, under one guard, in one block.
//!
//! All of them run, or none. So an honest kernel that passes all checks passes the check of the
//! range from the first byte to the last.

use std::collections::BTreeMap;

use crate::ast::{Base, Function, Guard, Instruction, Operand, RegisterId, Statement};
use crate::table::{Action, Bytes, Opcode};
use crate::verify::{Check, Decision, Origin, Plan};

/// The bytes, as offsets from the base register, and the alignment that are needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) low: i128,
    pub(super) high: i128,
    /// An alignment, and an offset that must have it.
    pub(super) align: Option<(u32, i64)>,
}

/// The predicates of a check that was written: whether the accesses run, and whether they failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdicts {
    pub(super) runs: Guard,
    pub(super) failed: Guard,
}

#[derive(Default)]
pub(super) struct Groups {
    /// The group of a check, by step and operand.
    members: BTreeMap<(usize, usize), usize>,
    needs: Vec<Need>,
    pub(super) written: BTreeMap<usize, Verdicts>,
}

type Key = (usize, u32, Option<(u32, bool)>, Vec<Origin>);

impl Groups {
    pub(super) fn new(function: &Function, plan: &Plan) -> Self {
        let instructions: Vec<&Instruction> = function
            .body
            .iter()
            .flatten()
            .filter_map(|statement| match statement {
                Statement::Instruction(instruction) => Some(instruction),
                Statement::Label(_) => None,
            })
            .collect();
        let mut groups = Self::default();
        let mut open: BTreeMap<Key, usize> = BTreeMap::new();
        for check in &plan.checks {
            let Some(instruction) = instructions.get(check.step) else {
                continue;
            };
            let Some(wanted) = need(instruction, check) else {
                continue;
            };
            let index = groups.group(plan, check, instruction, wanted, &mut open);
            groups.members.insert((check.step, check.operand), index);
        }
        groups
    }

    /// The group of a check: an open one that it can join, or a new one.
    fn group(
        &mut self,
        plan: &Plan,
        check: &Check,
        instruction: &Instruction,
        (need, register, within): (Need, Option<RegisterId>, Vec<Origin>),
        open: &mut BTreeMap<Key, usize>,
    ) -> usize {
        let value = |register: RegisterId| {
            let mut reads = plan.bases.get(check.step)?.iter();
            let found = reads.find(|(known, _)| *known == register);
            found.map(|(_, value)| *value)
        };
        let guard = instruction
            .guard
            .and_then(|guard| Some((value(guard.predicate)?, guard.is_negated)));
        let block = plan.blocks.get(check.step).copied().flatten();
        let can_share =
            can_share(instruction, check) && guard.is_some() == instruction.guard.is_some();
        let key = match (register.and_then(value), block) {
            (Some(value), Some(block)) if can_share => Some((block, value, guard, within)),
            _ => None,
        };
        let known = key.as_ref().and_then(|key| open.get(key).copied());
        if let Some(index) = known.filter(|&index| self.joins(index, need)) {
            return index;
        }
        self.needs.push(need);
        let index = self.needs.len() - 1;
        if let Some(key) = key {
            open.insert(key, index);
        }
        index
    }

    /// Adds a need to a group, and returns whether the group can hold it.
    fn joins(&mut self, index: usize, more: Need) -> bool {
        let Some(need) = self.needs.get_mut(index) else {
            return false;
        };
        let align = match (need.align, more.align) {
            (Some((a, at)), Some((b, there))) => {
                if at.wrapping_sub(there).rem_euclid(i64::from(a.min(b))) != 0 {
                    return false;
                }
                Some(if a >= b { (a, at) } else { (b, there) })
            }
            (one, other) => one.or(other),
        };
        *need = Need {
            low: need.low.min(more.low),
            high: need.high.max(more.high),
            align,
        };
        true
    }

    pub(super) fn of(&self, check: &Check) -> Option<(usize, Need)> {
        let index = *self.members.get(&(check.step, check.operand))?;
        Some((index, *self.needs.get(index)?))
    }
}

fn need(
    instruction: &Instruction,
    check: &Check,
) -> Option<(Need, Option<RegisterId>, Vec<Origin>)> {
    let Decision::Checked { within, is_aligned } = &check.decision else {
        return None;
    };
    let Some(Operand::Address(address)) = instruction.operands.get(check.operand) else {
        return None;
    };
    let low = i128::from(address.offset);
    let need = Need {
        low,
        high: low + i128::from(check.bytes),
        align: (!is_aligned && check.access.align > 1)
            .then_some((check.access.align, address.offset)),
    };
    let register = match address.base {
        Base::Register(register) => Some(register),
        _ => None,
    };
    Some((need, register, within.clone()))
}

/// A collective access has an address of its own. A copy has two addresses, and runs only if both
/// pass: a verdict that another instruction shares is about one of them.
fn can_share(instruction: &Instruction, check: &Check) -> bool {
    instruction.opcode != Opcode::Cp
        && !check.access.is_collective
        && matches!(check.access.bytes, Bytes::Constant(_))
        && check.access.action != Action::Prefetch
}
