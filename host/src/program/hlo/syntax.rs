//! What the text says, before names are looked up.

use super::attributes::Attributes;
use super::cursor::Name;
use super::opcodes::Operation;
use crate::values::{Literal, Shape};

/// A module.
#[derive(Debug)]
pub(super) struct Module<'a> {
    pub(super) name: Name<'a>,
    /// What `entry_computation_layout` says.
    pub(super) entry_signature: Option<Signature>,
    /// What `callbox.exports` in the module's `frontend_attributes` says.
    pub(super) exports: Option<Exports>,
    pub(super) computations: Vec<Computation<'a>>,
    /// Where the text ends.
    pub(super) end: usize,
}

/// Names of computations, with commas between them.
#[derive(Debug)]
pub(super) struct Exports {
    pub(super) names: String,
    pub(super) at: usize,
}

/// A computation.
#[derive(Debug)]
pub(super) struct Computation<'a> {
    pub(super) name: Name<'a>,
    pub(super) is_entry: bool,
    /// What stands between its name and its instructions, if anything.
    pub(super) signature: Option<Signature>,
    pub(super) instructions: Vec<Instruction<'a>>,
    /// The number of the instruction marked ROOT.
    pub(super) root: Option<usize>,
}

/// Parameters' shapes and a result's.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) parameters: Vec<Shape>,
    pub(super) result: Shape,
    pub(super) at: usize,
}

/// An instruction.
#[derive(Debug)]
pub(super) struct Instruction<'a> {
    pub(super) name: Name<'a>,
    pub(super) shape: Shape,
    /// As it is written.
    pub(super) opcode: Name<'a>,
    pub(super) operation: Operation,
    pub(super) operands: Operands<'a>,
    pub(super) attributes: Attributes<'a>,
}

/// What stands in an instruction's parentheses.
#[derive(Debug)]
pub(super) enum Operands<'a> {
    /// Other instructions.
    Instructions(Vec<Operand<'a>>),
    /// A parameter's number.
    Parameter(usize),
    /// A constant.
    Constant(Literal),
}

/// An operand.
#[derive(Debug)]
pub(super) struct Operand<'a> {
    pub(super) name: Name<'a>,
    /// The shape that may stand before its name.
    pub(super) shape: Option<Shape>,
}
