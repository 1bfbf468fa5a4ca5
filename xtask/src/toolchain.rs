//! Finds a compiler for wasm32: the rustup toolchain with its target, or else Debian's.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{cargo, root, run, say, succeeds};

/// The target that guests are compiled for.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// Debian's compiler, its standard library's source and a linker.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "rust-web-src", "lld-19"];

/// Where Debian's compiler is. A rustup toolchain may hide it on the PATH.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// How guests are compiled on this machine.
pub(crate) enum Toolchain {
    /// With the toolchain of `rust-toolchain.toml` and its standard library for the target.
    Rustup,
    /// With Debian's compiler, which compiles the standard library from source.
    Debian,
}

impl Toolchain {
    /// Finds a toolchain. Installs what is missing.
    pub(crate) fn find() -> Result<Self> {
        if has_target() {
            return Ok(Self::Rustup);
        }
        say(&format!("Adding the target {TARGET}"));
        let added = run(Command::new("rustup")
            .args(["target", "add", TARGET])
            .current_dir(root()));
        if added.is_ok() && has_target() {
            return Ok(Self::Rustup);
        }
        say("rustup cannot add the target: using Debian's compiler");
        if !has_debian_compiler() {
            let packages = DEBIAN_PACKAGES.join(" ");
            install(&DEBIAN_PACKAGES)
                .and_then(|()| {
                    ensure!(
                        has_debian_compiler(),
                        "the installed compiler does not work"
                    );
                    Ok(())
                })
                .with_context(|| {
                    format!(
                        "a Rust compiler for {TARGET} is missing, which compiles the guests: run \
                         `rustup target add {TARGET}`, or install {packages} (Debian, Ubuntu)"
                    )
                })?;
        }
        Ok(Self::Debian)
    }

    /// A cargo command that builds guests in release mode.
    pub(crate) fn build(&self) -> Command {
        let mut command = cargo();
        command.current_dir(root().join("guests"));
        // The caller's flags would replace those of guests/.cargo/config.toml.
        command
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        command.args(["build", "--release", "--target", TARGET]);
        if matches!(self, Self::Debian) {
            command
                .env("RUSTC", DEBIAN_RUSTC)
                .env("RUSTC_BOOTSTRAP", "1")
                .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld-19")
                .arg("-Zbuild-std=std,panic_abort");
        }
        command
    }
}

/// Whether the toolchain has the target's standard library.
fn has_target() -> bool {
    let mut rustc = Command::new("rustc");
    rustc
        .current_dir(root())
        .args(["--print", "target-libdir", "--target", TARGET]);
    rustc.output().is_ok_and(|output| {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        output.status.success() && folder.is_dir()
    })
}

fn has_debian_compiler() -> bool {
    Path::new(DEBIAN_RUSTC).is_file() && succeeds(Command::new("wasm-ld-19").arg("--version"))
}

/// Installs Debian packages, by sudo unless this runs as root. Updates the package lists if that
/// fails, and tries again.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let install = || {
        run(apt_get()
            .args(["install", "--yes", "--no-install-recommends"])
            .args(packages))
    };
    install().or_else(|_| {
        run(apt_get().arg("update"))?;
        install()
    })
}

/// apt-get with the rights that it needs. sudo must not ask for a password: CI cannot answer.
fn apt_get() -> Command {
    let id = Command::new("id").arg("-u").output();
    if id.is_ok_and(|id| id.stdout.trim_ascii() == b"0") {
        return Command::new("apt-get");
    }
    let mut command = Command::new("sudo");
    command.args(["--non-interactive", "apt-get"]);
    command
}
