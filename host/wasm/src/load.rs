//! Loads compiled code into wasmtime.
#![allow(
    unsafe_code,
    reason = "wasmtime cannot verify compiled code, so that its caller must vouch for it"
)]

use std::mem::ManuallyDrop;
use std::ops::Deref;

use callbox_core::values::Status;

use crate::address_space::advice;
#[cfg(feature = "cache")]
use crate::cache::VerifiedEntry;
use crate::compiler::CompiledCode;
use crate::failure::host_exhausted;
use crate::fork;

/// A module whose code is loaded. It is dropped after all else that holds the module: wasmtime then
/// takes a lock that all engines have in common.
pub(crate) struct LoadedModule {
    module: ManuallyDrop<wasmtime::Module>,
    /// The process that loaded it.
    generation: u32,
}

impl LoadedModule {
    fn new(module: wasmtime::Module) -> Self {
        Self {
            module: ManuallyDrop::new(module),
            generation: fork::generation(),
        }
    }
}

impl Deref for LoadedModule {
    type Target = wasmtime::Module;

    fn deref(&self) -> &wasmtime::Module {
        &self.module
    }
}

impl Drop for LoadedModule {
    /// Leaks the module in a forked child, where a thread that does not exist may hold its locks.
    fn drop(&mut self) {
        if self.generation == fork::generation() {
            let _forks_later = fork::forks_later();
            // SAFETY: the module is dropped here alone, and not used again.
            unsafe {
                ManuallyDrop::drop(&mut self.module);
            }
        }
    }
}

/// Compiled code from a source that callbox vouches for.
#[derive(Clone, Copy)]
pub(crate) enum TrustedCode<'a> {
    /// An entry of the cache.
    #[cfg(feature = "cache")]
    Entry(&'a VerifiedEntry),
    /// The output of a compiler, which has just returned it.
    Compiled(&'a CompiledCode),
}

/// The failure of a load for which the process lacks memory.
pub(crate) fn no_room_for_code() -> Status {
    host_exhausted(format!("no room for the module's code: {}", advice()))
}

/// The module of compiled code.
///
/// # Errors
/// wasmtime's, if the code is of another version or of other settings.
pub(crate) fn load(
    engine: &wasmtime::Engine,
    code: TrustedCode<'_>,
) -> wasmtime::Result<LoadedModule> {
    // wasmtime requires unaltered output of its compiler.
    //
    // - Compiled: only `compiler.rs` makes a `CompiledCode`. Its bytes come from
    //   `Engine::precompile_module` in this process, or from `Compiler::compile`, an unsafe trait
    //   whose implementations promise them. callbox-process gets them through a socket from a child
    //   that it started, which is trusted as the compiler is in this process.
    // - Entry: `entry::verify` is the only constructor of `VerifiedEntry`, and checks a tag over
    //   all its bytes by a secret that only this user can read. `Cache::store` tags nothing but a
    //   `CompiledCode`.
    //
    // Both were made for this engine: the cache compares its identity and `Compiler` its
    // fingerprint, which cover wasmtime's version and settings. wasmtime checks these, too.
    //
    // wasmtime notes the code in a map of the whole process.
    let _forks_later = fork::forks_later();
    let code = match code {
        #[cfg(feature = "cache")]
        TrustedCode::Entry(entry) => entry.code(),
        TrustedCode::Compiled(compiled) => compiled.code(),
    };
    if let Some(file) = code.file() {
        // SAFETY: the bytes are unaltered output of the compiler, see above. They stay as they are
        // for as long as wasmtime maps the file: `CodeBuffer::finish` has sealed it against writing
        // and changes of its size, which no process can undo.
        let mapped = unsafe { wasmtime::Module::deserialize_open_file(engine, file) };
        // A system may forbid to execute pages of a file, and still allow it for copies.
        if mapped.is_ok() {
            return mapped.map(LoadedModule::new);
        }
    }
    let bytes = code.to_bytes()?;
    // SAFETY: the bytes are unaltered output of the compiler, see above. They are in private memory
    // and borrowed for the whole call, which copies them.
    let module = unsafe { wasmtime::Module::deserialize(engine, bytes) };
    module.map(LoadedModule::new)
}
