//! Builds a function: places of registers and variables, and decoded instructions.

use std::collections::HashMap;

use callbox_ptx::ast::{self, LabelId, RegisterId, Special, Statement, VariableId};
use callbox_ptx::types as syntax;

use super::code::{Function, Guard, Instruction, Operation, Patch, Slot};
use super::decode;
use super::module::ParseError;
use super::outline::{self, Outline, Variable};
use super::types::{Space, Type, low_bits};

/// The fill byte of fresh registers and memory, on whose contents no kernel may rely.
pub(super) const POISON: u8 = 0xcd;

/// The first two slots of every frame.
const SINK: Slot = 0;
const CARRY: Slot = 1;

/// A body under construction.
pub(super) struct Body<'o, 'm> {
    pub(super) outline: &'o mut Outline<'m>,
    index: usize,
    code: Vec<Instruction>,
    template: Vec<u64>,
    patches: Vec<(Slot, Patch)>,
    constants: HashMap<u64, Slot>,
    registers: Vec<(Slot, Type)>,
    variables: Vec<Local>,
    /// Slots of special registers, and of addresses.
    specials: HashMap<Special, Slot>,
    addresses: HashMap<VariableId, Slot>,
    param_end: usize,
    local_end: usize,
    guard: Option<Guard>,
    line: ast::Line,
    /// The instruction behind each label.
    labels: Vec<u32>,
    /// Branches, by their instruction.
    branches: Vec<(usize, Vec<LabelId>)>,
}

/// A variable of a body.
#[derive(Clone, Copy)]
pub(super) struct Local {
    pub(super) space: Space,
    /// The offset in parameter or local memory, or the index in
    /// [`Module::shared`](super::module::Module).
    pub(super) place: usize,
    pub(super) size: usize,
}

/// Builds the function of this index in the tree.
pub(super) fn build(
    outline: &mut Outline<'_>,
    index: usize,
    statements: &[Statement],
) -> Result<Function, ParseError> {
    let function = &outline.tree.functions[index];
    let bytes = outline.signatures[index].bytes;
    let mut body = Body {
        outline,
        index,
        code: Vec::new(),
        template: vec![0; 2],
        patches: Vec::new(),
        constants: HashMap::new(),
        registers: Vec::new(),
        variables: Vec::new(),
        specials: HashMap::new(),
        addresses: HashMap::new(),
        param_end: bytes,
        local_end: 0,
        guard: None,
        line: function.line,
        labels: vec![0; function.labels.len()],
        branches: Vec::new(),
    };
    body.place_registers(function)?;
    body.place_variables(function)?;
    for statement in statements {
        body.statement(statement)?;
    }
    body.guard = None;
    body.emit(Operation::Return);
    body.resolve();
    let block_bytes = if function.is_entry { bytes } else { 0 };
    Ok(Function {
        name: function.name.clone(),
        code: body.code,
        template: body.template,
        patches: body.patches,
        block_bytes,
        param_bytes: body.param_end - block_bytes,
        local_bytes: body.local_end,
    })
}

impl Body<'_, '_> {
    fn place_registers(&mut self, function: &ast::Function) -> Result<(), ParseError> {
        for register in &function.registers {
            let name = register.kind.name();
            let Some(kind) = Type::from_name(name) else {
                return self.fail(format!("registers of `.{name}` are not supported"));
            };
            let slot = self.new_slot(low_bits(u64::from_le_bytes([POISON; 8]), kind.bits()));
            self.registers.push((slot, kind));
        }
        Ok(())
    }

    fn place_variables(&mut self, function: &ast::Function) -> Result<(), ParseError> {
        let signature = &self.outline.signatures[self.index];
        let given = signature.results.iter().chain(&signature.parameters);
        self.variables.extend(given.map(|&(place, size)| Local {
            space: Space::Param,
            place,
            size,
        }));
        let owner = function.is_entry.then_some(self.index);
        for variable in function.variables.iter().skip(self.variables.len()) {
            self.line = variable.line;
            let Some(size) = outline::size(variable) else {
                return self.fail("a variable here has no size".to_owned());
            };
            let align = outline::alignment(variable);
            let (space, place) = match variable.space {
                syntax::Space::Shared => (
                    Space::Shared,
                    self.outline.add_shared(variable, false, owner)?,
                ),
                syntax::Space::Param => (
                    Space::Param,
                    Self::reserve(&mut self.param_end, align, size),
                ),
                _ => (
                    Space::Local,
                    Self::reserve(&mut self.local_end, align, size),
                ),
            };
            // The limit of a thread on a device.
            if self.param_end.max(self.local_end) > 512 << 10 {
                return self.fail(format!(
                    "a variable of {size} bytes here takes more memory than a thread has"
                ));
            }
            self.variables.push(Local { space, place, size });
        }
        Ok(())
    }

