//! What a change must pass besides its tests.

use anyhow::Result;

use crate::deny;
use crate::process::{cargo, root, run, say};
use crate::python;
use crate::toolchain::{TARGET, Toolchain};

/// What `cargo xtask lint` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Also runs cargo-deny where it has to be installed first, which takes some minutes. Where it is there it is run in any case.
    #[arg(long)]
    with_deny: bool,
}

pub(crate) fn lint(arguments: &Arguments) -> Result<()> {
    let guests = root().join("guests");
    say("Formatting");
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo()
        .current_dir(&guests)
        .args(["fmt", "--all", "--check"]))?;

    say("Lints");
    // With the feature of callbox that is for faults, and then the library without what only the command line needs.
    run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"]))?;
    run(cargo().args([
        "clippy",
        "--package",
        "callbox",
        "--no-default-features",
        "--lib",
        "--",
        "-Dwarnings",
    ]))?;
    let mut clippy = cargo();
    clippy.current_dir(&guests).args(["clippy", "--release"]);
    match Toolchain::find()? {
        Toolchain::Rustup => {
            clippy.args(["--target", TARGET]);
        }
        Toolchain::Debian(_) => {
            say("Debian's compiler has no clippy: the guests are linted natively, without `faults`")
        }
    }
    run(clippy.args(["--", "-Dwarnings"]))?;

    python::lint()?;

    say("Documentation");
    let mut doc = cargo();
    doc.env("RUSTDOCFLAGS", "-Dwarnings");
    run(doc.args([
        "doc",
        "--no-deps",
        "--package",
        "callbox",
        "--package",
        "callbox-guest",
        "--lib",
    ]))?;

    match arguments.with_deny || deny::is_installed() {
        true => deny::deny(),
        false => {
            say(
                "cargo-deny is not run: `cargo xtask deny` installs it. tests/supply_chain.rs checks what needs no tool",
            );
            Ok(())
        }
    }
}
