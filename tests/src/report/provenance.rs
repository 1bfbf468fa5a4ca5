//! The date, commit and machine of a run.

use std::process::Command;
use std::{env, fs, thread};

use serde::Serialize;

use crate::date;
use crate::module::repository;

/// The time and place of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Provenance {
    /// The start of the run, in UTC.
    pub date: String,
    /// The commit, with `-dirty` if the working tree has changes. Empty outside a repository.
    pub commit: String,
    /// The system, the processor and the number of processors.
    pub machine: String,
}

impl Provenance {
    /// Describes this machine and the repository's current state.
    #[must_use]
    pub fn now() -> Self {
        Self {
            date: date::now(),
            commit: commit().unwrap_or_default(),
            machine: machine(),
        }
    }
}

fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12"]);
    let output = git.current_dir(repository()).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| commit.trim().to_owned())
}

fn machine() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name.trim());
    let count = thread::available_parallelism().map_or(1, usize::from);
    let system = [env::consts::OS, release.trim(), env::consts::ARCH].join(" ");
    format!("{system}, {count} x {processor}")
}
