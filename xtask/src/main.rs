//! The tasks of this repository: `cargo xtask demo`, `cargo xtask test` and others (`HELP`).
//!
//! Each task prints the commands that it runs, so that they can be run by hand.

#![allow(
    clippy::print_stdout,
    reason = "xtask is a command-line tool: it prints to people and to CI"
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
mod npy;
mod others;
mod process;
mod ptx;
mod python;
mod soak;
mod summary;
mod test;
mod toolchain;
mod venv;
mod wasi;
mod xla;

use std::process::ExitCode;

use anyhow::Result;
use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

const HELP: &str = include_str!("help.txt");

fn main() -> ExitCode {
    match run(&mut Parser::from_env()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the task that the first argument names. Its other arguments are parsed by the task.
fn run(parser: &mut Parser) -> Result<ExitCode> {
    let task = match parser.next()? {
        Some(Value(task)) => task.to_string_lossy().into_owned(),
        Some(Long("help") | Short('h')) | None => "help".to_owned(),
        Some(other) => return Err(other.unexpected().into()),
    };
    if task == "help" || asks_for_help(parser) {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    match task.as_str() {
        "demo" => no_options(parser).and_then(|()| demo::demo())?,
        "guests" => no_options(parser).and_then(|()| guests::build())?,
        "test" => return no_options(parser).and_then(|()| test::test()),
        "conformance" => return conformance::conformance(parser),
        "fuzz" => return fuzz::fuzz(parser),
        "soak" => return soak::soak(parser),
        "lint" => lint::lint(parser)?,
        "ptx" => ptx::ptx(parser)?,
        "python" => python::python(parser)?,
        "deny" => no_options(parser).and_then(|()| deny::deny())?,
        "faults" => faults::faults(parser)?,
        "others" => no_options(parser).and_then(|()| others::show())?,
        "latency" => latency::latency(parser)?,
        "bench" => bench::bench(parser)?,
        "gpu-check" => no_options(parser).and_then(|()| gpu_check::gpu_check())?,
        _ => anyhow::bail!("there is no task `{task}`; `cargo xtask --help` lists the tasks"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a task's arguments ask for help. What comes after `--` belongs to another program.
fn asks_for_help(parser: &mut Parser) -> bool {
    let Some(rest) = parser.try_raw_args() else {
        return false;
    };
    let mut options = rest.as_slice().iter().take_while(|word| *word != "--");
    options.any(|word| word == "--help" || word == "-h")
}

fn no_options(parser: &mut Parser) -> Result<()> {
    match parser.next()? {
        Some(argument) => Err(argument.unexpected().into()),
        None => Ok(()),
    }
}
