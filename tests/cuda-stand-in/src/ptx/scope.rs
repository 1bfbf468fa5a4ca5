//! Scopes of a function body.

use std::collections::HashMap;

use super::code::Slot;
use super::types::{Space, Type};

/// What is declared between two braces.
#[derive(Default)]
pub(super) struct Scope<'a> {
    pub(super) parent: Option<usize>,
    pub(super) registers: HashMap<&'a str, Type>,
    /// `%r<5>`, by what stands before the number.
    pub(super) ranges: HashMap<&'a str, (Type, u32)>,
    /// Slots of registers that instructions have named.
    pub(super) slots: HashMap<&'a str, (Slot, Type)>,
    pub(super) variables: HashMap<&'a str, Local>,
    pub(super) labels: HashMap<&'a str, u32>,
}

/// A variable of a body.
#[derive(Clone, Copy)]
pub(super) struct Local {
    pub(super) space: Space,
    /// The offset in parameter or local memory, or the place in [`Module::shared`](super::module::Module).
    pub(super) place: usize,
    pub(super) size: usize,
}
