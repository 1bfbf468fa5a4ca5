//! Prints programs as HLO text.
//!
//! [`parse`](super::parse) reads the text back as the same program, and so does XLA if the program
//! uses none of callbox's own attributes.

mod attributes;
mod custom_calls;
pub(super) mod names;
#[cfg(test)]
mod tests;
mod windows;

use std::fmt;

use self::attributes::attributes;
use self::names::Names;
use crate::instruction::{ComputationId, Instruction, InstructionId, Opcode, Program};
use callbox_core::text::{print_literal, print_shape};

impl Program {
    /// The program as HLO text. [`Program::from_hlo_text`] reads it back as an equal program.
    ///
    /// HLO text has no name such as `1 x`: it is printed as `_1_x`, with a number if that name is
    /// taken, and references follow. Of a custom call only the attributes are printed that a
    /// target of its API version receives.
    ///
    /// ```
    /// # fn main() -> callbox_core::Result<()> {
    /// use callbox_hlo::{Program, ProgramBuilder};
    /// use callbox_core::{ElementType::F32, Shape};
    ///
    /// let mut b = ProgramBuilder::new("double");
    /// let x = b.parameter(0, Shape::array(F32, &[2])?, "x")?;
    /// let sum = b.add(x, x)?;
    /// let program = b.build(sum)?;
    /// let text = program.to_hlo_text();
    /// assert!(text.contains("ROOT %add.1 = f32[2] add(%x, %x)"));
    /// assert_eq!(Program::from_hlo_text(&text)?, program);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn to_hlo_text(&self) -> String {
        let printer = Printer {
            program: self,
            names: Names::new(self),
        };
        printer.module()
    }
}

impl fmt::Display for Program {
    /// [`Program::to_hlo_text`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hlo_text())
    }
}

/// A program, with the names that it has in the text.
struct Printer<'a> {
    program: &'a Program,
    names: Names<'a>,
}

impl Printer<'_> {
    fn module(&self) -> String {
        let program = self.program;
        let mut text = format!("HloModule {}", self.names.module());
        let entry = program.exports.first();
        if let Some(entry) = entry.map(|id| &program.computations[id.index()]) {
            let parameters = list(entry.parameter_shapes().map(print_shape));
            let result = print_shape(entry.result_shape());
            text += &format!(", entry_computation_layout={{({parameters})->{result}}}");
        }
        if let exports @ [_, _, ..] = program.exports.as_slice() {
            let names: Vec<_> = exports
                .iter()
                .map(|id| self.names.computation(*id))
                .collect();
            let names = names.join(",");
            text += &format!(", frontend_attributes={{callbox.exports=\"{names}\"}}");
        }
        text.push('\n');
        for (number, computation) in program.computations.iter().enumerate() {
            let id = ComputationId(number as u32);
            let start = if entry == Some(&id) { "ENTRY " } else { "" };
            text += &format!("\n{start}{} {{\n", self.computation(id));
            for (number, instruction) in computation.instructions.iter().enumerate() {
                let number = InstructionId(number as u32);
                text += if computation.root == number {
                    "  ROOT "
                } else {
                    "  "
                };
                text += &format!("%{} = ", self.names.instruction(id, number));
                self.instruction(id, instruction, &mut text);
                text.push('\n');
            }
            text += "}\n";
        }
        text
    }

    fn instruction(&self, id: ComputationId, instruction: &Instruction, text: &mut String) {
        let shape = print_shape(&instruction.shape);
        *text += &format!("{shape} {}(", instruction.opcode.name());
        match &instruction.opcode {
            Opcode::Parameter(number) => *text += &number.to_string(),
            Opcode::Constant(value) => print_literal(value, text),
            _ => *text += &self.instruction_names(id, &instruction.operands),
        }
        text.push(')');
        attributes(
            self,
            &self.program.computations[id.index()],
            instruction,
            text,
        );
        if !instruction.control_predecessors.is_empty() {
            let names = self.instruction_names(id, &instruction.control_predecessors);
            *text += &format!(", control-predecessors={{{names}}}");
        }
    }

    /// The names of instructions of a computation: `%x, %y`.
    fn instruction_names(&self, computation: ComputationId, ids: &[InstructionId]) -> String {
        let name = |id: &InstructionId| format!("%{}", self.names.instruction(computation, *id));
        list(ids.iter().map(name))
    }

    /// The name of a computation: `%f`.
    fn computation(&self, id: ComputationId) -> String {
        format!("%{}", self.names.computation(id))
    }
}

/// Items separated by commas.
fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// Numbers in braces: `{1,0}`.
fn numbers(numbers: &[usize]) -> String {
    let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}
