//! Prints a tree as PTX.
//!
//! Names within a function are made from indices and begin with `%`, which no name of the module
//! does: `%r3` for a register, `%v3` for a variable, `%l3` for a label. The scopes of the author's
//! text are gone.

mod instruction;

use std::fmt::{self, Display, Formatter};

use self::instruction::{Guarded, Label, Line, Name, Offset};
use crate::ast::{
    Features, Function, Initial, Instruction, LabelId, Limits, Linkage, Module, Operand, Statement,
    Variable,
};
use crate::types::{Space, Type};
use crate::version::needed_version;

/// Prints a module. Its `.version` is the lowest that its instructions and its target need.
pub fn print(module: &Module) -> String {
    Text { module }.to_string()
}

/// Prints one instruction with its guard and its semicolon, for reports.
pub fn instruction_text(module: &Module, instruction: &Instruction) -> String {
    Line {
        module,
        instruction,
    }
    .to_string()
}

/// Prints an instruction's opcode and modifiers: `ld.global.v4.b32`.
pub fn instruction_name(instruction: &Instruction) -> String {
    Name(instruction).to_string()
}

struct Text<'m> {
    module: &'m Module,
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { module } = *self;
        let (major, minor) = needed_version(module);
        let features = match module.target.features {
            None => "",
            Some(Features::Architecture) => "a",
            Some(Features::Family) => "f",
        };
        writeln!(f, ".version {major}.{minor}")?;
        writeln!(f, ".target sm_{}{features}", module.target.architecture)?;
        writeln!(f, ".address_size 64")?;
        for variable in &module.variables {
            write!(f, "{}", linkage(variable.linkage))?;
            write!(f, "{} {}", Declared(variable), variable.name)?;
            write!(f, "{}", Dimensions(variable))?;
            if let Some(initial) = &variable.initial {
                write!(f, " = {}", Contents { module, initial })?;
            }
            writeln!(f, ";")?;
        }
        // A function may be called before it is defined.
        for function in module
            .functions
            .iter()
            .filter(|function| !function.is_entry)
        {
            writeln!(f, "{};", Header { function })?;
        }
        for function in &module.functions {
            if let Some(body) = &function.body {
                write!(
                    f,
                    "{}",
                    Definition {
                        module,
                        function,
                        body
                    }
                )?;
            }
        }
        Ok(())
    }
}

fn linkage(linkage: Linkage) -> &'static str {
    match linkage {
        Linkage::Internal => "",
        Linkage::Visible => ".visible ",
        Linkage::Extern => ".extern ",
        Linkage::Weak => ".weak ",
        Linkage::Common => ".common ",
    }
}

/// A declaration before its name.
struct Declared<'m>(&'m Variable);

impl Display for Declared<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Variable {
            space,
            align,
            vector,
            element,
            pointer,
            ..
        } = self.0;
        f.write_str(space.directive())?;
        if let Some(align) = align {
            write!(f, " .align {align}")?;
        }
        if *vector > 1 {
            write!(f, " .v{vector}")?;
        }
        write!(f, " .{}", element.name())?;
        if let Some(pointer) = pointer {
            f.write_str(" .ptr")?;
            if pointer.space != Space::Generic {
                write!(f, " {}", pointer.space.directive())?;
            }
            if let Some(align) = pointer.align {
                write!(f, " .align {align}")?;
            }
        }
        Ok(())
    }
}

struct Dimensions<'m>(&'m Variable);

impl Display for Dimensions<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for length in &self.0.dimensions {
            match length {
                Some(length) => write!(f, "[{length}]")?,
                None => f.write_str("[]")?,
            }
        }
        Ok(())
    }
}

struct Contents<'m> {
    module: &'m Module,
    initial: &'m Initial,
}

impl Display for Contents<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { module, initial } = *self;
        match initial {
            Initial::Number(number) => write!(f, "{number}"),
            Initial::Address {
                variable,
                is_generic,
                addend,
            } => {
                let name = module.variables.get(*variable).map_or("", |one| &one.name);
                if *is_generic {
                    write!(f, "generic({name})")?;
                } else {
                    f.write_str(name)?;
                }
                write!(f, "{}", Offset(*addend))
            }
            Initial::List(values) => {
                f.write_str("{")?;
                for (index, initial) in values.iter().enumerate() {
                    f.write_str(if index > 0 { ", " } else { "" })?;
                    write!(f, "{}", Contents { module, initial })?;
                }
                f.write_str("}")
            }
        }
    }
}

