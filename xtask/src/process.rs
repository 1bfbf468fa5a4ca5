//! Runs other programs. Each command line is printed first.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::summary::Counts;
use crate::{faults, python};

/// The repository's root: the folder above this crate's.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The cargo that runs this, in the repository's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Prints the heading of a step.
pub(crate) fn say(text: &str) {
    println!("\n== {text}");
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    ensure!(
        status.success(),
        "`{}` ended with {status}",
        command_line(command)
    );
    Ok(())
}

/// Runs a command for its exit code. A command that a signal ends has `without`.
pub(crate) fn run_for_code(command: &mut Command, without: u8) -> Result<ExitCode> {
    let code = status(command)?.code();
    Ok(ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(without),
    ))
}

/// Runs tests that must pass, and counts them by their output, which is shown as it comes.
pub(crate) fn run_tests(command: &mut Command, counts: &mut Counts) -> Result<()> {
    println!("   {}", command_line(command));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| cannot_start(command))?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            counts.add_line(&String::from_utf8_lossy(&line));
            let mut out = std::io::stdout().lock();
            out.write_all(&line)?;
            out.write_all(b"\n")?;
        }
    }
    let status = child.wait()?;
    ensure!(
        status.success(),
        "`{}` ended with {status}",
        command_line(command)
    );
    if counts.total() == 0 {
        bail!("`{}` ran no tests", command_line(command));
    }
    Ok(())
}

fn status(command: &mut Command) -> Result<ExitStatus> {
    println!("   {}", command_line(command));
    command.status().with_context(|| cannot_start(command))
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start {}", command.get_program().display())
}

/// A program of the workspace's tests, built with all other tests: on its own it would get other
/// features of some dependencies, and wasmtime would be compiled twice.
pub(crate) fn built(program: &str) -> Result<Command> {
    say(&format!("Building {program}"));
    run(workspace_tests().args(["--no-run", "--quiet"]))?;
    Ok(debug_program(program))
}

/// A program that is already built.
pub(crate) fn debug_program(name: &str) -> Command {
    let mut command = Command::new(root().join("target/debug").join(name));
    command.current_dir(root());
    command
}

/// The tests of all packages but two: fault injection, whose feature must not reach the others, and
/// Python's, which maturin builds.
pub(crate) fn workspace_tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    command.args(["--exclude", faults::PACKAGE]);
    command.args(["--exclude", python::PACKAGE]);
    command
}

/// Whether a command succeeds. Its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A command as a person would type it.
pub(crate) fn command_line(command: &Command) -> String {
    let program = command.get_program();
    let name = Path::new(program).file_name().unwrap_or(program);
    let words = std::iter::once(name).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
