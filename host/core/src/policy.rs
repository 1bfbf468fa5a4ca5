//! The policy: the resources that guests may use. No other setting grants any.
//!
//! A [`Policy`] is plain data. [`Policy::default`] suits untrusted kernels and grants no access to
//! the machine, not even log messages. An embedder passes a policy to `callbox_wasm::Engine`; the
//! command line reads one from a file ([`Policy::from_json`]). The repository's `SECURITY.md` lists
//! the guarantees with the tests that check them.
//!
//! # Decisions
//!
//! - A grant belongs to a loaded module, not to a call: a module's targets share a memory, so that
//!   each can use whatever one of them can. To grant one target of a file more than the others,
//!   load the file twice. The copy without the grant is refused if the file imports what the grant
//!   gives.
//! - In deterministic mode, fuel replaces the time limit. A deadline or cancel token of the caller
//!   still stops a call, at a time that differs between machines. Functions that a target calls
//!   back use the fuel of the call.
//! - Relaxed SIMD is on. Its results may differ between processors within the limits of the
//!   proposal; in deterministic mode they do not.
//! - A target declared `pure` can be checked by running it twice in fresh instances. This finds
//!   dependence on memory, random bytes and clocks, and proves nothing.

mod gpu;
mod grants;
mod json;
mod limits;
mod shadow;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[doc(inline)]
pub use callbox_abi::LogLevel;

pub use self::gpu::{Assembler, Gpu};
pub use self::grants::{Access, Directory, Grants, Randomness};
pub use self::limits::Limits;
pub use self::shadow::Shadow;
use crate::values::Result;

/// The resources that guests may use.
///
/// In JSON, the keys are the fields' names. Missing fields have their defaults, and unknown ones
/// are errors:
///
/// ```
/// # fn main() -> callbox_core::Result<()> {
/// let policy = callbox_core::policy::Policy::from_json(
///     br#"{
///         "limits": {"memory_bytes": 268435456, "deadline_ms": 2000},
///         "isolation": "fresh",
///         "grants": {"log": "warn"},
///         "targets": {
///             "lookup": {
///                 "directories": [{"path": "/srv/tables", "name": "/tables", "access": "read"}]
///             }
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
    /// Limits on memory, time and sizes.
    #[serde(deserialize_with = "crate::json::object")]
    pub limits: Limits,
    /// The calls that one instance serves.
    pub isolation: Isolation,
    /// How out-of-bounds accesses are caught.
    pub traps: Traps,
    /// Where modules are compiled.
    pub compile: CompileIn,
    /// Whether results and statuses are the same on every machine.
    ///
    /// NaNs have one canonical pattern, relaxed SIMD instructions are deterministic, and
    /// [`Limits::fuel`] replaces the clock. A deadline or cancel token of the caller still stops a
    /// call.
    pub deterministic: bool,
    /// Whether each call of a target declared `pure` runs twice, in fresh instances. If the bits of
    /// the results differ, the call fails with INTERNAL, blamed on the guest.
    pub check_pure: bool,
    /// The grants of targets that `targets` does not name. Default: mathematics.
    #[serde(deserialize_with = "crate::json::object")]
    pub grants: Grants,
    /// The grants of the targets with these names, in place of `grants`.
    #[serde(deserialize_with = "crate::json::objects_by_name")]
    pub targets: BTreeMap<String, Grants>,
    /// The limits of GPU kernels without a grant.
    #[serde(deserialize_with = "crate::json::object")]
    pub gpu: Gpu,
    /// The calls of native targets that also run as wasm, to compare the results. Default: none.
    ///
    /// Programs find modules by a digest of the policy, which is as before without it.
    #[serde(
        deserialize_with = "shadow::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub shadow: Option<Shadow>,
}

/// The calls that one instance serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// The calls of one executable, one after the other. A guest's memory persists between them.
    #[default]
    Executable,
    /// One call. No data persists between calls.
    Fresh,
}

/// How out-of-bounds accesses and divisions by zero are caught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traps {
    /// By the processor, at no cost in the guest's code. wasmtime installs handlers for SIGSEGV,
    /// SIGBUS, SIGILL and SIGFPE, which forward signals that guests did not cause.
    #[default]
    Signals,
    /// By checks in the guest's code, which are slower. For processes with signal handlers of their
    /// own: wasmtime installs none.
    Explicit,
}

/// Where modules are compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompileIn {
    /// In a process of its own if the engine has a compiler that can start one, and else in this
    /// process. The embedder gets a report of the second.
    #[default]
    Any,
    /// In a process of its own, with a limit on memory. Loading fails if none can be started.
    Process,
    /// In this process: [`Limits::compile_memory_bytes`] does not hold, and a compilation past its
    /// time goes on in the background.
    ThisProcess,
}

impl Policy {
    /// The grants of the target with this name, in the module with this digest.
    ///
    /// # Errors
    /// PERMISSION_DENIED if the policy requires another digest.
    pub fn grants_for(&self, target: &str, sha256: &str) -> Result<&Grants> {
        let grants = self.targets.get(target).unwrap_or(&self.grants);
        grants
            .check_digest(sha256)
            .map_err(|status| status.context(format_args!("target {target:?}")))?;
        Ok(grants)
    }
}