    fn reserve(end: &mut usize, align: usize, size: usize) -> usize {
        let place = end.next_multiple_of(align);
        *end = place + size;
        place
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), ParseError> {
        match statement {
            Statement::Label(label) => {
                self.labels[label.0 as usize] = self.code.len() as u32;
                Ok(())
            }
            Statement::Instruction(instruction) => {
                self.line = instruction.line;
                self.guard = instruction.guard.map(|guard| Guard {
                    slot: self.register(guard.predicate).0,
                    wanted: !guard.is_negated,
                });
                decode::instruction(self, instruction)
            }
        }
    }

    /// Makes an error at the current statement.
    pub(super) fn fail<T>(&self, message: String) -> Result<T, ParseError> {
        outline::error(self.line, message)
    }

    /// Returns the slot and type of a register.
    pub(super) fn register(&self, register: RegisterId) -> (Slot, Type) {
        self.registers[register.0 as usize]
    }

    /// Returns a variable of this body.
    pub(super) fn local(&self, variable: VariableId) -> Option<Local> {
        match variable {
            VariableId::Function(index) => Some(self.variables[index as usize]),
            VariableId::Module(_) => None,
        }
    }

    /// Returns a variable's space and a slot with its address.
    pub(super) fn variable(&mut self, variable: VariableId) -> (Space, Slot) {
        let (space, patch) = match variable {
            VariableId::Function(index) => {
                let local = self.variables[index as usize];
                match local.space {
                    Space::Shared => (Space::Shared, Patch::Shared(local.place)),
                    Space::Local => (Space::Local, Patch::Local(local.place as u64)),
                    space => return (space, self.constant(local.place as u64)),
                }
            }
            VariableId::Module(index) => match self.outline.variables[index as usize] {
                Variable::Shared(place) => (Space::Shared, Patch::Shared(place)),
                Variable::Global => {
                    let name = self.outline.tree.variables[index as usize].name.clone();
                    (Space::Global, Patch::Global(name))
                }
            },
        };
        if let Some(&slot) = self.addresses.get(&variable) {
            return (space, slot);
        }
        let slot = self.patched(patch);
        self.addresses.insert(variable, slot);
        (space, slot)
    }

    /// Returns the slot of a special register, created at its first use.
    pub(super) fn special(&mut self, register: Special, patch: Patch) -> Slot {
        if let Some(&slot) = self.specials.get(&register) {
            return slot;
        }
        let slot = self.patched(patch);
        self.specials.insert(register, slot);
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

    /// Returns a slot with this value.
    pub(super) fn constant(&mut self, value: u64) -> Slot {
        if let Some(&slot) = self.constants.get(&value) {
            return slot;
        }
        let slot = self.new_slot(value);
        self.constants.insert(value, slot);
        slot
    }

    /// Returns a new slot.
    pub(super) fn temporary(&mut self) -> Slot {
        self.new_slot(0)
    }

    /// Returns the slot for discarded results (`_`).
    pub(super) fn sink(&self) -> Slot {
        SINK
    }

    /// Returns the slot of the carry flag.
    pub(super) fn carry(&self) -> Slot {
        CARRY
    }

    pub(super) fn emit(&mut self, operation: Operation) {
        self.code.push(Instruction {
            guard: self.guard,
            operation,
            line: self.line.0,
        });
    }

    /// Emits a branch; its labels are resolved at the end of the body.
    pub(super) fn emit_branch(&mut self, operation: Operation, labels: Vec<LabelId>) {
        self.branches.push((self.code.len(), labels));
        self.emit(operation);
    }

    fn resolve(&mut self) {
        for (instruction, labels) in std::mem::take(&mut self.branches) {
            let mut found = labels.iter().map(|label| self.labels[label.0 as usize]);
            match &mut self.code[instruction].operation {
                Operation::Branch { target } => *target = found.next().unwrap_or(0),
                Operation::BranchTable { targets, .. } => *targets = found.collect(),
                _ => {}
            }
        }
    }
}
