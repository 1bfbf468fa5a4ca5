//! Soaks callbox: a random mix of calls, or a million traps, while the process's resources are
//! watched.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use lexopt::Arg::Long;
use lexopt::{Parser, ValueExt};

use crate::guests;
use crate::process::{built, run_for_code, say};

/// Runs `cargo xtask soak`. The exit code is 0 if every call ended as expected and nothing grew, 1
/// if not, and 2 if nothing ran.
pub(crate) fn soak(parser: &mut Parser) -> Result<ExitCode> {
    let mut minutes: Option<u64> = None;
    let mut threads: Option<u32> = None;
    let mut output = OsString::from("target/soak");
    let mut options = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("minutes") => minutes = Some(parser.value()?.parse()?),
            Long("threads") => threads = Some(parser.value()?.parse()?),
            Long("output") => output = parser.value()?,
            // The program checks their values.
            Long(name @ ("trap-cycles" | "seed")) => {
                options.push(OsString::from(format!("--{name}")));
                options.push(parser.value()?);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    ensure!(minutes != Some(0), "--minutes must be at least 1");
    let counts_traps = options.iter().any(|option| option == "--trap-cycles");
    ensure!(
        !counts_traps || (minutes.is_none() && threads.is_none()),
        "--trap-cycles takes neither --minutes nor --threads"
    );
    // The program runs in the repository's root, the caller perhaps elsewhere.
    let output = std::path::absolute(&output)
        .with_context(|| format!("`{}` is not a path", output.display()))?;
    guests::build()?;
    let mut command = built("callbox-soak")?;
    command.args(["--seconds", &(minutes.unwrap_or(10) * 60).to_string()]);
    command.args(["--threads", &threads.unwrap_or(8).to_string()]);
    command.args(options).arg("--output").arg(output);
    say("Soaking");
    run_for_code(&mut command, 2)
}
