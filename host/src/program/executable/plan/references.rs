//! Which computations lead to which: those that an instruction runs, and those that a target may call back.

use std::collections::{HashMap, HashSet};

use crate::program::Program;
use crate::program::instruction::{ComputationId, CustomCall, Instruction, Opcode};
use crate::values::{Attribute, Dictionary, Result, Status};

/// How many names a message lists.
const LISTED: usize = 16;

/// A program's computations by name.
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

    /// What a custom call's target may call back: what the attributes name, in their order, then the called computations. Each is there once.
    ///
    /// # Errors
    /// NOT_FOUND for a name that no computation has.
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

    /// All that an instruction may lead to: what it runs, and what its target may call back. Names that nothing has lead nowhere.
    pub(super) fn all(&self, instruction: &Instruction) -> Vec<ComputationId> {
        let mut all = instruction.opcode.called_computations();
        if let Opcode::CustomCall(call) = &instruction.opcode {
            let names = function_names(&call.attributes);
            all.extend(names.iter().filter_map(|name| self.by_name.get(name)));
        }
        all
    }

    fn unknown(&self, name: &str) -> Status {
        let exports = self.program.exports.iter();
        let exported = exports.map(|id| &self.program.computations[id.index()].name);
        let others = self.program.computations.iter().map(|c| &c.name);
        let mut known: Vec<&String> = Vec::new();
        for candidate in exported.chain(others) {
            if known.len() <= LISTED && !known.contains(&candidate) {
                known.push(candidate);
            }
        }
        let more = if known.len() > LISTED { ", ..." } else { "" };
        let names = known.iter().take(LISTED).map(|name| format!("{name:?}"));
        Status::not_found(format!(
            "expected a function of the program ({}{more}), found {name:?}",
            names.collect::<Vec<_>>().join(", ")
        ))
    }
}

/// The computations that run as a part of an instruction. A custom call runs none: its target calls back, in an execution of its own.
pub(super) fn run_by(opcode: &Opcode) -> Vec<ComputationId> {
    match opcode {
        Opcode::CustomCall(_) => Vec::new(),
        other => other.called_computations(),
    }
}

/// The names of functions among attributes, in their order, those of nested dictionaries in the dictionary's place.
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
