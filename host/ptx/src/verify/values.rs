//! What values registers can have: numbers in ranges, and addresses inside operands and variables.

use std::collections::BTreeSet;

use super::flow::Flow;
use super::range::Range;
use super::ssa::{Ssa, ValueId};
use super::work::Work;
use super::{Launch, Limits, Open};
use crate::ast::{Function, Immediate, Module, Operand, VariableId};
use crate::special::Special;
use crate::types::{Space, Type};

/// The start of the memory that an address points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The buffer that a parameter points to.
    Buffer(usize),
    /// A variable of the module or the entry.
    Variable(VariableId),
}

impl Origin {
    /// The number of the parameter that points to it, if it is a buffer.
    pub(crate) fn param(self) -> Option<usize> {
        match self {
            Self::Buffer(index) => Some(index),
            Self::Variable(_) => None,
        }
    }
}

/// The contents of a register. With an origin, `range` is their distance from it; a full range then
/// says nothing about the contents, but where they probably came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) origin: Option<Origin>,
    pub(crate) range: Range,
}

impl Contents {
    pub(crate) fn full(bits: u32) -> Self {
        Self::number(Range::full(bits))
    }

    pub(crate) fn number(range: Range) -> Self {
        Self {
            origin: None,
            range,
        }
    }

    pub(super) fn lost(self) -> Self {
        Self {
            range: Range::full(self.range.bits),
            ..self
        }
    }

    /// The contents as a number: those of an address are unknown.
    pub(crate) fn as_number(&self) -> Range {
        match self.origin {
            None => self.range,
            Some(_) => Range::full(self.range.bits),
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        if self.origin == other.origin {
            Self {
                origin: self.origin,
                range: self.range.union(other.range),
            }
        } else {
            Self::full(self.range.bits)
        }
    }

    pub(crate) fn meet(self, other: Self) -> Self {
        if self.origin == other.origin {
            Self {
                origin: self.origin,
                range: self.range.meet(other.range),
            }
        } else if other.origin.is_some() {
            other
        } else {
            self
        }
    }

    pub(super) fn add(self, other: Self) -> Self {
        match (self.origin, other.origin) {
            (origin, None) | (None, origin) => Self {
                origin,
                range: self.range.add(other.range),
            },
            (Some(_), Some(_)) => Self::full(self.range.bits),
        }
    }

    pub(super) fn sub(self, other: Self) -> Self {
        match (self.origin, other.origin) {
            (origin, None) => Self {
                origin,
                range: self.range.sub(other.range),
            },
            (Some(a), Some(b)) if a == b => Self::number(self.range.sub(other.range)),
            _ => Self::full(self.range.bits),
        }
    }

    /// The result of an operation on bits, which keeps nothing of an address but its origin.
    pub(super) fn mixed(self, other: Self, numbers: impl FnOnce(Range, Range) -> Range) -> Self {
        match (self.origin, other.origin) {
            (None, None) => Self::number(numbers(self.range, other.range)),
            (Some(_), None) => self.lost(),
            (None, Some(_)) => other.lost(),
            _ => Self::full(self.range.bits),
        }
    }
}

/// An entry, its flow and values, and the launch.
pub(crate) struct Subject<'s> {
    pub(crate) module: &'s Module,
    pub(crate) function: &'s Function,
    pub(crate) launch: &'s Launch,
    /// The numbers of the launch that are only bounds, or not known at all.
    pub(crate) open: Open,
    pub(crate) limits: &'s Limits,
    pub(crate) flow: &'s Flow<'s>,
    /// The variables that the body names. No other one is reached: the assembler leaves it out, or
    /// the fence would have to set it to zero.
    pub(crate) named: &'s BTreeSet<VariableId>,
    pub(crate) ssa: &'s Ssa,
    pub(crate) work: &'s Work<'s>,
}

