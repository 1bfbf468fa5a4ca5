//! Runs the cases while the values that the host reads from guests are altered.

use std::process::Command;

use anyhow::Result;
use lexopt::Parser;

use crate::process::{cargo, debug_program, run, say};
use crate::{guests, python};

/// The package that enables callbox's feature for altered values. Other tests run without it.
pub(crate) const PACKAGE: &str = "callbox-fault-injection";

/// Runs `cargo xtask faults`. The program parses the options.
pub(crate) fn faults(parser: &mut Parser) -> Result<()> {
    let options: Vec<_> = parser.raw_args()?.collect();
    guests::build()?;
    say("Altering the values that the host reads from guests");
    run(tests().arg("--no-run"))?;
    run(debug_program("callbox-faults")
        .arg("--each-read")
        .args(options))
}

/// The package's test. It is selected among all packages, so that dependencies keep their features:
/// on its own it would compile wasmtime again.
pub(crate) fn tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace", "--exclude", python::PACKAGE]);
    command.args(["--test", "faults"]);
    command
}
