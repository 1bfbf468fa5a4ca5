//! Static single assignment: which value of a register an instruction reads.
//!
//! A value keeps its meaning wherever it can be read: if the definition of `a` dominates that of
//! `b`, and `b` is read at a place that `b` dominates, then no way from the last `a` to that place
//! leaves out `b`. So an expression over values can be evaluated again at any place that its value
//! dominates.

use std::collections::{BTreeMap, BTreeSet};

use super::flow::Flow;
use super::work::Work;
use crate::ast::{Function, Instruction, Operand, RegisterId};
use crate::table::Role;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValueId(pub(crate) u32);

impl ValueId {
    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(crate) enum Definition {
    /// The register before its first assignment. The fence sets it to zero.
    Zero,
    /// One value for each block in `before`, in this order.
    Join { block: usize, from: Vec<ValueId> },
    /// The result of an instruction. `slot` counts the parts of what the instruction writes, also
    /// those that are discarded: the second part of `_|%q` is not the first.
    Result { step: usize, slot: usize },
    /// The register after a guarded instruction: `new` if the instruction ran, `old` otherwise.
    Choice {
        step: usize,
        new: ValueId,
        old: ValueId,
    },
}

#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) register: RegisterId,
    pub(crate) definition: Definition,
}

#[derive(Debug)]
pub(crate) struct Ssa {
    pub(crate) values: Vec<Value>,
    /// For each step the values of the registers that it reads.
    pub(crate) reads: Vec<Vec<(RegisterId, ValueId)>>,
    /// For each block its joins.
    pub(crate) joins: Vec<Vec<ValueId>>,
    /// For each step the values that it defines, in order of evaluation.
    pub(crate) defines: Vec<Vec<ValueId>>,
    /// Registers that may be read before they are assigned.
    pub(crate) zeroed: Vec<RegisterId>,
}

/// The registers that an instruction reads.
fn reads(instruction: &Instruction, roles: &[Role]) -> Vec<RegisterId> {
    let mut found = Vec::new();
    if let Some(guard) = instruction.guard {
        found.push(guard.predicate);
    }
    for (operand, role) in instruction.operands.iter().zip(roles) {
        let is_written = matches!(role, Role::Write);
        each_register(operand, &mut |register, in_address| {
            if in_address || !is_written {
                found.push(register);
            }
        });
    }
    found
}

/// The registers that an instruction writes, with their slots.
fn writes<'i>(
    instruction: &'i Instruction,
    roles: &'i [Role],
) -> impl Iterator<Item = (usize, RegisterId)> + 'i {
    let operands = instruction.operands.iter().zip(roles);
    let written = operands.filter(|(_, role)| matches!(role, Role::Write | Role::Update));
    let parts = written.flat_map(|(operand, _)| operand.parts()).enumerate();
    parts.filter_map(|(slot, part)| match part {
        Operand::Register(register) | Operand::Not(register) => Some((slot, *register)),
        _ => None,
    })
}

fn each_register(operand: &Operand, visit: &mut impl FnMut(RegisterId, bool)) {
    match operand {
        Operand::Address(address) => {
            if let crate::ast::Base::Register(register) = address.base {
                visit(register, true);
            }
            for part in &address.coordinates {
                if let Operand::Register(register) = part {
                    visit(*register, true);
                }
            }
        }
        other => {
            for part in other.parts() {
                if let Operand::Register(register) | Operand::Not(register) = part {
                    visit(*register, false);
                }
            }
        }
    }
}

struct Builder<'f, 'a> {
    flow: &'f Flow<'a>,
    ssa: Ssa,
    /// The value of each register at the current place.
    current: Vec<Option<ValueId>>,
    zeros: BTreeMap<RegisterId, ValueId>,
}

/// Returns `None` if the kernel would need more than `most` joins, or too much work.
pub(crate) fn build(
    function: &Function,
    flow: &Flow<'_>,
    most: usize,
    work: &Work<'_>,
) -> Option<Ssa> {
    let joined = joined_registers(function, flow, most, work)?;
    let mut builder = Builder {
        flow,
        ssa: Ssa {
            values: Vec::new(),
            reads: vec![Vec::new(); flow.steps.len()],
            joins: vec![Vec::new(); flow.blocks.len()],
            defines: vec![Vec::new(); flow.steps.len()],
            zeroed: Vec::new(),
        },
        current: vec![None; function.registers.len()],
        zeros: BTreeMap::new(),
    };
    for (block, registers) in joined.iter().enumerate() {
        for &register in registers {
            let from = Vec::new();
            let definition = Definition::Join { block, from };
            let value = builder.value(register, definition);
            builder.ssa.joins[block].push(value);
        }
    }
    builder.rename();
    let mut ssa = builder.ssa;
    ssa.zeroed = zeroed(&ssa);
    Some(ssa)
}

