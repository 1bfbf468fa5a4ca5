//! Checks dependencies with cargo-deny, by the rules in `deny.toml`: licences, duplicates, sources,
//! and advisories if RustSec's database can be fetched.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::process::{cargo, command_line, root, run, say, succeeds};

/// The release that is installed. Others may have other rules.
const VERSION: &str = "0.20.2";

/// The workspaces with a lock file of their own.
const WORKSPACES: [&str; 3] = [
    "Cargo.toml",
    "guests/Cargo.toml",
    "tests/fuzz/libfuzzer/Cargo.toml",
];

/// Checks all workspaces. Installs cargo-deny if it is missing.
pub(crate) fn deny() -> Result<()> {
    if !is_installed() {
        say("Installing cargo-deny to target/tools: this takes minutes, once");
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
    say("Licences, duplicates and sources");
    for manifest in WORKSPACES {
        // One workspace needs exemptions that another does not. tests/tests/tree/supply_chain.rs
        // finds those that no workspace needs.
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
    advisories()
}

/// Whether cargo-deny is installed, in the right release.
pub(crate) fn is_installed() -> bool {
    let version = Command::new(program()).arg("--version").output();
    version.is_ok_and(|output| {
        let version = String::from_utf8_lossy(&output.stdout);
        version.trim().ends_with(VERSION)
    })
}

/// Checks advisories. Without the database it says so and succeeds.
fn advisories() -> Result<()> {
    say("Advisories");
    let mut fetch = tool("Cargo.toml");
    fetch.args(["fetch", "db"]);
    if !succeeds(&mut fetch) {
        println!("   not checked: `{}` failed", command_line(&fetch));
        return Ok(());
    }
    let mut failed = WORKSPACES.to_vec();
    failed.retain(|manifest| run(tool(manifest).args(["check", "advisories"])).is_err());
    ensure!(
        failed.is_empty(),
        "there are advisories against dependencies of {failed:?}"
    );
    Ok(())
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
