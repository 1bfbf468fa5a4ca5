//! Scopes of a body.

use std::collections::HashMap;

use crate::ast::{LabelId, RegisterId};
use crate::types::Type;

/// The declarations between two braces.
#[derive(Default)]
pub(super) struct Scope<'a> {
    pub(super) parent: Option<usize>,
    pub(super) registers: HashMap<&'a str, Type>,
    /// `%r<5>`, by the part before the number.
    pub(super) ranges: HashMap<&'a str, (Type, u32)>,
    /// The registers that were used so far.
    pub(super) used: HashMap<&'a str, RegisterId>,
    /// Variables, by their index in the function.
    pub(super) variables: HashMap<&'a str, u32>,
    pub(super) labels: HashMap<&'a str, LabelId>,
    /// `name: .branchtargets a, b;`
    pub(super) tables: HashMap<&'a str, Vec<&'a str>>,
}