/// The registers that need a join at each block: those that are assigned at several places and
/// read in another block, at the dominance frontiers of the assignments.
fn joined_registers(
    function: &Function,
    flow: &Flow<'_>,
    most: usize,
    work: &Work<'_>,
) -> Option<Vec<BTreeSet<RegisterId>>> {
    let assigned = assignments(function, flow)?;
    let frontiers = frontiers(flow, work)?;
    let mut joined = vec![BTreeSet::new(); flow.blocks.len()];
    let mut total = 0;
    for (index, mut open) in assigned.into_iter().enumerate() {
        while let Some(block) = open.pop() {
            work.spend(LOOK_UP * frontiers[block].len())?;
            for &to in &frontiers[block] {
                if joined[to].insert(RegisterId(index as u32)) {
                    total += 1 + flow.blocks[to].before.len();
                    if total > most {
                        return None;
                    }
                    open.push(to);
                }
            }
        }
    }
    Some(joined)
}

/// The blocks that assign each register that is read in another block.
fn assignments(function: &Function, flow: &Flow<'_>) -> Option<Vec<Vec<usize>>> {
    let count = function.registers.len();
    let mut assigned: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut crosses = vec![false; count];
    for &block in &flow.order {
        let mut own = BTreeSet::new();
        let steps = flow.blocks[block].first..flow.blocks[block].end;
        for step in flow.steps.get(steps)? {
            let is_guarded = step.instruction.guard.is_some();
            let written = writes(step.instruction, &step.form.roles);
            let written: Vec<RegisterId> = written.map(|(_, register)| register).collect();
            let kept = if is_guarded { written.as_slice() } else { &[] };
            for register in reads(step.instruction, &step.form.roles).iter().chain(kept) {
                if !own.contains(register) {
                    *crosses.get_mut(register.0 as usize)? = true;
                }
            }
            for register in written {
                if own.insert(register) {
                    assigned.get_mut(register.0 as usize)?.push(block);
                }
            }
        }
    }
    for (blocks, crosses) in std::iter::zip(&mut assigned, crosses) {
        if !crosses {
            blocks.clear();
        }
    }
    Some(assigned)
}

/// The steps of looking something up in a set, and of adding something to it.
const LOOK_UP: usize = 4;
const ADD: usize = 64;

/// The dominance frontier of each block. `None` if there is too much work.
fn frontiers(flow: &Flow<'_>, work: &Work<'_>) -> Option<Vec<BTreeSet<usize>>> {
    let mut found = vec![BTreeSet::new(); flow.blocks.len()];
    for &block in &flow.order {
        // The first block also has a way in from outside.
        if flow.blocks[block].before.len() < 2 && flow.dominator[block] != block {
            continue;
        }
        for &from in &flow.blocks[block].before {
            let mut at = from;
            loop {
                let is_first = flow.dominator[at] == at;
                if at == flow.dominator[block] && flow.dominator[block] != block {
                    break;
                }
                let is_new = found[at].insert(block);
                work.spend(if is_new { ADD } else { LOOK_UP })?;
                if is_first {
                    break;
                }
                at = flow.dominator[at];
            }
        }
    }
    Some(found)
}

impl Builder<'_, '_> {
    fn value(&mut self, register: RegisterId, definition: Definition) -> ValueId {
        let id = ValueId(self.ssa.values.len() as u32);
        self.ssa.values.push(Value {
            register,
            definition,
        });
        id
    }

    fn read(&mut self, register: RegisterId) -> ValueId {
        if let Some(value) = self.current[register.0 as usize] {
            return value;
        }
        if let Some(&value) = self.zeros.get(&register) {
            return value;
        }
        let value = self.value(register, Definition::Zero);
        self.zeros.insert(register, value);
        value
    }

