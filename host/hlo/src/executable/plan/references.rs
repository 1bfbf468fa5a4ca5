//! References between computations: those that an instruction runs, and those that a target may
//! call back.

use std::collections::{HashMap, HashSet};

use crate::Program;
use crate::executable::LISTED;
use crate::instruction::{ComputationId, CustomCall, Instruction, Opcode};
use callbox_core::text::shortened;
use callbox_core::values::{Attribute, Dictionary, Result, Status};

/// A program's computations, by name.
pub(super) struct References<'a> {
    program: &'a Program,
    by_name: HashMap<&'a str, ComputationId>,
}

impl<'a> References<'a> {
    pub(super) fn new(program: &'a Program) -> Self {
        let computations = program.computations.iter().enumerate();
        let by_name = computations.map(|(i, c)| (c.name.as_str(), ComputationId(i as u32)));
        Self {
            program,
            by_name: by_name.collect(),
        }
    }

    /// The functions that a custom call's target may call back, without duplicates: those that
    /// attributes name, in their order, then the called computations.
    ///
    /// # Errors
    /// NOT_FOUND if no computation has a name.
    pub(super) fn functions(&self, call: &CustomCall) -> Result<Vec<ComputationId>> {
        let named = function_names(&call.attributes).into_iter().map(|name| {
            let id = self.by_name.get(name).copied();
            id.ok_or_else(|| self.unknown(name))
        });
        let called = call.called_computations.iter().copied().map(Ok);
        let mut functions = named.chain(called).collect::<Result<Vec<_>>>()?;
        let mut seen = HashSet::new();
        functions.retain(|&id| seen.insert(id));
        Ok(functions)
    }

    /// The computations that an instruction runs or that its target may call back. Unknown names
    /// are ignored.
    pub(super) fn all(&self, instruction: &Instruction) -> Vec<ComputationId> {
        let mut all = instruction.opcode.called_computations();
        if let Opcode::CustomCall(call) = &instruction.opcode {
            let names = function_names(&call.attributes);
            all.extend(names.iter().filter_map(|name| self.by_name.get(name)));
        }
        all
    }

    fn unknown(&self, name: &str) -> Status {
        let computations = self.program.computations();
        let exported = self.program.exports.iter().map(|id| id.index());
        let mut seen = HashSet::new();
        let mut known = exported
            .chain(0..computations.len())
            .filter(|&i| seen.insert(i));
        let listed = known.by_ref().take(LISTED);
        let listed =
            Vec::from_iter(listed.map(|i| format!("{:?}", shortened(&computations[i].name))));
        let more = if known.next().is_some() { ", ..." } else { "" };
        Status::not_found(format!(
            "expected a function of the program ({}{more}), found {:?}",
            listed.join(", "),
            shortened(name)
        ))
    }
}

/// The computations that run as part of an instruction. A custom call runs none: its target calls
/// back in an execution of its own.
pub(super) fn run_by(opcode: &Opcode) -> Vec<ComputationId> {
    match opcode {
        Opcode::CustomCall(_) => Vec::new(),
        other => other.called_computations(),
    }
}

/// The names of functions among the attributes, in order. Those of a nested dictionary take its
/// place.
fn function_names(attributes: &Dictionary) -> Vec<&str> {
    let mut names = Vec::new();
    let mut open = vec![attributes.values()];
    while let Some(values) = open.last_mut() {
        match values.next() {
            None => drop(open.pop()),
            Some(Attribute::Function(name)) => names.push(name.as_str()),
            Some(Attribute::Dictionary(inner)) => open.push(inner.values()),
            Some(_) => {}
        }
    }
    names
}
