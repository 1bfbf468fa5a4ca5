//! What an entry is of: the module, and all that its code depends on.

use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};

use super::directory;

/// The version of the cache's format. It goes up with each change of what an entry holds or what its identity covers.
pub(super) const FORMAT: u32 = 1;

/// How many bytes an identity has.
pub(super) const LENGTH: usize = 32;

/// A digest of the format's version, the module and the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity([u8; LENGTH]);

impl Identity {
    /// The identity of a module's code in an engine. `wasm` is what the compiler gets.
    pub(super) fn of(engine: &wasmtime::Engine, wasm: &[u8]) -> Self {
        let mut hasher = Sha256Hasher(Sha256::new());
        hasher.write(b"callbox compile cache");
        hasher.write(&FORMAT.to_le_bytes());
        hasher.write(&Sha256::digest(wasm));
        // wasmtime's own account of what its code depends on: its full version, the target, the compiler's settings, the features of
        // the processor that it found, and the WebAssembly proposals that are on.
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Self(hasher.0.finalize().into())
    }

    pub(super) fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }

    /// The name of the entry's file.
    pub(super) fn file_name(&self) -> String {
        directory::entry_name(&self.0)
    }
}

/// Feeds what is hashed into SHA-256, whose whole digest counts. The standard library's hashes have 64 bits, for which
/// someone can find two modules that share them.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        digest
            .iter()
            .take(8)
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}
