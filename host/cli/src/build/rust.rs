//! Kernels in Rust, which cargo builds.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use callbox::Status;
use serde_json::Value;

use super::{Project, tool};
use crate::failure::Outcome;

const WASM: &str = "wasm32-unknown-unknown";

/// Vectors, four of them in each iteration of a loop, and random bytes from the SDK, for crates
/// without a configuration of their own.
const FLAGS: &str = "-Ctarget-feature=+simd128\x1f-Cllvm-args=-force-vector-interleave=4\x1f--cfg=getrandom_backend=\"custom\"";

const MISSING: &str =
    "cargo is missing, which builds kernels in Rust: install Rust from https://rustup.rs";

const MISSING_TARGET: &str = "the standard library for wasm32-unknown-unknown is missing, which \
                              kernels in Rust are compiled for: run \
                              `rustup target add wasm32-unknown-unknown`";

/// Builds the crate for wasm32, and returns the path of its module.
pub(super) fn build(project: &Project) -> Outcome<PathBuf> {
    check_target(project)?;
    let mut command = cargo(project);
    command.args(["build", "--release", "--lib", "--target", WASM]);
    command.arg("--message-format=json-render-diagnostics");
    // The caller's flags would replace those of the crate's configuration.
    command
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    if !project.folder.join(".cargo/config.toml").exists() {
        command.env("CARGO_ENCODED_RUSTFLAGS", FLAGS);
    }
    let failed = format!("cargo did not build {}", project.folder.display());
    let messages = tool::output(&mut command, MISSING, &failed)?;
    let mut modules = messages.lines().filter_map(module);
    // Cargo builds the dependencies first.
    let module = modules.next_back().ok_or_else(|| {
        Status::invalid_argument(
            "expected `crate-type = [\"cdylib\"]` in `[lib]`: no module was built",
        )
        .context(project.folder.join("Cargo.toml").display())
    });
    Ok(module?)
}

/// The module that a message of cargo is about.
fn module(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let files = message.get("filenames")?.as_array()?;
    let mut files = files.iter().filter_map(Value::as_str);
    files
        .find(|file| file.ends_with(".wasm"))
        .map(PathBuf::from)
}

pub(super) fn test(project: &Project) -> Outcome<()> {
    let failed = format!("a native test of {} failed", project.folder.display());
    tool::run(cargo(project).arg("test"), MISSING, &failed)
}

pub(super) fn bench(project: &Project) -> Outcome<Option<String>> {
    if !project.folder.join("benches/native.rs").is_file() {
        return Ok(None);
    }
    let failed = format!(
        "the native benchmark of {} failed",
        project.folder.display()
    );
    let mut command = cargo(project);
    command.args(["bench", "--bench", "native"]);
    tool::output(&mut command, MISSING, &failed).map(Some)
}

fn cargo(project: &Project) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(&project.folder);
    command
}

/// Checks that the compiler has the standard library for wasm32.
fn check_target(project: &Project) -> Outcome<()> {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(&project.folder).stderr(Stdio::null());
    rustc.args(["--print", "target-libdir", "--target", WASM]);
    let missing = MISSING.replace("cargo is", "rustc is");
    let folder = tool::output(&mut rustc, &missing, MISSING_TARGET)?;
    if PathBuf::from(folder.trim()).is_dir() {
        Ok(())
    } else {
        Err(tool::not_found(MISSING_TARGET))
    }
}
