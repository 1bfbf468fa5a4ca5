//! What a change must pass besides its tests.

use anyhow::Result;

use crate::process::{cargo, root, run, say};
use crate::toolchain::{TARGET, Toolchain};

pub(crate) fn lint() -> Result<()> {
    let guests = root().join("guests");
    say("Formatting");
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo()
        .current_dir(&guests)
        .args(["fmt", "--all", "--check"]))?;

    say("Lints");
    run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"]))?;
    // The library without what only the command line needs.
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
    ]))
}
