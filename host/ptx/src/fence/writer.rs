//! Writes a new body.

use std::collections::BTreeMap;

use crate::ast::{
    Address, Base, Function, Guard, Immediate, Instruction, Label, LabelId, Line, Linkage,
    Modifier, Opcode, Operand, Register, RegisterId, Statement, Variable, VariableId,
};
use crate::types::{Space, Type};
use crate::verify::Origin;

/// Writes an instruction without a guard: `emit!(writer => Setp ["eq", "u32"] found, one, 0)`.
macro_rules! emit {
    ($writer:expr => $opcode:ident [$($name:expr),*] $($operand:expr),*) => {
        $writer.emit(
            None,
            Opcode::$opcode,
            &[$($name),*],
            vec![$(Operand::from($operand)),*],
        )
    };
}
pub(super) use emit;

impl From<RegisterId> for Operand {
    fn from(register: RegisterId) -> Self {
        Self::Register(register)
    }
}

impl From<u64> for Operand {
    fn from(value: u64) -> Self {
        Self::Immediate(Immediate::Integer(value))
    }
}

/// `[base+offset]`.
pub(super) fn memory(base: Base, offset: i64) -> Operand {
    Operand::Address(Address {
        base,
        offset,
        coordinates: Vec::new(),
    })
}

pub(super) struct Writer {
    registers: Vec<Register>,
    labels: Vec<Label>,
    body: Vec<Statement>,
    /// The number of the author's parameters. The record's address comes after them.
    parameters: usize,
    pub(super) line: Line,
    /// The address of the record, the site that the thread noted, and the offset there.
    pub(super) record: RegisterId,
    pub(super) site: RegisterId,
    pub(super) offset: RegisterId,
    /// The addresses of buffers and variables, by their width.
    origins: BTreeMap<(Origin, u32), RegisterId>,
    /// Zeros that an assembler does not know, by their width.
    zeros: BTreeMap<u32, RegisterId>,
}

impl Writer {
    pub(super) fn new(function: &Function) -> Self {
        let mut writer = Self {
            registers: function.registers.clone(),
            labels: function.labels.clone(),
            body: Vec::new(),
            parameters: function.parameters,
            line: Line(0),
            record: RegisterId(0),
            site: RegisterId(0),
            offset: RegisterId(0),
            origins: BTreeMap::new(),
            zeros: BTreeMap::new(),
        };
        writer.record = writer.register(Type::B64);
        writer.site = writer.register(Type::U32);
        writer.offset = writer.register(Type::B64);
        writer
    }

    pub(super) fn register(&mut self, kind: Type) -> RegisterId {
        self.registers.push(Register { kind });
        RegisterId(self.registers.len() as u32 - 1)
    }

    /// A register for an address of this width.
    pub(super) fn address(&mut self, bits: u32) -> RegisterId {
        self.register(if bits == 32 { Type::B32 } else { Type::B64 })
    }

    pub(super) fn bits(&self, register: RegisterId) -> u32 {
        self.registers
            .get(register.0 as usize)
            .map_or(64, |one| one.kind.bits())
    }

    pub(super) fn label(&mut self) -> LabelId {
        self.labels.push(Label { line: Line(0) });
        LabelId(self.labels.len() as u32 - 1)
    }

    pub(super) fn place(&mut self, label: LabelId) {
        self.body.push(Statement::Label(label));
    }

    pub(super) fn push(&mut self, instruction: Instruction) {
        self.body.push(Statement::Instruction(instruction));
    }

