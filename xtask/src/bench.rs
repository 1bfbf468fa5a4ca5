//! Runs the benchmarks, and prints each figure as a ratio to the baseline that was measured in the same run.

use anyhow::Result;

use crate::process::{cargo, run, say};
use crate::{guests, python};

/// Which benchmarks are run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only benchmarks whose names have this in them.
    #[arg(long, conflicts_with = "python")]
    filter: Option<String>,
    /// What callbox costs in Python, in place of the others.
    #[arg(long)]
    python: bool,
}

pub(crate) fn bench(arguments: &Arguments) -> Result<()> {
    if arguments.python {
        return python::speed();
    }
    guests::build()?;
    say("Running the benchmarks in release mode: the first time this builds wasmtime once more");
    let mut bench = native_cargo();
    bench.args(["bench", "--package", "callbox-benches", "--"]);
    run(bench.args(&arguments.filter))?;
    say("Ratios");
    run(native_cargo().args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "callbox-benches",
        "--bin",
        "ratios",
    ]))
}

/// Cargo building for this machine's processor: wasmtime compiles guests for it, and so the native baseline is.
pub(crate) fn native_cargo() -> std::process::Command {
    let mut command = cargo();
    command.env("RUSTFLAGS", "-Ctarget-cpu=native");
    command
}
