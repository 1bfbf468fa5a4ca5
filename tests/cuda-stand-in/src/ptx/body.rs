//! Function bodies: scopes, declarations, labels, and one instruction after the other.

use std::collections::HashMap;

use super::code::{Function, Guard, Instruction, Operation, Patch, Slot};
use super::cursor::Cursor;
use super::decode;
use super::header::Placed;
use super::module::ParseError;
use super::parse::{Outline, Variable};
use super::scope::{Local, Scope};
use super::types::{Space, Type, low_bits};

/// What fresh registers and memory hold: nothing that a kernel may rely on.
pub(super) const POISON: u8 = 0xcd;

/// The first two slots of every frame.
const SINK: Slot = 0;
const CARRY: Slot = 1;

/// What stands before a body.
pub(super) struct Header<'a, 'h> {
    pub(super) name: &'a str,
    /// Parameters, and a function's results.
    pub(super) placed: &'h [Placed<'a>],
    /// Bytes of all of them.
    pub(super) bytes: usize,
    /// The place in [`Module::functions`](super::module::Module) if it is an entry.
    pub(super) entry: Option<usize>,
}

/// A body in the making.
pub(super) struct Body<'a, 'o> {
    pub(super) outline: &'o mut Outline<'a>,
    entry: Option<usize>,
    scopes: Vec<Scope<'a>>,
    /// The scopes that are open, from the body's to the innermost.
    open: Vec<usize>,
    code: Vec<Instruction>,
    template: Vec<u64>,
    patches: Vec<(Slot, Patch)>,
    constants: HashMap<u64, Slot>,
    /// Slots of special registers and variables, by name.
    fixed: HashMap<&'a str, Slot>,
    param_end: usize,
    local_end: usize,
    guard: Option<Guard>,
    line: usize,
    branches: Vec<PendingBranch<'a>>,
    tables: HashMap<&'a str, Vec<&'a str>>,
}

/// A branch whose labels may stand behind it.
struct PendingBranch<'a> {
    instruction: usize,
    scope: usize,
    labels: Vec<&'a str>,
}

/// Reads a body in braces.
pub(super) fn read<'a>(
    cursor: &mut Cursor<'a>,
    outline: &mut Outline<'a>,
    header: &Header<'a, '_>,
) -> Result<Function, ParseError> {
    let mut scope = Scope::default();
    for placed in header.placed {
        let local = Local {
            space: Space::Param,
            place: placed.offset,
            size: placed.size,
        };
        scope.variables.insert(placed.name, local);
    }
    let mut body = Body {
        outline,
        entry: header.entry,
        scopes: vec![scope],
        open: vec![0],
        code: Vec::new(),
        template: vec![0; 2],
        patches: Vec::new(),
        constants: HashMap::new(),
        fixed: HashMap::new(),
        param_end: header.bytes,
        local_end: 0,
        guard: None,
        line: 0,
        branches: Vec::new(),
        tables: HashMap::new(),
    };
    cursor.expect('{')?;
    while !body.open.is_empty() {
        body.statement(cursor)?;
    }
    body.emit(Operation::Return);
    body.resolve()?;
    let block_bytes = if header.entry.is_some() {
        header.bytes
    } else {
        0
    };
    Ok(Function {
        name: header.name.to_owned(),
        code: body.code,
        template: body.template,
        patches: body.patches,
        block_bytes,
        param_bytes: body.param_end - block_bytes,
        local_bytes: body.local_end,
    })
}

