//! `callbox-soak`: a random mix of calls from many threads, or a million traps, while it samples
//! the resources of the process. `cargo xtask soak` builds what it needs and runs it.
#![allow(
    clippy::print_stdout,
    reason = "a command-line program prints its results"
)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use callbox_tests::soak::{self, Options, Report};
use clap::Parser;

/// Soaks callbox.
///
/// The exit code is 0 if every call ended as expected and nothing grew, 1 if not, and 2 if nothing
/// could run.
#[derive(Parser)]
struct Arguments {
    /// Duration of the mix, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Run this many traps on one call site, each followed by healthy calls, instead of the mix.
    #[arg(long, value_name = "N")]
    trap_cycles: Option<u64>,
    /// Number of calling threads.
    #[arg(long, value_name = "T", default_value_t = 8)]
    threads: usize,
    /// Seed of the threads' random choices. Without it, a seed is drawn and printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Include only the cases whose names contain this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    cases: String,
    /// Folder for soak.json, soak.md and soak.svg, or trap-cycles.json and so on.
    #[arg(long, value_name = "DIR", default_value = "target/soak")]
    output: PathBuf,
}

/// The environment variable that limits the number of glibc's malloc arenas.
///
/// glibc keeps up to eight arenas per processor, and each keeps the memory of the largest
/// compilation that ran in it. Resident memory then rises for many minutes although nothing leaks.
/// With one arena, a rise is a leak.
const ARENAS: &str = "MALLOC_ARENA_MAX";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if env::var_os(ARENAS).is_none() {
        return again_with_one_arena();
    }
    let report = run(&arguments);
    match report {
        Ok(report) if report.is_good() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs this command again with the variable set. glibc reads it only at the start of a process.
fn again_with_one_arena() -> ExitCode {
    let status = env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1)).env(ARENAS, "1");
        command.status()
    });
    match status.map(|status| status.code()) {
        Ok(Some(0)) => ExitCode::SUCCESS,
        Ok(Some(1)) => ExitCode::from(1),
        Ok(_) => ExitCode::from(2),
        Err(error) => {
            eprintln!("error: cannot restart with one malloc arena: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<Report> {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let time = Duration::from_secs(arguments.seconds);
    let options = Options {
        cases: arguments.cases.clone(),
        ..Options::new(seed, arguments.threads, time)
    };
    let (name, report) = match arguments.trap_cycles {
        Some(count) => ("trap-cycles", soak::cycles(count, &options)?),
        None => ("soak", soak::run(&options)?),
    };
    println!("{}", report.table());
    fs::create_dir_all(&arguments.output)
        .with_context(|| format!("cannot create {}", arguments.output.display()))?;
    let data = serde_json::to_string(&report)? + "\n";
    write(&arguments.output.join(name).with_extension("json"), &data)?;
    write(
        &arguments.output.join(name).with_extension("md"),
        &report.table(),
    )?;
    write(
        &arguments.output.join(name).with_extension("svg"),
        &soak::plot(&report),
    )?;
    Ok(report)
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    println!("wrote {}", file.display());
    Ok(())
}
