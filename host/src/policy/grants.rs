//! Grants: what of the machine a target may reach.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::values::{Blame, Result, Status, StatusCode};

/// What of the machine a target may reach. The default is nothing: a module that imports anything but the FFI API table is then refused
/// when it is loaded.
///
/// A grant is good for one loaded module ([`Engine::load_with`](crate::wasm::Engine::load_with)), whose targets share a memory.
/// To give one target of a file more than another, load the file twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// The SHA-256 that the module must have, in hexadecimal. `None`: any module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Directories of the host, by WASI preview 1: what is in them, and nothing to which `..`, an absolute path or a symbolic link leads
    /// out of them. FIFOs, sockets and devices in them are not opened, for the host would wait for them. A call that waits for a disk or a
    /// network file system is stopped only after that. How much is written is not limited.
    pub directories: Vec<Directory>,
    /// The time of day and a monotonic clock, by WASI preview 1. Not under a deterministic policy.
    pub clock: bool,
    /// Random bytes, by WASI preview 1.
    pub randomness: Option<Randomness>,
    /// The least important log messages that the embedder hears of. `None`: no log message. What a guest writes to its standard output is a
    /// message at [`LogLevel::Info`] for each line, to its standard error one at [`LogLevel::Warn`].
    pub log: Option<LogLevel>,
}

impl Grants {
    /// Nothing but log messages, down to this level.
    #[must_use]
    pub fn log(level: LogLevel) -> Self {
        Self {
            log: Some(level),
            ..Self::default()
        }
    }

    /// Checks that the module of this digest is the one that the grants are for.
    ///
    /// # Errors
    /// PERMISSION_DENIED, the caller's doing, if they want another.
    pub fn check_digest(&self, sha256: &str) -> Result<()> {
        match &self.sha256 {
            Some(expected) if !expected.eq_ignore_ascii_case(sha256) => Err(Status::new(
                StatusCode::PermissionDenied,
                Blame::Caller,
                format!(
                    "expected the module to have the SHA-256 {expected} that the policy names, found {sha256}"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Whether anything of WASI preview 1 is granted.
    #[must_use]
    pub fn any_wasi(&self) -> bool {
        !self.directories.is_empty() || self.clock || self.randomness.is_some()
    }
}

/// A directory of the host that a target may reach, and nothing outside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// The directory on the host, opened when the module is loaded.
    pub path: PathBuf,
    /// The path by which the guest knows it: `/data`. No other directory of the same grants has it.
    pub name: String,
    /// What may be done there.
    #[serde(default)]
    pub access: Access,
}

/// What may be done in a directory.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reading.
    #[default]
    Read,
    /// Reading, writing, making and removing. Times of files that it writes tell it the time of day.
    ReadWrite,
}

/// Where a target's random bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Randomness {
    /// The operating system. Not under a deterministic policy.
    System,
    /// A generator that each instance begins anew from this seed: SHA-256, the same bytes on every machine.
    Seed(u64),
}

/// How important a guest's log message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What a user wants to know.
    Info,
    /// What an author wants to know.
    Debug,
    /// Every step.
    Trace,
}

impl LogLevel {
    /// All levels, in the order of their numbers in `log-level`.
    pub const ALL: [Self; 5] = [
        Self::Error,
        Self::Warn,
        Self::Info,
        Self::Debug,
        Self::Trace,
    ];

    /// The name: `warn`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// The level with this number in `log-level`.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The level with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