    pub(super) fn emit(
        &mut self,
        guard: Option<Guard>,
        opcode: Opcode,
        modifiers: &[&'static str],
        operands: Vec<Operand>,
    ) {
        let modifiers = modifiers.iter().map(|name| Modifier::Name(name)).collect();
        let line = self.line;
        self.push(Instruction {
            line,
            guard,
            opcode,
            modifiers,
            operands,
        });
    }

    pub(super) fn branch(&mut self, guard: Option<Guard>, to: LabelId) {
        self.emit(guard, Opcode::Bra, &[], vec![Operand::Label(to)]);
    }

    /// Sets a register to zero.
    pub(super) fn zero(&mut self, register: RegisterId, guard: Option<Guard>) {
        let kind = match self.bits(register) {
            1 => {
                let operands = [register, self.site, self.site].map(Operand::from);
                self.emit(guard, Opcode::Setp, &["ne", "u32"], operands.into());
                return;
            }
            16 => "b16",
            32 => "b32",
            _ => "b64",
        };
        let operands = vec![register.into(), Operand::from(0)];
        self.emit(guard, Opcode::Mov, &[kind], operands);
    }

    /// The register with the address of a buffer or a variable. The prologue sets it.
    pub(super) fn origin(&mut self, origin: Origin, bits: u32) -> RegisterId {
        if let Some(&register) = self.origins.get(&(origin, bits)) {
            return register;
        }
        let register = self.address(bits);
        self.origins.insert((origin, bits), register);
        register
    }

    pub(super) fn ends_with_return(&self) -> bool {
        matches!(
            self.body.last(),
            Some(Statement::Instruction(Instruction {
                opcode: Opcode::Ret,
                guard: None,
                ..
            }))
        )
    }

    /// Takes what was written, so that something can be written before it.
    pub(super) fn take_body(&mut self) -> Vec<Statement> {
        std::mem::take(&mut self.body)
    }

    pub(super) fn append(&mut self, body: Vec<Statement>) {
        self.body.extend(body);
    }

    /// Writes what sets the registers of all origins.
    pub(super) fn set_origins(&mut self) {
        for ((origin, bits), register) in self.origins.clone() {
            match origin {
                Origin::Buffer(index) => {
                    emit!(self => Ld ["param", "u64"] register, parameter(index));
                }
                Origin::Variable(variable) => {
                    let from = super::variable_operand(self.shifted_variable(variable));
                    let kind = if bits == 32 { "u32" } else { "u64" };
                    emit!(self => Mov [kind] register, from);
                }
            }
        }
    }

    /// A register that is zero, which an assembler does not know. The prologue sets it.
    pub(super) fn unknown_zero(&mut self, kind: Type) -> RegisterId {
        if let Some(&register) = self.zeros.get(&kind.bits()) {
            return register;
        }
        let register = self.register(kind);
        self.zeros.insert(kind.bits(), register);
        register
    }

    /// Writes what sets the zeros that an assembler does not know: the highest bit of the record's
    /// address.
    pub(super) fn set_zeros(&mut self) {
        if self.zeros.is_empty() {
            return;
        }
        let [address, bit] = [(); 2].map(|()| self.register(Type::B64));
        emit!(self => Ld ["param", "u64"] address, parameter(self.parameters));
        emit!(self => Shr ["u64"] bit, address, 63);
        for (bits, register) in self.zeros.clone() {
            match bits {
                16 => emit!(self => Cvt ["u16", "u64"] register, bit),
                32 => emit!(self => Cvt ["u32", "u64"] register, bit),
                _ => emit!(self => Mov ["b64"] register, bit),
            }
        }
    }

    pub(super) fn set_record(&mut self) {
        let address = parameter(self.parameters);
        emit!(self => Ld ["param", "u64"] self.record, address);
    }

    /// A variable's index in the new function, which has one more parameter.
    pub(super) fn shifted_variable(&self, variable: VariableId) -> VariableId {
        match variable {
            VariableId::Function(index) if index as usize >= self.parameters => {
                VariableId::Function(index + 1)
            }
            same => same,
        }
    }

    pub(super) fn shifted(&self, instruction: &Instruction) -> Instruction {
        let operands = instruction.operands.iter();
        let (opcode, modifiers) = match instruction.opcode {
            // Without the claims that all lanes branch, or load from one address.
            Opcode::Bra => (Opcode::Bra, Vec::new()),
            Opcode::Ldu => (Opcode::Ld, instruction.modifiers.clone()),
            opcode => (opcode, instruction.modifiers.clone()),
        };
        Instruction {
            opcode,
            modifiers,
            operands: operands
                .map(|operand| self.shifted_operand(operand))
                .collect(),
            ..*instruction
        }
    }

    fn shifted_operand(&self, operand: &Operand) -> Operand {
        match operand {
            Operand::Variable(variable, offset) => {
                Operand::Variable(self.shifted_variable(*variable), *offset)
            }
            Operand::Address(address) => {
                let base = match address.base {
                    Base::Variable(variable) => Base::Variable(self.shifted_variable(variable)),
                    base => base,
                };
                Operand::Address(Address {
                    base,
                    ..address.clone()
                })
            }
            Operand::Vector(parts) => Operand::Vector(
                parts
                    .iter()
                    .map(|part| self.shifted_operand(part))
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    pub(super) fn finished(self, function: &Function) -> Function {
        let mut variables = function.variables.clone();
        let record = Variable {
            name: String::new(),
            space: Space::Param,
            linkage: Linkage::Internal,
            element: Type::U64,
            vector: 1,
            align: None,
            dimensions: Vec::new(),
            pointer: None,
            initial: None,
            line: Line(0),
        };
        variables.insert(function.parameters.min(variables.len()), record);
        Function {
            parameters: function.parameters + 1,
            variables,
            registers: self.registers,
            labels: self.labels,
            body: Some(self.body),
            ..function.clone()
        }
    }
}

/// The place of a parameter.
fn parameter(index: usize) -> Operand {
    memory(Base::Variable(VariableId::Function(index as u32)), 0)
}
