//! Runs the conformance suite: on the available platforms, or on XLA as an oracle for the executor.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use lexopt::Arg::Long;
use lexopt::{Parser, ValueExt};

use crate::process::{built, run_for_code, run_tests, say};
use crate::summary::{Counts, Outcome};
use crate::{guests, xla};

/// Runs `cargo xtask conformance`. The exit code is the runner's: 0 if no case failed, 1 if one
/// did, and 2 if none ran.
pub(crate) fn conformance(parser: &mut Parser) -> Result<ExitCode> {
    let mut platform = "Host".to_owned();
    let mut options = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("platform") => platform = parser.value()?.string()?,
            Long("stand-in") => options.push("--stand-in".into()),
            // The runner checks their values.
            Long(name @ ("traps" | "isolate" | "filter")) => {
                options.push(format!("--{name}").into());
                options.push(parser.value()?);
            }
            Long("report") => {
                let file = parser.value()?;
                // The runner runs in the repository's root, the caller perhaps elsewhere.
                let absolute = std::path::absolute(&file)
                    .with_context(|| format!("`{}` is not a path", file.display()))?;
                options.extend(["--report".into(), absolute.into()]);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    guests::build()?;
    let mut command = runner()?;
    command.args(["--platform", &platform]).args(options);
    if ["xla", "all"].contains(&platform.to_lowercase().as_str()) {
        match xla::python() {
            Ok(python) => command.arg("--python").arg(python),
            Err(error) => command.arg("--no-python").arg(format!("{error:#}")),
        };
    }
    say("Running the cases");
    run_for_code(&mut command, 2)
}

/// Runs the cases on Host with explicit checks instead of signals.
pub(crate) fn with_explicit_checks(counts: &mut Counts) -> Result<Outcome> {
    run_tests(runner()?.args(["--traps", "explicit"]), counts)?;
    Ok(Outcome::Ran)
}

/// Runs the cases on Host with guests in processes of their own.
pub(crate) fn in_processes(counts: &mut Counts) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::NotRun("worker processes need Linux".to_owned()));
    }
    run_tests(runner()?.args(["--isolate", "process"]), counts)?;
    Ok(Outcome::Ran)
}

/// Runs the programs without custom calls on XLA.
pub(crate) fn on_xla(counts: &mut Counts) -> Result<Outcome> {
    let python = match xla::python() {
        Ok(python) => python,
        Err(error) => return Ok(Outcome::NotRun(format!("{error:#}"))),
    };
    run_tests(
        runner()?
            .args(["--platform", "XLA", "--python"])
            .arg(python),
        counts,
    )?;
    Ok(Outcome::Ran)
}

fn runner() -> Result<Command> {
    built("callbox-conformance")
}