/// A function up to its body.
struct Header<'m> {
    function: &'m Function,
}

impl Header<'_> {
    fn parameters(&self, f: &mut Formatter<'_>, from: usize, count: usize) -> fmt::Result {
        f.write_str("(")?;
        let variables = self.function.variables.iter().enumerate();
        for (index, variable) in variables.skip(from).take(count) {
            f.write_str(if index > from { ", " } else { "" })?;
            write!(
                f,
                "{} %v{index}{}",
                Declared(variable),
                Dimensions(variable)
            )?;
        }
        f.write_str(")")
    }
}

impl Display for Header<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Function {
            results,
            parameters,
            ..
        } = *self.function;
        f.write_str(linkage(self.function.linkage))?;
        f.write_str(if self.function.is_entry {
            ".entry "
        } else {
            ".func "
        })?;
        if results > 0 {
            self.parameters(f, 0, results)?;
            f.write_str(" ")?;
        }
        f.write_str(&self.function.name)?;
        self.parameters(f, results, parameters)?;
        write!(f, "{}", Launch(&self.function.limits))
    }
}

struct Launch<'m>(&'m Limits);

impl Display for Launch<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let limits = self.0;
        for (name, threads) in [(".maxntid", limits.maxntid), (".reqntid", limits.reqntid)] {
            if let Some([x, y, z]) = threads {
                write!(f, " {name} {x}, {y}, {z}")?;
            }
        }
        let numbers = [
            (".minnctapersm", limits.minnctapersm),
            (".maxnctapersm", limits.maxnctapersm),
            (".maxnreg", limits.maxnreg),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                write!(f, " {name} {number}")?;
            }
        }
        f.write_str(if limits.is_noreturn { " .noreturn" } else { "" })
    }
}

struct Definition<'m> {
    module: &'m Module,
    function: &'m Function,
    body: &'m [Statement],
}

impl Display for Definition<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            module,
            function,
            body,
        } = *self;
        writeln!(f, "{}\n{{", Header { function })?;
        self.registers(f)?;
        let variables = function.variables.iter().enumerate();
        for (index, variable) in variables.skip(function.results + function.parameters) {
            writeln!(
                f,
                "{} %v{index}{};",
                Declared(variable),
                Dimensions(variable)
            )?;
        }
        let mut tables = 0;
        for statement in body {
            match statement {
                Statement::Label(label) => writeln!(f, "{}:", Label(*label))?,
                Statement::Instruction(instruction) => {
                    if let [_, Operand::Labels(labels)] = instruction.operands.as_slice() {
                        branch_table(f, instruction, tables, labels)?;
                        tables += 1;
                        continue;
                    }
                    writeln!(
                        f,
                        "{}",
                        Line {
                            module,
                            instruction
                        }
                    )?;
                }
            }
        }
        writeln!(f, "}}")
    }
}

impl Definition<'_> {
    /// Declares the registers, one statement for each type.
    fn registers(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for kind in Type::ALL {
            let registers = self.function.registers.iter().enumerate();
            let of_kind = registers.filter(|(_, register)| register.kind == *kind);
            let mut has_any = false;
            for (index, _) in of_kind {
                if has_any {
                    f.write_str(", ")?;
                } else {
                    write!(f, ".reg .{} ", kind.name())?;
                }
                write!(f, "%r{index}")?;
                has_any = true;
            }
            f.write_str(if has_any { ";\n" } else { "" })?;
        }
        Ok(())
    }
}

/// Prints `brx.idx` behind the list of its labels.
fn branch_table(
    f: &mut Formatter<'_>,
    instruction: &Instruction,
    table: usize,
    labels: &[LabelId],
) -> fmt::Result {
    write!(f, "%t{table}: .branchtargets ")?;
    for (index, label) in labels.iter().enumerate() {
        write!(f, "{}{}", if index > 0 { ", " } else { "" }, Label(*label))?;
    }
    let Some(Operand::Register(index)) = instruction.operands.first() else {
        return Err(fmt::Error);
    };
    write!(f, ";\n{}{}", Guarded(instruction), Name(instruction))?;
    writeln!(f, " %r{}, %t{table};", index.0)
}
