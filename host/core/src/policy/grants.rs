//! Grants: access to the machine.

use std::path::PathBuf;

use callbox_abi::LogLevel;
use serde::{Deserialize, Serialize};

use crate::values::{Blame, Result, Status, StatusCode};

/// A target's access to the machine.
///
/// The default grants only mathematics, which has no access to anything but the guest's memory: a
/// module that imports more than the FFI API table and mathematics is refused when it is loaded.
/// Grants belong to one loaded module (`callbox_wasm::Engine::load_with`), whose targets share a
/// memory. To grant one target of a file more than another, load the file twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// The SHA-256 that the module must have, in hexadecimal; `None` allows all modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Directories of the host, through WASI preview 1.
    ///
    /// Paths cannot leave a directory through `..`, absolute paths or symbolic links. FIFOs,
    /// sockets and devices are refused, because opening one may block the host, and nothing
    /// interrupts a host call. Likewise, a call that waits for a disk or a network file system is
    /// interrupted only afterwards. The amount of data written is not limited.
    #[serde(deserialize_with = "crate::json::objects")]
    pub directories: Vec<Directory>,
    /// The time of day and a monotonic clock, through WASI preview 1. Not allowed in a
    /// deterministic policy.
    pub clock: bool,
    /// Random bytes, through WASI preview 1.
    pub randomness: Option<Randomness>,
    /// The least important log messages that reach the embedder's sink; `None` discards all.
    ///
    /// Each line of a guest's standard output is a message at [`LogLevel::Info`], each line of its
    /// standard error one at [`LogLevel::Warn`].
    pub log: Option<LogLevel>,
    /// Mathematics on arrays in the guest's memory, computed by the host: `callbox:ffi/maths`.
    /// Granted by default.
    pub maths: bool,
}

impl Default for Grants {
    fn default() -> Self {
        Self {
            sha256: None,
            directories: Vec::new(),
            clock: false,
            randomness: None,
            log: None,
            maths: true,
        }
    }
}

impl Grants {
    /// Grants only log messages, down to this level.
    #[must_use]
    pub fn log(level: LogLevel) -> Self {
        Self {
            log: Some(level),
            ..Self::default()
        }
    }

    /// Checks that the grants apply to the module with this digest.
    ///
    /// # Errors
    /// PERMISSION_DENIED, blamed on the caller, if the grants require another digest.
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

    /// Whether a part of WASI preview 1 is granted.
    #[must_use]
    pub fn any_wasi(&self) -> bool {
        !self.directories.is_empty() || self.clock || self.randomness.is_some()
    }
}

/// A directory of the host that a target may access.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// The directory on the host, opened when the module is loaded.
    pub path: PathBuf,
    /// The directory's path in the guest: `/data`. Unique among the directories of the same grants.
    pub name: String,
    /// The allowed operations.
    #[serde(default)]
    pub access: Access,
}

/// The allowed operations in a directory.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reading.
    #[default]
    Read,
    /// Reading, writing, creating and removing. The times of written files reveal the time of day.
    ReadWrite,
}

/// The source of a target's random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Randomness {
    /// The operating system. Not allowed in a deterministic policy.
    System,
    /// A generator over SHA-256 with this seed, restarted in each instance. Gives the same bytes on
    /// every machine.
    Seed(u64),
}
