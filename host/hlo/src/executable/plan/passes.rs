//! Which instructions run together, in one pass over large arrays.

use std::collections::{HashMap, HashSet};

use crate::evaluate::{Member, Pass, Source};
use crate::instruction::{Computation, Instruction, InstructionId, Opcode};
use callbox_core::values::ArrayShape;

/// The elements of the smallest arrays that a pass is for.
const LEAST: usize = 1 << 13;

/// The most scalars that a pass reads. Each takes up to 64 KiB while the pass runs.
const MOST_SCALARS: usize = 128;

/// The most large broadcasts that run before a pass that they are no part of. All of them are in
/// memory at once.
const MOST_BEFORE: usize = 8;

/// What runs at one time: an instruction, or several in one pass.
pub(super) enum Unit {
    Alone(usize),
    Pass(Pass),
}

/// The units of instructions in this order.
///
/// Elementwise instructions that follow each other become a pass. Instructions among them that
/// read none of their values, like constants and their broadcasts, run before the pass.
pub(super) fn units(computation: &Computation, order: &[usize]) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut open = Open::new(computation);
    for &index in order {
        let instruction = &computation.instructions[index];
        if open.takes(instruction) {
            open.push(index);
        } else if open.lets_pass(instruction) {
            open.before += usize::from(is_large_broadcast(instruction));
            units.push(Unit::Alone(index));
        } else {
            open.close(&mut units);
            if open.takes(instruction) {
                open.push(index);
            } else {
                units.push(Unit::Alone(index));
            }
        }
    }
    open.close(&mut units);
    mark_results(computation, &mut units);
    units
}

/// A pass that later instructions can join.
struct Open<'a> {
    computation: &'a Computation,
    /// The numbers of instructions in the pass.
    members: HashMap<usize, usize>,
    order: Vec<usize>,
    /// The scalars that the pass reads.
    scalars: HashSet<InstructionId>,
    /// The number of large broadcasts that run before the pass.
    before: usize,
}

impl<'a> Open<'a> {
    fn new(computation: &'a Computation) -> Self {
        Self {
            computation,
            members: HashMap::new(),
            order: Vec::new(),
            scalars: HashSet::new(),
            before: 0,
        }
    }

    fn push(&mut self, index: usize) {
        let operands = &self.computation.instructions[index].operands;
        let scalars = operands.iter().filter(|&&id| self.is_scalar(id)).copied();
        self.scalars.extend(scalars.collect::<Vec<_>>());
        self.members.insert(index, self.order.len());
        self.order.push(index);
    }

