//! Finds a way to compile for wasm32: the rustup target, or else Debian's compiler.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{cargo, root, run, say, succeeds};

/// The target that guests are compiled for.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// Debian's compiler, its standard library's source and a linker: what builds guests where rustup cannot add the target.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "rust-web-src", "lld-19"];

/// How guests are compiled here.
pub(crate) enum Toolchain {
    /// With the toolchain of `rust-toolchain.toml` and its own standard library.
    Rustup,
    /// With Debian's compiler, which builds the standard library from source.
    Debian(PathBuf),
}

impl Toolchain {
    /// Finds a toolchain, and installs what is missing.
    pub(crate) fn find() -> Result<Self> {
        if has_target() {
            return Ok(Self::Rustup);
        }
        say(&format!("The target {TARGET} is not installed: adding it"));
        let added = run(Command::new("rustup")
            .args(["target", "add", TARGET])
            .current_dir(root()));
        if added.is_ok() && has_target() {
            return Ok(Self::Rustup);
        }
        say("rustup could not add it: using Debian's compiler");
        debian()
    }

    /// A cargo command that builds guests in release mode.
    pub(crate) fn build(&self) -> Command {
        let mut command = cargo();
        command.current_dir(root().join("guests"));
        // Flags from outside would take the place of guests/.cargo/config.toml's.
        command
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        command.args(["build", "--release", "--target", TARGET]);
        if let Self::Debian(rustc) = self {
            command
                .env("RUSTC", rustc)
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
    let Ok(output) = rustc.output() else {
        return false;
    };
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    output.status.success() && folder.is_dir()
}

fn debian() -> Result<Toolchain> {
    // Debian's place for it: a rustup toolchain may hide it on the path.
    let rustc = PathBuf::from("/usr/bin/rustc");
    let installed =
        |rustc: &PathBuf| rustc.is_file() && succeeds(Command::new("wasm-ld-19").arg("--version"));
    if !installed(&rustc) {
        install(&DEBIAN_PACKAGES).with_context(|| {
            format!(
                "expected either `rustup target add {TARGET}` or `apt-get install {}` to work",
                DEBIAN_PACKAGES.join(" ")
            )
        })?;
    }
    if !installed(&rustc) {
        bail!(
            "expected {} and wasm-ld-19 from Debian's packages {}",
            rustc.display(),
            DEBIAN_PACKAGES.join(", ")
        );
    }
    Ok(Toolchain::Debian(rustc))
}

/// Installs packages of Debian's or Ubuntu's, by sudo where this does not run as root. The lists of packages are fetched anew if it fails without.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let install = || {
        run(apt_get()
            .args(["install", "--yes", "--no-install-recommends"])
            .args(packages))
    };
    if install().is_ok() {
        return Ok(());
    }
    run(apt_get().arg("update"))?;
    install()
}

/// apt-get with the rights that it needs. sudo must not ask for a password: nobody may be there.
fn apt_get() -> Command {
    let is_root = Command::new("id").arg("-u").output();
    if is_root.is_ok_and(|id| id.stdout.trim_ascii() == b"0") {
        return Command::new("apt-get");
    }
    let mut command = Command::new("sudo");
    command.args(["--non-interactive", "apt-get"]);
    command
}
