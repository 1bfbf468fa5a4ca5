//! The set-up that a person would otherwise type: `cargo xtask demo`, `cargo xtask test`.
//!
//! Each step says what it does before it does it, so that it can be done by hand.

#![allow(
    clippy::print_stdout,
    reason = "xtask is run by people and by CI, and talks to them"
)]

mod bench;
mod clang;
mod conformance;
mod demo;
mod guests;
mod lint;
mod process;
mod test;
mod toolchain;
mod xla;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// What can be done in this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds guests and host, runs the seeds' program on real input, and shows how a faulty kernel fails.
    Demo,
    /// Builds the guests to target/guests/NAME.wasm.
    Guests,
    /// Runs all tests.
    Test,
    /// Runs the conformance suite on a platform, and writes reports.
    Conformance(conformance::Arguments),
    /// Checks formatting, lints and documentation, with warnings denied.
    Lint,
    /// Runs the benchmarks and prints their ratios to their baselines.
    Bench(bench::Arguments),
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().task {
        Task::Conformance(arguments) => return conformance::conformance(&arguments),
        Task::Demo => demo::demo()?,
        Task::Guests => guests::build()?,
        Task::Test => test::test()?,
        Task::Lint => lint::lint()?,
        Task::Bench(arguments) => bench::bench(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
