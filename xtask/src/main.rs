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
mod deny;
mod faults;
mod fuzz;
mod gpu_check;
mod guests;
mod latency;
mod lint;
mod process;
mod ptx;
mod python;
mod soak;
mod test;
mod toolchain;
mod venv;
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
    /// Runs the fuzz targets for a while, and says how many executions and finds there were.
    Fuzz(fuzz::Arguments),
    /// Checks formatting, lints and documentation, with warnings denied.
    Lint(lint::Arguments),
    /// Compiles the guests' CUDA sources to the PTX beside them, or checks that it is what they make. Installs NVRTC the first time.
    Ptx(ptx::Arguments),
    /// Builds the wheel of callbox for Python, and tests it as it is installed: without JAX, with the newest JAX and with the oldest that will do.
    Python(python::Arguments),
    /// Checks licences, duplicates, sources and advisories of what callbox is built from. Installs cargo-deny the first time.
    Deny,
    /// Runs a random mix of calls from many threads for as long as one likes, and checks that nothing grows.
    Soak(soak::Arguments),
    /// Runs the cases while what the host reads from guests is altered.
    Faults(faults::Arguments),
    /// Measures how long after it is stopped a call has returned. Takes a free machine.
    Latency(latency::Arguments),
    /// Runs the benchmarks and prints their ratios to their baselines.
    Bench(bench::Arguments),
    /// Builds the program that runs suite, faults and measurements on a GPU, with what it needs, to target/gpu-check.
    GpuCheck,
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().task {
        Task::Conformance(arguments) => return conformance::conformance(&arguments),
        Task::Fuzz(arguments) => return fuzz::fuzz(&arguments),
        Task::Soak(arguments) => return soak::soak(&arguments),
        Task::Demo => demo::demo()?,
        Task::Guests => guests::build()?,
        Task::Test => test::test()?,
        Task::Lint(arguments) => lint::lint(&arguments)?,
        Task::Ptx(arguments) => ptx::ptx(&arguments)?,
        Task::Python(arguments) => python::python(&arguments)?,
        Task::Deny => deny::deny()?,
        Task::Faults(arguments) => faults::faults(&arguments)?,
        Task::Latency(arguments) => latency::latency(&arguments)?,
        Task::Bench(arguments) => bench::bench(&arguments)?,
        Task::GpuCheck => gpu_check::gpu_check()?,
    }
    Ok(ExitCode::SUCCESS)
}