    /// Walks the tree of dominators. Each register's value is restored on the way back.
    fn rename(&mut self) {
        let mut children = vec![Vec::new(); self.flow.blocks.len()];
        for &block in &self.flow.order {
            let parent = self.flow.dominator[block];
            if parent != block {
                children[parent].push(block);
            }
        }
        let Some(&start) = self.flow.order.first() else {
            return;
        };
        let undo = self.block(start);
        let mut open = vec![(start, 0, undo)];
        while let Some((block, index, undo)) = open.pop() {
            match children[block].get(index) {
                Some(&child) => {
                    open.push((block, index + 1, undo));
                    let undo = self.block(child);
                    open.push((child, 0, undo));
                }
                None => {
                    for (register, value) in undo.into_iter().rev() {
                        self.current[register as usize] = value;
                    }
                }
            }
        }
    }

    fn block(&mut self, block: usize) -> Vec<(u32, Option<ValueId>)> {
        let mut undo = Vec::new();
        if self.flow.dominator[block] == block {
            // A way from outside into the first block: its joins see zeros there.
            self.join_with_outside(block);
        }
        for value in self.ssa.joins[block].clone() {
            let register = self.ssa.values[value.at()].register.0;
            undo.push((register, self.current[register as usize]));
            self.current[register as usize] = Some(value);
        }
        for index in self.flow.blocks[block].first..self.flow.blocks[block].end {
            self.step(index, &mut undo);
        }
        let targets: BTreeSet<usize> = self.flow.blocks[block]
            .next
            .iter()
            .map(|edge| edge.to)
            .collect();
        for to in targets {
            let ways = &self.flow.blocks[to].before;
            let place = ways.iter().position(|&from| from == block);
            for join in self.ssa.joins[to].clone() {
                let register = self.ssa.values[join.at()].register;
                let value = self.read(register);
                if let (Some(place), Definition::Join { from, .. }) =
                    (place, &mut self.ssa.values[join.at()].definition)
                {
                    if from.len() <= place {
                        from.resize(place + 1, join);
                    }
                    from[place] = value;
                }
            }
        }
        undo
    }

    fn join_with_outside(&mut self, block: usize) {
        let ways = self.flow.blocks[block].before.len();
        for join in self.ssa.joins[block].clone() {
            let register = self.ssa.values[join.at()].register;
            let zero = self.read(register);
            if let Definition::Join { from, .. } = &mut self.ssa.values[join.at()].definition {
                from.resize(ways + 1, join);
                from[ways] = zero;
            }
        }
    }

    fn step(&mut self, index: usize, undo: &mut Vec<(u32, Option<ValueId>)>) {
        let flow = self.flow;
        let Some(step) = flow.steps.get(index) else {
            return;
        };
        let is_guarded = step.instruction.guard.is_some();
        let mut read: Vec<(RegisterId, ValueId)> = Vec::new();
        for register in reads(step.instruction, &step.form.roles) {
            if !read.iter().any(|(known, _)| *known == register) {
                let value = self.read(register);
                read.push((register, value));
            }
        }
        self.ssa.reads[index] = read;
        for (slot, register) in writes(step.instruction, &step.form.roles) {
            let old = is_guarded.then(|| self.read(register));
            let step = index;
            let new = self.value(register, Definition::Result { step, slot });
            self.ssa.defines[index].push(new);
            let mut last = new;
            if let Some(old) = old {
                last = self.value(register, Definition::Choice { step, new, old });
                self.ssa.defines[index].push(last);
            }
            undo.push((register.0, self.current[register.0 as usize]));
            self.current[register.0 as usize] = Some(last);
        }
    }
}

/// The registers whose first zero an instruction may read.
fn zeroed(ssa: &Ssa) -> Vec<RegisterId> {
    let mut is_used = vec![false; ssa.values.len()];
    let mut open: Vec<ValueId> = ssa
        .reads
        .iter()
        .flatten()
        .map(|(_, value)| *value)
        .collect();
    while let Some(value) = open.pop() {
        if std::mem::replace(&mut is_used[value.at()], true) {
            continue;
        }
        match &ssa.values[value.at()].definition {
            Definition::Join { from, .. } => open.extend(from),
            Definition::Choice { new, old, .. } => open.extend([new, old]),
            Definition::Zero | Definition::Result { .. } => {}
        }
    }
    let values = ssa.values.iter().zip(is_used);
    values
        .filter(|(value, is_used)| *is_used && matches!(value.definition, Definition::Zero))
        .map(|(value, _)| value.register)
        .collect()
}
