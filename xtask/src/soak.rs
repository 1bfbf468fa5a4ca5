//! Soaks callbox: a random mix of calls, or a million traps, while what the process has is watched.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::guests;
use crate::process::{built, say, shown};

/// What `cargo xtask soak` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How long the mix goes on.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// In place of the mix: this many traps on one call site, each followed by healthy calls.
    #[arg(long, value_name = "N", conflicts_with_all = ["minutes", "threads"])]
    trap_cycles: Option<u64>,
    /// Threads that call.
    #[arg(long, value_name = "T", default_value_t = 8)]
    threads: usize,
    /// What threads do follows from this. Without it: a number that is drawn and printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where the report is written, as data, a table and a plot.
    #[arg(long, value_name = "DIR", default_value = "target/soak")]
    output: PathBuf,
}

/// Builds guests and program, and runs it. The exit code is the program's: 0 if every call ended as it had to and nothing grew, 1 if not,
/// and 2 if nothing could be run.
pub(crate) fn soak(arguments: &Arguments) -> Result<ExitCode> {
    guests::build()?;
    let mut command = built("callbox-soak")?;
    command.args(["--seconds", &(arguments.minutes * 60).to_string()]);
    command.args(["--threads", &arguments.threads.to_string()]);
    if let Some(cycles) = arguments.trap_cycles {
        command.args(["--trap-cycles", &cycles.to_string()]);
    }
    if let Some(seed) = arguments.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    // The program runs in the repository's root, and a person perhaps elsewhere.
    let output = std::path::absolute(&arguments.output)
        .with_context(|| format!("expected a path, found {}", arguments.output.display()))?;
    command.arg("--output").arg(output);
    say("Soaking");
    println!("   {}", shown(&command));
    status(&mut command)
}

fn status(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("expected to start the soak")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(2)))
}
