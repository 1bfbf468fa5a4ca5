//! Runs the conformance suite: on the platforms that are there, or on XLA as an oracle for the executor.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::guests;
use crate::process::{built, run, say, shown};
use crate::xla;

/// What `cargo xtask conformance` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The platform to run on. `all` leaves out those that are not there, and says why.
    #[arg(long, value_enum, ignore_case = true, default_value = "Host")]
    platform: Platform,
    /// Takes the stand-in for CUDA's driver, on CUDA: a program on the CPU for machines without a GPU. What it gives is called "CUDA (stand-in)".
    #[arg(long)]
    stand_in: bool,
    /// How guests that reach past their memory are caught, on Host: signals (if left out) or explicit.
    #[arg(long, value_name = "KIND")]
    traps: Option<String>,
    /// What keeps guests apart from callbox, on Host: wasm (if left out), or process for the second wall.
    #[arg(long, value_name = "WALL")]
    isolate: Option<String>,
    /// Runs the cases whose names contain this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Writes a report: data if the file's name ends with .json, a page if it ends with .html. May be given more than once.
    #[arg(long, value_name = "FILE", value_parser = report_file)]
    report: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Platform {
    #[value(name = "Host")]
    Host,
    #[value(name = "CUDA")]
    Cuda,
    #[value(name = "XLA")]
    Xla,
    #[value(name = "all")]
    All,
}

/// Builds guests and runner, and runs the cases. The exit code is the runner's: 0 if nothing failed, 1 if a case did, 2 if nothing was run.
pub(crate) fn conformance(arguments: &Arguments) -> Result<ExitCode> {
    guests::build()?;
    let mut command = runner()?;
    command.arg("--platform").arg(arguments.platform.name());
    if arguments.stand_in {
        command.arg("--stand-in");
    }
    if let Some(traps) = &arguments.traps {
        command.arg("--traps").arg(traps);
    }
    if let Some(wall) = &arguments.isolate {
        command.arg("--isolate").arg(wall);
    }
    if let Some(filter) = &arguments.filter {
        command.arg("--filter").arg(filter);
    }
    for file in &arguments.report {
        // The runner runs in the repository's root, and a person perhaps elsewhere.
        let file = std::path::absolute(file)
            .with_context(|| format!("expected a path, found {}", file.display()))?;
        command.arg("--report").arg(file);
    }
    if matches!(arguments.platform, Platform::Xla | Platform::All) {
        match xla::python() {
            Ok(python) => command.arg("--python").arg(python),
            Err(error) => command.arg("--no-python").arg(format!("{error:#}")),
        };
    }
    say("Running the cases");
    println!("   {}", shown(&command));
    let status = command.status().context("expected to start the runner")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(2)))
}

/// Runs the cases on Host in its other ways: with explicit checks in place of signals, and behind the second wall where that can be had.
pub(crate) fn ways() -> Result<()> {
    say("Running the cases with explicit checks");
    run(runner()?.args(["--traps", "explicit"]))?;
    if cfg!(target_os = "linux") {
        say("Running the cases behind the second wall");
        run(runner()?.args(["--isolate", "process"]))?;
    }
    Ok(())
}

/// Runs the programs without custom calls on XLA where that can be had, and says why where it cannot.
pub(crate) fn oracle() -> Result<()> {
    say("Running programs on XLA, as an oracle for the executor");
    match xla::python() {
        Ok(python) => run(runner()?
            .args(["--platform", "XLA", "--python"])
            .arg(python)),
        Err(error) => {
            println!("   not run: {error:#}");
            Ok(())
        }
    }
}

fn runner() -> Result<Command> {
    built("callbox-conformance")
}

fn report_file(name: &str) -> Result<PathBuf, String> {
    let extension = Path::new(name).extension().and_then(|e| e.to_str());
    match extension {
        Some("json" | "html") => Ok(name.into()),
        _ => Err("expected a name that ends with .json or .html".to_owned()),
    }
}

impl Platform {
    /// As the runner takes it.
    fn name(self) -> &'static str {
        match self {
            Self::Host => "Host",
            Self::Cuda => "CUDA",
            Self::Xla => "XLA",
            Self::All => "all",
        }
    }
}
