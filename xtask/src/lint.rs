//! Checks formatting, lints and documentation.

use anyhow::Result;
use lexopt::Arg::Long;
use lexopt::Parser;

use crate::process::{cargo, root, run, say};
use crate::toolchain::{TARGET, Toolchain};
use crate::{deny, python};

/// The libraries that users depend on.
const DOCUMENTED: [&str; 11] = [
    "callbox",
    "callbox-abi",
    "callbox-core",
    "callbox-cuda",
    "callbox-guest",
    "callbox-hlo",
    "callbox-maths",
    "callbox-package",
    "callbox-process",
    "callbox-ptx",
    "callbox-wasm",
];

/// Runs `cargo xtask lint`.
pub(crate) fn lint(parser: &mut Parser) -> Result<()> {
    let mut with_deny = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("with-deny") => with_deny = true,
            other => return Err(other.unexpected().into()),
        }
    }
    say("Formatting");
    for folder in [root(), root().join("guests")] {
        run(cargo()
            .current_dir(folder)
            .args(["fmt", "--all", "--check"]))?;
    }
    say("Lints");
    clippy()?;
    python::lint()?;
    say("Documentation");
    document()?;

    if with_deny || deny::is_installed() {
        return deny::deny();
    }
    say("cargo-deny is not installed and does not run: `cargo xtask deny` installs it");
    Ok(())
}

fn clippy() -> Result<()> {
    run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"]))?;
    // Alone, a package lacks the features that the rest of the workspace enables.
    for package in ["callbox", "callbox-cli"] {
        run(cargo()
            .args(["clippy", "--package", package, "--no-default-features"])
            .args(["--lib", "--", "-Dwarnings"]))?;
    }
    let mut clippy = cargo();
    clippy.current_dir(root().join("guests"));
    clippy.args(["clippy", "--release"]);
    match Toolchain::find()? {
        Toolchain::Rustup => _ = clippy.args(["--target", TARGET]),
        Toolchain::Debian => {
            say("Debian's compiler has no clippy: linting the guests natively, without `faults`");
        }
    }
    run(clippy.args(["--", "-Dwarnings"]))
}

fn document() -> Result<()> {
    let mut doc = cargo();
    doc.env("RUSTDOCFLAGS", "-Dwarnings");
    doc.args(["doc", "--no-deps", "--lib", "--all-features"]);
    for package in DOCUMENTED {
        doc.args(["--package", package]);
    }
    run(&mut doc)
}
