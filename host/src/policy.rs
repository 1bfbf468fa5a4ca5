//! The policy: what a host lets guests take, do and reach. It is the one place where any of this is said.
//!
//! A [`Policy`] is plain data; [`Policy::default`] suits untrusted kernels, and grants nothing. An embedder makes one and hands it to
//! an [`Engine`](crate::wasm::Engine); the command line reads one from a file ([`Policy::from_json`]). What each promise is worth, and which
//! test checks it, is in the repository's `SECURITY.md`.

mod grants;
mod json;
mod limits;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::grants::{Access, Directory, Grants, LogLevel, Randomness};
pub use self::limits::Limits;
use crate::values::Result;

/// What guests may take, do and reach.
///
/// As JSON it has the fields' names; what is left out has its default, and what is not known is an error:
///
/// ```
/// # fn main() -> callbox::Result<()> {
/// let policy = callbox::policy::Policy::from_json(
///     br#"{
///         "limits": {"memory_bytes": 268435456, "deadline_ms": 2000},
///         "isolation": "fresh",
///         "grants": {"log": "warn"},
///         "targets": {
///             "lookup": {"directories": [{"path": "/srv/tables", "name": "/tables", "access": "read"}]}
///         }
///     }"#,
/// )?;
/// assert_eq!(policy.limits.memory_bytes, 256 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// How much a guest may take.
    pub limits: Limits,
    /// Whom an instance serves.
    pub isolation: Isolation,
    /// How guests that reach past their memory are caught.
    pub traps: Traps,
    /// The same bits and statuses on every machine: NaNs have one canonical pattern, relaxed SIMD instructions their deterministic meaning, and
    /// calls are bounded by [`Limits::fuel`] and not by the clock. A deadline or cancel token that the caller sets still stops a call.
    pub deterministic: bool,
    /// Runs each call of a target that declares itself `pure` twice, in instances that nothing else has used, and fails it with INTERNAL,
    /// the guest's doing, if the results' bits differ.
    pub check_pure: bool,
    /// What targets may reach that `targets` does not name. Default: nothing.
    pub grants: Grants,
    /// What the targets of these names may reach, in place of `grants`.
    pub targets: BTreeMap<String, Grants>,
}

/// Whom an instance serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// The call sites of one executable, one call after the other. What a guest keeps in its memory, later calls of the same
    /// executable find there.
    #[default]
    Executable,
    /// One call. Nothing of a call's data is there for a later one.
    Fresh,
}

/// How guests that reach past their memory, or divide by zero, are caught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traps {
    /// By the processor, whose signals wasmtime handles: no cost in the guest's code. The process's handlers of SIGSEGV, SIGBUS, SIGILL and
    /// SIGFPE are wasmtime's, which passes on what is not a guest's.
    #[default]
    Signals,
    /// By checks in the guest's code, which is slower. For hosts whose process owns its signals: no handler is installed.
    Explicit,
}

impl Policy {
    /// What the target of this name, of the module with this digest, may reach.
    ///
    /// # Errors
    /// PERMISSION_DENIED if the policy wants another digest.
    pub fn grants_for(&self, target: &str, sha256: &str) -> Result<&Grants> {
        let grants = self.targets.get(target).unwrap_or(&self.grants);
        grants
            .check_digest(sha256)
            .map_err(|status| status.context(format_args!("target {target:?}")))?;
        Ok(grants)
    }
}
