//! From an entry to a module.
#![allow(
    unsafe_code,
    reason = "wasmtime cannot check compiled code that it is handed, and has to be told that it may trust it"
)]

use super::corrupt;
use super::entry::Verified;
use crate::values::Result;

/// The module of an entry.
///
/// # Errors
/// DATA_LOSS if wasmtime does not take it.
pub(super) fn module(engine: &wasmtime::Engine, entry: &Verified) -> Result<wasmtime::Module> {
    // SAFETY: `deserialize` asks for bytes that `Module::serialize` gave, unaltered. A `Verified` has a tag, over
    // all its bytes, by a secret that only this user can read, and the cache makes tags of nothing but what `Module::serialize` gave
    // (`Cache::store`). The bytes are in memory of this process, borrowed for the whole call, and nothing can alter them between
    // the check and the use. That they are of this version of wasmtime and these settings the identity in the header says, which
    // `verify` compared, and wasmtime checks for itself.
    let module = unsafe { wasmtime::Module::deserialize(engine, entry.artifact()) };
    module.map_err(|error| {
        corrupt(format!(
            "expected a compiled module that this engine takes: {error:#}"
        ))
    })
}