impl<'a> Body<'a, '_> {
    fn statement(&mut self, cursor: &mut Cursor<'a>) -> Result<(), ParseError> {
        self.line = cursor.line();
        if cursor.takes('{') {
            let parent = self.open.last().copied();
            self.scopes.push(Scope {
                parent,
                ..Scope::default()
            });
            self.open.push(self.scopes.len() - 1);
            return Ok(());
        }
        if cursor.takes('}') {
            self.open.pop();
            return Ok(());
        }
        if cursor.takes(';') {
            return Ok(());
        }
        self.guard = None;
        if cursor.takes('@') {
            let wanted = !cursor.takes('!');
            let name = cursor.word("a predicate")?;
            let Some((slot, Type::Pred)) = self.register(name) else {
                return self.fail(format!("`{name}` is not a predicate that is declared"));
            };
            self.guard = Some(Guard { slot, wanted });
        }
        let word = cursor.word("an instruction, directive or label")?;
        if self.guard.is_none() && cursor.takes(':') {
            return self.label(cursor, word);
        }
        if word.starts_with('.') {
            return self.directive(cursor, word);
        }
        decode::instruction(self, cursor, word)
    }

    /// An error at the statement that is being read.
    pub(super) fn fail<T>(&self, message: String) -> Result<T, ParseError> {
        Err(ParseError {
            line: self.line,
            message,
        })
    }

    fn scope(&mut self) -> &mut Scope<'a> {
        let innermost = self.open.last().copied().unwrap_or(0);
        &mut self.scopes[innermost]
    }

    fn label(&mut self, cursor: &mut Cursor<'a>, name: &'a str) -> Result<(), ParseError> {
        if cursor.takes_word(".branchtargets") {
            let mut targets = vec![cursor.word("a label")?];
            while cursor.takes(',') {
                targets.push(cursor.word("a label")?);
            }
            self.tables.insert(name, targets);
            return cursor.expect(';');
        }
        let at = self.code.len() as u32;
        if self.scope().labels.insert(name, at).is_some() {
            return self.fail(format!("label `{name}` stands here a second time"));
        }
        Ok(())
    }

    fn directive(&mut self, cursor: &mut Cursor<'a>, word: &str) -> Result<(), ParseError> {
        match word {
            ".loc" | ".file" => {
                cursor.skip_line();
                return Ok(());
            }
            ".pragma" => return cursor.skip_behind(';'),
            ".reg" | ".param" | ".local" | ".shared" => {}
            _ => return self.fail(format!("`{word}` is not supported in a body")),
        }
        let declared = cursor.declared_type()?;
        loop {
            let variable = cursor.declaration(declared)?;
            let name = variable.name;
            if word == ".reg" {
                match variable.count {
                    Some(count) => drop(self.scope().ranges.insert(name, (variable.kind, count))),
                    None => drop(self.scope().registers.insert(name, variable.kind)),
                }
            } else {
                let Some(size) = variable.size else {
                    return self.fail(format!("`{name}` has no size"));
                };
                let (space, place) = match word {
                    ".shared" => (
                        Space::Shared,
                        self.outline.add_shared(&variable, false, self.entry)?,
                    ),
                    ".param" => (
                        Space::Param,
                        Self::reserve(&mut self.param_end, variable.align, size),
                    ),
                    _ => (
                        Space::Local,
                        Self::reserve(&mut self.local_end, variable.align, size),
                    ),
                };
                // As much as a thread has on a device.
                if self.param_end.max(self.local_end) > 512 << 10 {
                    return self.fail(format!(
                        "`{name}` of {size} bytes takes more memory than a thread has"
                    ));
                }
                self.scope()
                    .variables
                    .insert(name, Local { space, place, size });
            }
            if !cursor.takes(',') {
                return cursor.expect(';');
            }
        }
    }

    fn reserve(end: &mut usize, align: usize, size: usize) -> usize {
        let place = end.next_multiple_of(align);
        *end = place + size;
        place
    }

    fn lookup<T>(&self, find: impl Fn(&Scope<'a>) -> Option<T>) -> Option<T> {
        self.open
            .iter()
            .rev()
            .find_map(|&scope| find(&self.scopes[scope]))
    }

    /// The slot and type of a declared register.
    pub(super) fn register(&mut self, name: &'a str) -> Option<(Slot, Type)> {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[prefix.len()..].parse::<u32>().ok();
        let (scope, kind) = self.open.iter().rev().find_map(|&index| {
            let scope = &self.scopes[index];
            let kind = scope.registers.get(name).copied().or_else(|| {
                let (kind, count) = scope.ranges.get(prefix)?;
                (number? < *count).then_some(*kind)
            });
            kind.map(|kind| (index, kind))
        })?;
        if let Some(&known) = self.scopes[scope].slots.get(name) {
            return Some(known);
        }
        let slot = self.new_slot(low_bits(u64::from_le_bytes([POISON; 8]), kind.bits()));
        self.scopes[scope].slots.insert(name, (slot, kind));
        Some((slot, kind))
    }

    /// A variable of this body, in the innermost scope that has it.
    pub(super) fn local(&self, name: &str) -> Option<Local> {
        self.lookup(|scope| scope.variables.get(name).copied())
    }

    /// The space of a variable and a slot with its address.
    pub(super) fn variable(&mut self, name: &'a str) -> Option<(Space, Slot)> {
        if let Some(local) = self.local(name) {
            let slot = match local.space {
                Space::Shared => self.patched(Patch::Shared(local.place)),
                Space::Local => self.patched(Patch::Local(local.place as u64)),
                _ => self.constant(local.place as u64),
            };
            return Some((local.space, slot));
        }
        let variable = *self.outline.variables.get(name)?;
        let space = match variable {
            Variable::Global => Space::Global,
            Variable::Shared(_) => Space::Shared,
        };
        if let Some(&slot) = self.fixed.get(name) {
            return Some((space, slot));
        }
        let slot = self.patched(match variable {
            Variable::Global => Patch::Global(name.to_owned()),
            Variable::Shared(place) => Patch::Shared(place),
        });
        self.fixed.insert(name, slot);
        Some((space, slot))
    }

    /// The slot of a special register, made by its name's first use.
    pub(super) fn special(&mut self, name: &'a str, patch: impl FnOnce() -> Patch) -> Slot {
        if let Some(&slot) = self.fixed.get(name) {
            return slot;
        }
        let slot = self.patched(patch());
        self.fixed.insert(name, slot);
        slot
    }

    fn patched(&mut self, patch: Patch) -> Slot {
        let slot = self.new_slot(0);
        self.patches.push((slot, patch));
        slot
    }

    fn new_slot(&mut self, value: u64) -> Slot {
        self.template.push(value);
        (self.template.len() - 1) as Slot
    }

    /// A slot that holds this value.
    pub(super) fn constant(&mut self, value: u64) -> Slot {
        if let Some(&slot) = self.constants.get(&value) {
            return slot;
        }
        let slot = self.new_slot(value);
        self.constants.insert(value, slot);
        slot
    }

    /// A slot of its own.
    pub(super) fn temporary(&mut self) -> Slot {
        self.new_slot(0)
    }

    /// Where results go that nobody wants: `_`.
    pub(super) fn sink(&self) -> Slot {
        SINK
    }

    /// The carry flag.
    pub(super) fn carry(&self) -> Slot {
        CARRY
    }

    pub(super) fn emit(&mut self, operation: Operation) {
        self.code.push(Instruction {
            guard: self.guard,
            operation,
            line: self.line as u32,
        });
    }

    /// Emits a branch; its labels are looked up at the body's end.
    pub(super) fn emit_branch(&mut self, operation: Operation, labels: Vec<&'a str>) {
        let scope = self.open.last().copied().unwrap_or(0);
        self.branches.push(PendingBranch {
            instruction: self.code.len(),
            scope,
            labels,
        });
        self.emit(operation);
    }

    /// The labels of a `.branchtargets`, which must precede its use.
    pub(super) fn table(&self, name: &str) -> Option<Vec<&'a str>> {
        self.tables.get(name).cloned()
    }

    fn resolve(&mut self) -> Result<(), ParseError> {
        for branch in std::mem::take(&mut self.branches) {
            let mut found = Vec::with_capacity(branch.labels.len());
            for label in branch.labels {
                let mut scope = Some(branch.scope);
                let target = loop {
                    let Some(index) = scope else {
                        self.line = self.code[branch.instruction].line as usize;
                        return self.fail(format!("there is no label `{label}`"));
                    };
                    if let Some(&target) = self.scopes[index].labels.get(label) {
                        break target;
                    }
                    scope = self.scopes[index].parent;
                };
                found.push(target);
            }
            match &mut self.code[branch.instruction].operation {
                Operation::Branch { target } => *target = found[0],
                Operation::BranchTable { targets, .. } => *targets = found.into_boxed_slice(),
                _ => {}
            }
        }
        Ok(())
    }
}
