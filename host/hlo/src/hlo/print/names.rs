//! The names of a program in HLO text.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::builder;
use crate::instruction::{ComputationId, InstructionId, Program};

/// The names of a program's parts in the text.
pub(super) struct Names<'a> {
    module: String,
    computations: Vec<String>,
    /// The names of each computation's instructions.
    instructions: Vec<Vec<String>>,
    /// The numbers of the computations by their names in the program.
    numbers: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    pub(super) fn new(program: &'a Program) -> Self {
        let computations = || program.computations.iter().map(|c| c.name.as_str());
        let instructions = program.computations.iter().map(|computation| {
            let names = computation.instructions.iter().map(|i| i.name.as_str());
            printable(&names.collect::<Vec<_>>())
        });
        Self {
            module: sanitized(&program.name).into_owned(),
            computations: printable(&computations().collect::<Vec<_>>()),
            instructions: instructions.collect(),
            numbers: computations().zip(0..).collect(),
        }
    }

    pub(super) fn module(&self) -> &str {
        &self.module
    }

    pub(super) fn computation(&self, id: ComputationId) -> &str {
        &self.computations[id.index()]
    }

    pub(super) fn instruction(&self, computation: ComputationId, id: InstructionId) -> &str {
        &self.instructions[computation.index()][id.index()]
    }

    /// The name of the function to which an attribute refers. A name that no computation has stays
    /// as it is.
    pub(super) fn function<'b>(&'b self, name: &'b str) -> &'b str {
        let number = self.numbers.get(name);
        number.map_or(name, |&number| &self.computations[number])
    }
}

/// The names in the text for these names. Names that HLO text can have stay as they are.
fn printable(names: &[&str]) -> Vec<String> {
    let mut taken = builder::Names::default();
    let is_printable = |name: &str| matches!(sanitized(name), Cow::Borrowed(_));
    for name in names.iter().filter(|name| is_printable(name)) {
        taken.unique(name);
    }
    let names = names.iter().map(|name| match sanitized(name) {
        Cow::Borrowed(name) => name.to_owned(),
        Cow::Owned(name) => taken.unique(&name),
    });
    names.collect()
}

/// A name for HLO text: letters, digits, `_`, `.` and `-`, the first a letter or `_`. Other
/// characters become `_`, as in XLA's `NameUniquer::GetSanitizedName`.
fn sanitized(name: &str) -> Cow<'_, str> {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    let belongs = |c: char| is_start(c) || c.is_ascii_digit() || ".-".contains(c);
    if name.starts_with(is_start) && name.chars().all(belongs) {
        return Cow::Borrowed(name);
    }
    let mut rest = name.chars();
    let start = rest.next().filter(|c| is_start(*c)).unwrap_or('_');
    let rest = rest.map(|c| if belongs(c) { c } else { '_' });
    Cow::Owned(std::iter::once(start).chain(rest).collect())
}
