//! Measures how long after its deadline, or after it was cancelled, a call has returned.

use anyhow::Result;

use crate::bench::native_cargo;
use crate::process::{run, say};

/// How much is measured.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Kills of each guest in each way.
    #[arg(long, default_value_t = 2000)]
    kills: usize,
    /// Only guests whose names have this in them.
    #[arg(long, default_value = "")]
    filter: String,
}

pub(crate) fn latency(arguments: &Arguments) -> Result<()> {
    say("Stopping calls: figures are good only on a machine that does nothing else meanwhile");
    run(native_cargo()
        .args(["run", "--quiet", "--release"])
        .args(["--package", "callbox-benches", "--bin", "latency", "--"])
        .args([&arguments.kills.to_string(), &arguments.filter]))
}