    fn array(&self, id: InstructionId) -> Option<&'a ArrayShape> {
        self.computation.instructions[id.index()].shape.as_array()
    }

    fn is_scalar(&self, id: InstructionId) -> bool {
        self.array(id).is_some_and(|x| x.rank() == 0)
    }

    /// Whether the pass can compute the instruction.
    fn takes(&self, instruction: &Instruction) -> bool {
        let Some(shape) = instruction.shape.as_array() else {
            return false;
        };
        let dimensions = shape.dimensions();
        let is_here = |id: &InstructionId| {
            self.array(*id)
                .is_some_and(|x| x.dimensions() == dimensions)
        };
        let is_scalar = |id: &InstructionId| self.is_scalar(*id);
        let operands = &instruction.operands;
        let is_elementwise = match &instruction.opcode {
            Opcode::Unary(_)
            | Opcode::Binary(_)
            | Opcode::Compare(..)
            | Opcode::Clamp
            | Opcode::ReducePrecision { .. }
            | Opcode::Convert
            | Opcode::Copy
            | Opcode::BitcastConvert
            | Opcode::Select => operands.iter().all(|id| is_here(id) || is_scalar(id)),
            // One that also transposes does not read along its operand's rows.
            Opcode::Broadcast(to) if to.is_sorted() => operands
                .iter()
                .all(|id| self.array(*id).is_some() && !self.members.contains_key(&id.index())),
            _ => false,
        };
        let first = self.order.first().and_then(|&first| self.array(id(first)));
        let is_new = |id: &&InstructionId| is_scalar(id) && !self.scalars.contains(*id);
        is_elementwise
            && self.scalars.len() + operands.iter().filter(is_new).count() <= MOST_SCALARS
            && shape.element_count() >= LEAST
            && first.is_none_or(|first| first.dimensions() == dimensions)
    }

    /// Whether the instruction can run before the pass, and is cheap enough to wait for.
    fn lets_pass(&self, instruction: &Instruction) -> bool {
        let is_apart = |id: &InstructionId| !self.members.contains_key(&id.index());
        let is_cheap = matches!(
            instruction.opcode,
            Opcode::Parameter(_)
                | Opcode::Constant(_)
                | Opcode::Broadcast(_)
                | Opcode::GetTupleElement(_)
                | Opcode::Reshape
        ) || matches!(instruction.opcode, Opcode::Iota(_)) && !is_large(instruction);
        let has_room = !is_large_broadcast(instruction) || self.before < MOST_BEFORE;
        is_cheap && has_room && !self.order.is_empty() && instruction.operands.iter().all(is_apart)
    }

    /// Ends the pass. Broadcasts alone are no pass.
    fn close(&mut self, units: &mut Vec<Unit>) {
        let order = std::mem::take(&mut self.order);
        let instructions = &self.computation.instructions;
        let computes = |&index: &usize| {
            !matches!(
                instructions[index].opcode,
                Opcode::Broadcast(_) | Opcode::Copy
            )
        };
        if order.iter().any(computes) {
            units.push(Unit::Pass(self.pass(&order)));
        } else {
            units.extend(order.into_iter().map(Unit::Alone));
        }
        self.members.clear();
        self.scalars.clear();
        self.before = 0;
    }

    fn pass(&self, order: &[usize]) -> Pass {
        let mut inputs = Vec::new();
        let mut numbers = HashMap::new();
        let mut last_readers = vec![None; order.len()];
        let mut members = Vec::with_capacity(order.len());
        for (number, &index) in order.iter().enumerate() {
            let operands = self.computation.instructions[index].operands.iter();
            let operands = operands.map(|&id| match self.members.get(&id.index()) {
                Some(&member) => {
                    last_readers[member] = Some(number);
                    Source::Member(member)
                }
                None => Source::Input(*numbers.entry(id).or_insert_with(|| {
                    inputs.push(id);
                    inputs.len() - 1
                })),
            });
            members.push(Member {
                instruction: id(index),
                operands: operands.collect(),
                is_result: false,
                last_uses: Vec::new(),
            });
        }
        for (member, reader) in last_readers.into_iter().enumerate() {
            if let Some(reader) = reader {
                members[reader].last_uses.push(member);
            }
        }
        let shape = order.last().and_then(|&last| self.array(id(last)));
        Pass {
            dimensions: shape.map_or_else(Vec::new, |shape| shape.dimensions().to_vec()),
            inputs,
            members,
        }
    }
}

/// Marks the members of passes whose values are read outside of them.
fn mark_results(computation: &Computation, units: &mut [Unit]) {
    let mut read = HashSet::from([computation.root]);
    for unit in &*units {
        read.extend(match unit {
            Unit::Alone(index) => &computation.instructions[*index].operands,
            Unit::Pass(pass) => &pass.inputs,
        });
    }
    for unit in units {
        if let Unit::Pass(pass) = unit {
            for member in &mut pass.members {
                member.is_result = read.contains(&member.instruction);
            }
        }
    }
}

fn is_large(instruction: &Instruction) -> bool {
    let array = instruction.shape.as_array();
    array.is_some_and(|array| array.element_count() >= LEAST)
}

fn is_large_broadcast(instruction: &Instruction) -> bool {
    matches!(instruction.opcode, Opcode::Broadcast(_)) && is_large(instruction)
}

fn id(index: usize) -> InstructionId {
    InstructionId(index as u32)
}
