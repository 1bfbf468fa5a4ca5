//! Compiles the libraries of `guests/cuda`: targets of the C ABI, for the machine that this runs on.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{root, run, say, succeeds};

/// Names a clang to take instead of those on the path.
const VARIABLE: &str = "CALLBOX_CLANG";

/// Clangs that know `#embed`, in the order in which they are tried.
const PROGRAMS: [&str; 5] = ["clang-19", "clang-20", "clang-21", "clang-22", "clang"];

/// Where the sources and their header are.
const SOURCES: &str = "guests/cuda";

/// Compiles each `guests/cuda/NAME.c` to `target/guests/NAME.so`. It takes neither CUDA nor its headers.
///
/// # Errors
/// No clang, or a source that does not compile.
pub(crate) fn build() -> Result<()> {
    let clang = clang()?;
    say("Building the CUDA targets of the C ABI");
    fs::create_dir_all(root().join("target/guests")).context("expected to make target/guests")?;
    for source in sources()? {
        let library = source.with_extension("so");
        let library = PathBuf::from("target/guests").join(library.file_name().unwrap_or_default());
        let mut command = Command::new(&clang);
        command.current_dir(root());
        command.args(["-std=c23", "-O2", "-fPIC", "-shared"]);
        command.args(["-Wall", "-Wextra", "-Werror"]);
        // Each library has a status table of its own, and calls its own functions, whichever others are loaded.
        command.arg("-Wl,-Bsymbolic,-z,defs");
        run(command.arg(&source).arg("-o").arg(&library))?;
    }
    Ok(())
}

/// A clang that compiles C23.
fn clang() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os(VARIABLE) {
        return Ok(program.into());
    }
    let mut programs = PROGRAMS.into_iter();
    match programs.find(|program| succeeds(Command::new(program).arg("--version"))) {
        Some(program) => Ok(program.into()),
        None => bail!(
            "expected a clang: install clang-19 (Debian, Ubuntu), or say where one is in {VARIABLE}"
        ),
    }
}

/// The sources, by name. Paths begin at the repository's root.
fn sources() -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    let entries = fs::read_dir(root().join(SOURCES))
        .with_context(|| format!("expected to read {SOURCES}"))?;
    for entry in entries {
        let path = PathBuf::from(SOURCES).join(entry?.file_name());
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}