impl Subject<'_> {
    pub(crate) fn bits(&self, value: ValueId) -> u32 {
        let register = self.ssa.values[value.at()].register;
        self.register_bits(register.0)
    }

    /// The number of values that are computed in a block. A join counts for each way into it.
    pub(crate) fn values_of(&self, block: usize) -> usize {
        let one = &self.flow.blocks[block];
        self.ssa.joins[block].len() * (1 + one.before.len()) + (one.end - one.first) + 1
    }

    fn register_bits(&self, register: u32) -> u32 {
        self.function
            .registers
            .get(register as usize)
            .map_or(64, |register| register.kind.bits())
    }

    pub(crate) fn variable(&self, id: VariableId) -> Option<&crate::ast::Variable> {
        id.find(self.module, self.function)
    }

    /// Whether 32 bits of a variable's address say where it is: in shared and in local memory.
    pub(crate) fn has_short_addresses(&self, id: VariableId) -> bool {
        let space = self.variable(id).map(|variable| variable.space);
        matches!(space, Some(Space::Shared | Space::Local))
    }

    /// Whether an assembler adds all of an offset to a variable's address. For other memory than
    /// global, ptxas 13.0 adds 32 bits and extends the sum, also where 64 are asked for.
    fn is_exact(&self, id: VariableId, offset: i64, bits: u32) -> bool {
        let space = self.variable(id).map(|variable| variable.space);
        let is_inside = u64::try_from(offset).is_ok_and(|at| at <= self.variable_bytes(id));
        match space {
            Some(Space::Global) => bits == 64,
            Some(Space::Shared | Space::Local) if bits < 64 => true,
            Some(_) => bits == 64 && is_inside,
            None => false,
        }
    }

    /// The number of bytes that a variable has at least. Those of dynamic shared memory are the
    /// launch's.
    pub(crate) fn variable_bytes(&self, id: VariableId) -> u64 {
        match self.variable(id) {
            Some(variable) if self.open.shared_bytes && super::is_dynamic(variable) => 0,
            Some(variable) => self.launch.variable_bytes(variable),
            None => 0,
        }
    }

    /// Whether a variable can have this many bytes.
    pub(crate) fn may_have(&self, id: VariableId, bytes: u64) -> bool {
        let is_open = self.open.shared_bytes && self.variable(id).is_some_and(super::is_dynamic);
        is_open || self.variable_bytes(id) >= bytes
    }

    /// The value that a step reads from a register.
    pub(crate) fn read(&self, step: usize, register: crate::ast::RegisterId) -> Option<ValueId> {
        let reads = self.ssa.reads.get(step)?;
        reads
            .iter()
            .find(|(known, _)| *known == register)
            .map(|(_, value)| *value)
    }

    /// The contents of an operand of this many bits.
    pub(crate) fn operand(
        &self,
        step: usize,
        operand: Option<&Operand>,
        bits: u32,
        of: &mut dyn FnMut(ValueId) -> Contents,
    ) -> Contents {
        match operand {
            Some(Operand::Register(register)) => match self.read(step, *register) {
                Some(value) if self.bits(value) == bits => of(value),
                _ => Contents::full(bits),
            },
            Some(Operand::Immediate(Immediate::Integer(value))) => {
                Contents::number(Range::constant(bits, *value))
            }
            Some(Operand::Special(special)) if bits == 32 => {
                Contents::number(self.special(*special))
            }
            Some(Operand::Variable(variable, offset))
                if self.is_exact(*variable, *offset, bits) =>
            {
                Contents {
                    origin: Some(Origin::Variable(*variable)),
                    range: Range::constant(bits, *offset as u64),
                }
            }
            _ => Contents::full(bits),
        }
    }

    pub(crate) fn special(&self, special: Special) -> Range {
        let (Launch { grid, block, .. }, open) = (self.launch, self.open);
        let size = |value: u32, is_open: bool| {
            let least = if is_open { 1 } else { i128::from(value) };
            Range::new(32, least, i128::from(value))
        };
        let index = |count: u32| Range::new(32, 0, i128::from(count.max(1)) - 1);
        match special {
            Special::TidX => index(block[0]),
            Special::TidY => index(block[1]),
            Special::TidZ => index(block[2]),
            Special::NtidX => size(block[0], open.block),
            Special::NtidY => size(block[1], open.block),
            Special::NtidZ => size(block[2], open.block),
            Special::CtaidX => index(grid[0]),
            Special::CtaidY => index(grid[1]),
            Special::CtaidZ => index(grid[2]),
            Special::NctaidX => size(grid[0], open.grid),
            Special::NctaidY => size(grid[1], open.grid),
            Special::NctaidZ => size(grid[2], open.grid),
            Special::Laneid => index(32),
            Special::WarpSize => size(32, false),
            _ => Range::full(32),
        }
    }
}

pub(crate) fn is_integer(kind: Type) -> bool {
    use Type as T;
    matches!(
        kind,
        T::B8
            | T::B16
            | T::B32
            | T::B64
            | T::U8
            | T::U16
            | T::U32
            | T::U64
            | T::S8
            | T::S16
            | T::S32
            | T::S64
    )
}
