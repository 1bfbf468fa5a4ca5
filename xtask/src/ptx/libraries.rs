//! Compiles the libraries of `guests/cuda`: targets of the C ABI, for this machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::clang::{Clang, sources};
use crate::process::{root, run, say};

/// The folder of the sources and their header.
const SOURCES: &str = "guests/cuda";

/// Compiles each `guests/cuda/NAME.c` to `target/guests/NAME.so`, without CUDA and its headers.
///
/// # Errors
/// A source does not compile.
pub(crate) fn build(clang: &Clang) -> Result<()> {
    say("Building the CUDA targets of the C ABI");
    fs::create_dir_all(root().join("target/guests")).context("cannot make target/guests")?;
    for source in sources(SOURCES, &["c"])? {
        let library = source.with_extension("so");
        let library = Path::new("target/guests").join(library.file_name().unwrap_or_default());
        let mut command = Command::new(clang.program());
        command.current_dir(root());
        command.args(["-std=c23", "-O2", "-fPIC", "-shared"]);
        command.args(["-Wall", "-Wextra", "-Werror"]);
        // Each library has its own status table and calls its own functions, even if other loaded
        // libraries have functions of the same names.
        command.arg("-Wl,-Bsymbolic,-z,defs");
        run(command.arg(&source).arg("-o").arg(&library))?;
    }
    Ok(())
}
