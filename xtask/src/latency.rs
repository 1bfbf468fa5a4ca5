//! Measures how soon a call returns after its deadline, or after it was cancelled.

use anyhow::Result;
use lexopt::Arg::Long;
use lexopt::{Parser, ValueExt};

use crate::bench::native_cargo;
use crate::process::{run, say};

/// Runs `cargo xtask latency`.
pub(crate) fn latency(parser: &mut Parser) -> Result<()> {
    let mut kills: u32 = 2000;
    let mut filter = String::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("kills") => kills = parser.value()?.parse()?,
            Long("filter") => filter = parser.value()?.string()?,
            other => return Err(other.unexpected().into()),
        }
    }
    say("Stopping calls: figures are valid only on an idle machine");
    run(native_cargo()
        .args(["run", "--quiet", "--release"])
        .args(["--package", "callbox-benches", "--bin", "latency", "--"])
        .args([&kills.to_string(), &filter]))
}
