//! Runs other programs, shown before they run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{faults, python};

/// The repository's root: the folder above this crate's.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The cargo that runs this.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Says what a step is for.
pub(crate) fn say(text: &str) {
    println!("\n== {text}");
}

/// Runs a command, and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("   {}", shown(command));
    let status = command
        .status()
        .with_context(|| format!("expected to start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("`{}` ended with {status}", shown(command));
    }
    Ok(())
}

/// One of the tests' programs, built. With all tests, because alone it would be built with other features of some dependencies, and then
/// wasmtime twice.
pub(crate) fn built(program: &str) -> Result<Command> {
    say(&format!("Building {program}"));
    run(tests().args(["--no-run", "--quiet"]))?;
    let mut command = Command::new(root().join("target/debug").join(program));
    command.current_dir(root());
    Ok(command)
}

/// The tests of all packages but that of the faults, whose feature of callbox the others must not have, and that for Python, which maturin builds.
pub(crate) fn tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace", "--exclude", faults::PACKAGE]);
    command.args(["--exclude", python::PACKAGE]);
    command
}

/// Whether a command runs and succeeds, its output unseen.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
