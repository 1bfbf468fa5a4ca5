//! Runs the cases while what the host reads from guests is altered.

use std::process::Command;

use anyhow::Result;

use crate::process::{cargo, root, run, say};
use crate::{guests, python};

/// The package whose callbox has a feature that no other has: other packages' tests are built without it.
pub(crate) const PACKAGE: &str = "callbox-fault-injection";

/// How long it goes on.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Random runs of each case. Besides, each value that a case reads is altered in each way.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Only cases with this in their names.
    #[arg(long, default_value = "")]
    filter: String,
}

pub(crate) fn faults(arguments: &Arguments) -> Result<()> {
    guests::build()?;
    say("Altering what the host reads from guests");
    let seeds = arguments.seeds.to_string();
    run(tests().arg("--no-run"))?;
    let mut command = Command::new(root().join("target/debug/callbox-faults"));
    run(command
        .current_dir(root())
        .args(["--each-read", "--seeds", &seeds])
        .args(["--filter", &arguments.filter]))
}

/// The package's test. Among all packages, so that what they depend on is built with the same features: alone it would have wasmtime built
/// once more.
pub(crate) fn tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace", "--exclude", python::PACKAGE]);
    command.args(["--test", "faults"]);
    command
}
