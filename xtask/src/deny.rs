//! Checks the crates that this repository is built from with cargo-deny: licences, duplicates, sources, and advisories where RustSec's
//! database can be had. The rules are in `deny.toml`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::process::{cargo, root, run, say, shown, succeeds};

/// The release that is installed. Another one may have other rules.
const VERSION: &str = "0.20.2";

/// The workspaces, each with a lock file of its own.
const WORKSPACES: [&str; 3] = [
    "Cargo.toml",
    "guests/Cargo.toml",
    "tests/fuzz/libfuzzer/Cargo.toml",
];

/// Installs cargo-deny if it is not there, which takes some minutes, and checks all workspaces.
pub(crate) fn deny() -> Result<()> {
    if !is_installed() {
        say("Installing cargo-deny to target/tools: this takes some minutes, once");
        run(cargo()
            .args([
                "install",
                "cargo-deny",
                "--version",
                VERSION,
                "--locked",
                "--root",
            ])
            .arg(root().join("target/tools")))?;
    }
    let manifests: Vec<&str> = WORKSPACES
        .into_iter()
        .filter(|manifest| root().join(manifest).exists())
        .collect();
    say("Licences, duplicates and sources");
    for manifest in &manifests {
        // An exemption that one workspace needs is none of another's. The test of the lock files finds those that nobody needs.
        run(tool(manifest).args([
            "check",
            "--allow",
            "unmatched-skip",
            "--allow",
            "unnecessary-skip",
            "licenses",
            "bans",
            "sources",
        ]))?;
    }
    advisories(&manifests)
}

/// Whether the release that is wanted is there.
pub(crate) fn is_installed() -> bool {
    let version = Command::new(program()).arg("--version").output();
    version.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout)
            .trim()
            .ends_with(VERSION)
    })
}

/// Checks advisories. Without the database nothing is checked, and that is said.
fn advisories(manifests: &[&str]) -> Result<()> {
    say("Advisories");
    let mut fetch = tool("Cargo.toml");
    fetch.args(["fetch", "db"]);
    if !succeeds(&mut fetch) {
        println!("   not checked: no database (`{}` failed)", shown(&fetch));
        return Ok(());
    }
    let mut failed = Vec::new();
    for manifest in manifests {
        if run(tool(manifest).args(["check", "advisories"])).is_err() {
            failed.push(*manifest);
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("expected no advisories against what is used, found some: {failed:?}"),
    }
}

/// cargo-deny, for the workspace of this manifest.
fn tool(manifest: &str) -> Command {
    let mut command = Command::new(program());
    command
        .current_dir(root())
        .args(["--manifest-path", manifest, "--config", "deny.toml"]);
    command
}

fn program() -> PathBuf {
    root().join("target/tools/bin/cargo-deny")
}
