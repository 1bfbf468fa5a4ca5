//! Random programs: the executor agrees with the reference interpreter, instruction by instruction.
//!
//! Each instruction is checked on the executor's own operand values, so that errors do not
//! accumulate: bit for bit for moves and integer arithmetic, within a few representable values for
//! floating-point functions.

mod build;

use arbitrary::Unstructured;
use callbox::program::{Computation, Executable, ExecuteOptions, Opcode, Program};
use callbox::{Literal, Platform, Registry};

use super::hlo_text;
use crate::Target;
use crate::interpret::{self, Value};
use crate::outcome::Outcome;

/// The target.
pub const TARGET: Target = Target {
    name: "program",
    run,
    max_len: 1024,
    executions: 3_000,
    words: &[],
};

fn run(input: &[u8]) -> Outcome {
    let Ok(Some(built)) = build::program(&mut Unstructured::new(input)) else {
        return Outcome::of("too few bytes");
    };
    hlo_text::check_print(&built.whole);
    let all = execute(&built.whole, &built.arguments);
    let last = execute(&built.last, &built.arguments);
    let values = all.into_elements();
    let entry = entry(&built.whole);
    // The root is a tuple of all values before it.
    let instructions = &entry.instructions()[..entry.instructions().len() - 1];
    assert_eq!(values.len(), instructions.len());
    assert!(
        values.last().is_some_and(|value| same(value, &last)),
        "another result where other values are not asked for: {last:?} and {:?}\n{}",
        values.last(),
        built.last.to_hlo_text()
    );
    for (i, instruction) in instructions.iter().enumerate() {
        let operands = instruction.operands().iter();
        let operands: Vec<Value> = operands.map(|id| Value::of(&values[id.index()])).collect();
        let (expected, tolerance) = match instruction.opcode() {
            Opcode::Parameter(number) => (
                Value::of(&built.arguments[*number]),
                interpret::Tolerance::Bits,
            ),
            _ => interpret::evaluate(&built.whole, instruction, &operands),
        };
        if let Err(difference) = expected.check(&values[i], &tolerance) {
            panic!(
                "%{}: {difference}\noperands: {operands:?}\n{}",
                instruction.name(),
                built.whole.to_hlo_text()
            );
        }
    }
    let told = instructions.last().map(|instruction| {
        let element_type = instruction
            .shape()
            .as_array()
            .map(|array| array.element_type());
        (instruction.opcode().name(), element_type)
    });
    Outcome::of(told)
}

fn entry(program: &Program) -> &Computation {
    &program.computations()[program.exports()[0].index()]
}

fn execute(program: &Program, arguments: &[Literal]) -> Literal {
    let executable = Executable::compile(program, &Registry::new(), Platform::Host);
    let executable =
        executable.unwrap_or_else(|status| panic!("{status}\n{}", program.to_hlo_text()));
    let result = executable.execute(0, arguments, &ExecuteOptions::default());
    result.unwrap_or_else(|status| panic!("{status}\n{}", program.to_hlo_text()))
}

/// Returns whether both have the same shape, layouts aside, and the same bytes.
fn same(a: &Literal, b: &Literal) -> bool {
    a.shape().is_compatible(b.shape())
        && a.leaves()
            .map(|(_, bytes)| bytes)
            .eq(b.leaves().map(|(_, bytes)| bytes))
}
