//! The syntax tree of a module, before names are looked up.

use super::attributes::Attributes;
use callbox_core::text::{Name, Placed};
use callbox_core::values::{Literal, Shape};

/// A module.
#[derive(Debug)]
pub(super) struct Module<'a> {
    pub(super) name: Name<'a>,
    /// The value of `entry_computation_layout`.
    pub(super) entry_signature: Option<Placed<Signature>>,
    /// The value of `callbox.exports` in the module's `frontend_attributes`: names of
    /// computations, separated by commas.
    pub(super) exports: Option<Placed<String>>,
    pub(super) computations: Vec<Computation<'a>>,
    /// The length of the text.
    pub(super) end: usize,
}

/// A computation.
#[derive(Debug)]
pub(super) struct Computation<'a> {
    pub(super) name: Name<'a>,
    pub(super) is_entry: bool,
    /// The signature in its header, which may be left out.
    pub(super) signature: Option<Placed<Signature>>,
    pub(super) instructions: Vec<Instruction<'a>>,
    /// The number of the instruction marked ROOT.
    pub(super) root: Option<usize>,
}

/// The shapes of parameters and of a result.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) parameters: Vec<Shape>,
    pub(super) result: Shape,
}

/// An instruction.
#[derive(Debug)]
pub(super) struct Instruction<'a> {
    pub(super) name: Name<'a>,
    pub(super) shape: Shape,
    pub(super) opcode: Name<'a>,
    pub(super) operands: Operands<'a>,
    pub(super) attributes: Attributes<'a>,
}

/// The content of an instruction's parentheses.
#[derive(Debug)]
pub(super) enum Operands<'a> {
    /// Other instructions.
    Instructions(Vec<Operand<'a>>),
    /// The number of a parameter.
    Parameter(usize),
    /// The value of a constant.
    Constant(Literal),
}

/// An operand.
#[derive(Debug)]
pub(super) struct Operand<'a> {
    pub(super) name: Name<'a>,
    /// The shape before its name, which may be left out.
    pub(super) shape: Option<Shape>,
}
