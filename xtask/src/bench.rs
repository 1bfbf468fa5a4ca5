//! Runs the benchmarks, and prints each figure as a ratio to the baseline of the same run.

use std::process::Command;

use anyhow::{Result, ensure};
use lexopt::Arg::Long;
use lexopt::{Parser, ValueExt};

use crate::process::{cargo, run, say};
use crate::{guests, python};

/// Runs `cargo xtask bench`.
pub(crate) fn bench(parser: &mut Parser) -> Result<()> {
    let mut filter = None;
    let mut from_python = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("filter") => filter = Some(parser.value()?.string()?),
            Long("python") => from_python = true,
            other => return Err(other.unexpected().into()),
        }
    }
    if from_python {
        ensure!(
            filter.is_none(),
            "--python runs all of its measurements: it takes no --filter"
        );
        return python::speed();
    }
    guests::build()?;
    say("Running the benchmarks in release mode: the first time this builds wasmtime again");
    let mut bench = native_cargo();
    bench.args(["bench", "--package", "callbox-benches", "--"]);
    run(bench.args(filter))?;
    say("Ratios");
    program("ratios")?;
    say("Loads");
    program("loads")
}

/// Runs a program of the benchmarks.
fn program(name: &str) -> Result<()> {
    let mut run_release = native_cargo();
    run_release.args(["run", "--quiet", "--release"]);
    run(run_release.args(["--package", "callbox-benches", "--bin", name]))
}

/// Cargo that builds for this machine's processor. wasmtime compiles guests for it, so the native
/// baselines must be compiled for it too.
pub(crate) fn native_cargo() -> Command {
    let mut command = cargo();
    command.env("RUSTFLAGS", "-Ctarget-cpu=native");
    command
}
