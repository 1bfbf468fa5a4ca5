//! Converts between element types with a program of one instruction, so that the command line
//! agrees with programs.

use callbox::program::{Executable, ExecuteOptions, ProgramBuilder};
use callbox::{ElementType, Literal, Platform, Registry, Result};

/// Converts each element of an array as HLO's `convert` does.
pub(super) fn convert(array: Literal, to: ElementType) -> Result<Literal> {
    let mut builder = ProgramBuilder::new("convert");
    let from = builder.parameter(0, array.shape().clone(), "from")?;
    let root = builder.convert(from, to)?;
    let program = builder.build(root)?;
    let executable = Executable::compile(&program, &Registry::new(), Platform::Host)?;
    executable.execute(0, &[array], &ExecuteOptions::default())
}
