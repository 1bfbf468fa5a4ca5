//! HLO text of a program: what [`parse`](super::parse) reads back as the same program, and XLA as well where the program has nothing
//! of callbox's own.

mod attributes;
mod custom_calls;
mod literals;
pub(super) mod mlir;
mod names;
mod numbers;
#[cfg(test)]
mod tests;

use std::fmt;

use self::attributes::attributes;
use self::literals::literal;
use self::names::Names;
use crate::program::instruction::{ComputationId, Instruction, InstructionId, Opcode, Program};
use crate::values::Shape;

impl Program {
    /// The program as HLO text, which [`Program::from_hlo_text`] reads back as an equal program.
    ///
    /// Names that HLO text cannot have get `_` in place of what it has not, and a number if they are taken then; references follow.
    /// Of what a custom call says, that is printed which its API version hands to a target.
    ///
    /// ```
    /// # fn main() -> callbox::Result<()> {
    /// use callbox::program::{Program, ProgramBuilder};
    /// use callbox::{ElementType::F32, Shape};
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

/// A program and its names.
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
            let parameters = list(entry.parameter_shapes().map(shape));
            let result = shape(entry.result_shape());
            text += &format!(", entry_computation_layout={{({parameters})->{result}}}");
        }
        if program.exports.len() > 1 {
            let exports = program.exports.iter().map(|id| self.names.computation(*id));
            let exports = exports.collect::<Vec<_>>().join(",");
            text += &format!(", frontend_attributes={{callbox.exports=\"{exports}\"}}");
        }
        text.push('\n');
        for number in 0..program.computations.len() {
            let id = ComputationId(number as u32);
            let start = if entry == Some(&id) { "ENTRY " } else { "" };
            text += &format!("\n{start}%{} {{\n", self.names.computation(id));
            self.instructions(id, &mut text);
            text += "}\n";
        }
        text
    }

    fn instructions(&self, id: ComputationId, text: &mut String) {
        let computation = &self.program.computations[id.index()];
        for (number, instruction) in computation.instructions.iter().enumerate() {
            let number = InstructionId(number as u32);
            let root = if computation.root == number {
                "ROOT "
            } else {
                ""
            };
            let name = self.names.instruction(id, number);
            let shape = shape(&instruction.shape);
            let opcode = instruction.opcode.name();
            *text += &format!("  {root}%{name} = {shape} {opcode}(");
            match &instruction.opcode {
                Opcode::Parameter(number) => *text += &number.to_string(),
                Opcode::Constant(value) => literal(value, text),
                _ => *text += &self.list_of(id, &instruction.operands),
            }
            text.push(')');
            attributes(self, computation, instruction, text);
            self.control_predecessors(id, instruction, text);
            text.push('\n');
        }
    }

    fn control_predecessors(
        &self,
        id: ComputationId,
        instruction: &Instruction,
        text: &mut String,
    ) {
        let predecessors = &instruction.control_predecessors;
        if !predecessors.is_empty() {
            let predecessors = self.list_of(id, predecessors);
            *text += &format!(", control-predecessors={{{predecessors}}}");
        }
    }

    /// Instructions of a computation: `%x, %y`.
    fn list_of(&self, computation: ComputationId, instructions: &[InstructionId]) -> String {
        let names = instructions.iter();
        list(names.map(|id| format!("%{}", self.names.instruction(computation, *id))))
    }

    /// A computation: `%f`.
    fn computation(&self, id: ComputationId) -> String {
        format!("%{}", self.names.computation(id))
    }
}

/// Things with commas between them.
fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// Numbers in braces: `{1,0}`.
fn numbers(numbers: &[usize]) -> String {
    let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}

/// A shape with all that is known of its layout: that of a scalar is empty, and else left out.
fn shape(shape: &Shape) -> String {
    match shape {
        Shape::Array(array) if array.rank() == 0 && array.layout().is_some() => {
            format!("{array}{{}}")
        }
        Shape::Array(array) => array.to_string(),
        Shape::Tuple(tuple) => format!("({})", list(tuple.elements().iter().map(self::shape))),
    }
}
