//! Instructions and their operands.

use std::fmt::{self, Display, Formatter};

use crate::ast::{
    Address, Base, Immediate, Instruction, LabelId, Modifier, Module, Operand, VariableId,
};

pub(super) struct Label(pub(super) LabelId);

impl Display for Label {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "%l{}", self.0.0)
    }
}

/// An instruction's guard, followed by a blank.
pub(super) struct Guarded<'m>(pub(super) &'m Instruction);

impl Display for Guarded<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(guard) = self.0.guard else {
            return Ok(());
        };
        let not = if guard.is_negated { "!" } else { "" };
        write!(f, "@{not}%r{} ", guard.predicate.0)
    }
}

/// An instruction's opcode and modifiers.
pub(super) struct Name<'m>(pub(super) &'m Instruction);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.opcode.name())?;
        for modifier in &self.0.modifiers {
            match modifier {
                Modifier::Name(name) => write!(f, ".{name}")?,
                Modifier::Shape([m, n, 0]) => write!(f, ".m{m}n{n}")?,
                Modifier::Shape([m, n, k]) => write!(f, ".m{m}n{n}k{k}")?,
            }
        }
        Ok(())
    }
}

pub(super) struct Line<'m> {
    pub(super) module: &'m Module,
    pub(super) instruction: &'m Instruction,
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            module,
            instruction,
        } = *self;
        write!(f, "{}{}", Guarded(instruction), Name(instruction))?;
        let mut separator = " ";
        for operand in &instruction.operands {
            // Without results or arguments, `call` has no parentheses.
            if matches!(operand, Operand::Parameters(names) if names.is_empty()) {
                continue;
            }
            write!(f, "{separator}{}", Shown { module, operand })?;
            separator = ", ";
        }
        f.write_str(";")
    }
}

struct Shown<'m> {
    module: &'m Module,
    operand: &'m Operand,
}

impl<'m> Shown<'m> {
    fn other(&self, operand: &'m Operand) -> Self {
        Self {
            module: self.module,
            operand,
        }
    }

    fn list(&self, f: &mut Formatter<'_>, operands: &'m [Operand]) -> fmt::Result {
        f.write_str("{")?;
        for (index, operand) in operands.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            write!(f, "{}", self.other(operand))?;
        }
        f.write_str("}")
    }

    fn variable(&self, f: &mut Formatter<'_>, variable: VariableId) -> fmt::Result {
        match variable {
            VariableId::Function(index) => write!(f, "%v{index}"),
            VariableId::Module(index) => {
                let variable = self.module.variables.get(index as usize);
                f.write_str(variable.map_or("", |variable| &variable.name))
            }
        }
    }

    fn address(&self, f: &mut Formatter<'_>, address: &'m Address) -> fmt::Result {
        f.write_str("[")?;
        match address.base {
            Base::Register(register) => write!(f, "%r{}{}", register.0, Offset(address.offset))?,
            Base::Variable(variable) => {
                self.variable(f, variable)?;
                write!(f, "{}", Offset(address.offset))?;
            }
            Base::Nothing => write!(f, "{}", address.offset.cast_unsigned())?,
        }
        if !address.coordinates.is_empty() {
            f.write_str(", ")?;
            self.list(f, &address.coordinates)?;
        }
        f.write_str("]")
    }
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.operand {
            Operand::Register(register) => write!(f, "%r{}", register.0),
            Operand::Not(register) => write!(f, "!%r{}", register.0),
            Operand::Special(special) => f.write_str(special.name()),
            Operand::Immediate(number) => write!(f, "{number}"),
            Operand::Variable(variable, offset) => {
                self.variable(f, *variable)?;
                write!(f, "{}", Offset(*offset))
            }
            Operand::Address(address) => self.address(f, address),
            Operand::Vector(elements) => self.list(f, elements),
            Operand::Pair(parts) => {
                let [first, second] = &**parts;
                write!(f, "{}|{}", self.other(first), self.other(second))
            }
            Operand::Discard => f.write_str("_"),
            Operand::Label(label) => write!(f, "{}", Label(*label)),
            // Printed by `branch_table`.
            Operand::Labels(_) => f.write_str("..."),
            Operand::Function(index) => {
                let function = self.module.functions.get(*index);
                f.write_str(function.map_or("", |function| &function.name))
            }
            Operand::Parameters(variables) => {
                f.write_str("(")?;
                for (index, variable) in variables.iter().enumerate() {
                    f.write_str(if index > 0 { ", " } else { "" })?;
                    self.variable(f, *variable)?;
                }
                f.write_str(")")
            }
        }
    }
}

pub(super) struct Offset(pub(super) i64);

impl Display for Offset {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            Ok(())
        } else {
            // `ptxas` takes `+-16`, and not `-16`.
            write!(f, "+{}", self.0)
        }
    }
}

impl Display for Immediate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{}", value.cast_signed()),
            Self::Single(bits) => write!(f, "0f{bits:08X}"),
            Self::Double(bits) => write!(f, "0d{bits:016X}"),
        }
    }
}
