//! Calls that `callbox.jax` traced into programs.
//!
//! All of callbox's targets are one target of XLA, [`TARGET`], whose attributes are text: the key
//! of the module, the target's name, the attributes in MLIR's notation, and a [`CallText`] with
//! the rest of the call site.
//!
//! The handler in Python calls such targets for XLA. [`TracedCalls`] does for programs that callbox
//! itself runs, with modules that [`TracedModules`] finds.

mod calls;
mod text;

pub use calls::{AnyCall, AnyModule, TracedCalls, TracedModules};
pub use text::{CallText, InfoText, Shapes, to_hex};

use sha2::{Digest, Sha256};

use crate::policy::Policy;
use crate::values::Result;

/// The name of the target in programs. Its version grows if the attributes change their meaning.
pub const TARGET: &str = "callbox.v1";

/// The name of the same target for kernels that can become part of a command buffer.
///
/// XLA knows traits by handler.
pub const TARGET_COMMAND_BUFFER: &str = "callbox.v1.command_buffer";

/// The key of a module in programs: a digest of all that determines the behaviour of its targets.
/// `sha256` is the file's digest in hexadecimal, `native` the identity of native code or empty.
///
/// # Errors
/// INVALID_ARGUMENT if a directory of the policy has a path that is not UTF-8.
pub fn module_key(sha256: &str, native: &str, policy: &Policy) -> Result<String> {
    let digest = Sha256::new()
        .chain_update(sha256)
        .chain_update("\0")
        .chain_update(native)
        .chain_update("\0")
        .chain_update(policy.to_json()?)
        .finalize();
    Ok(to_hex(&digest))
}
