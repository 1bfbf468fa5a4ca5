//! Runs compilers and what they have built.

use std::io::{self, Read as _};
use std::process::{Command, Stdio};

use callbox::{Blame, Status, StatusCode};

use crate::failure::{Failure, Outcome};

/// The longest output that is read of a tool.
const MOST_OUTPUT: u64 = 64 << 20;

/// Runs a tool, whose output goes to standard error. `missing` is the message if it does not exist,
/// and `failed` if it fails.
pub(super) fn run(command: &mut Command, missing: &str, failed: &str) -> Outcome<()> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::from(io::stderr()));
    let status = command.status();
    check(
        status.map_err(|error| cannot_start(command, missing, &error))?,
        failed,
    )
}

/// Runs a tool, and returns its standard output.
pub(super) fn output(command: &mut Command, missing: &str, failed: &str) -> Outcome<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn();
    let mut child = child.map_err(|error| cannot_start(command, missing, &error))?;
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let read = stdout.take(MOST_OUTPUT).read_to_end(&mut text);
        read.map_err(|error| cannot_start(command, missing, &error))?;
    }
    let status = child.wait();
    check(
        status.map_err(|error| cannot_start(command, missing, &error))?,
        failed,
    )?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn check(status: std::process::ExitStatus, failed: &str) -> Outcome<()> {
    if status.success() {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("{failed} ({status}): its messages are above")).into())
}

fn cannot_start(command: &Command, missing: &str, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound {
        return not_found(missing);
    }
    let program = command.get_program().display();
    Failure::from(
        Failure::file(format!("expected to run {program}"), error)
            .status()
            .clone(),
    )
}

/// A tool that is missing. The message says for what it is needed and how to get it.
pub(super) fn not_found(message: &str) -> Failure {
    Status::new(StatusCode::NotFound, Blame::Caller, message).into()
}
