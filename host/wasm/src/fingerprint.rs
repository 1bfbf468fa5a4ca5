//! Identifies the compiler of an engine: compiled code runs only in engines with the same one.

use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use crate::{fork, rewrite};

/// SHA-256 of callbox's version and of everything that a file's compiled code depends on: how files
/// are rewritten, wasmtime's version, the target, the compiler's settings, the features of the
/// processor, and the WebAssembly proposals that are on.
pub(crate) fn fingerprint(engine: &wasmtime::Engine) -> [u8; 32] {
    let mut hasher = Sha256Hasher::default();
    hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
    {
        // A forked child would wait for the initializer for ever.
        let _forks_later = fork::forks_later();
        hasher.write(&*REWRITING);
    }
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.digest()
}

/// SHA-256 of the sources of the rewriting, so that no change of them is forgotten here.
static REWRITING: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut hasher = Sha256Hasher::default();
    for source in rewrite::SOURCES {
        hasher.write(source.as_bytes());
    }
    hasher.digest()
});

/// Hashes by SHA-256. The standard library's hashes have 64 bits, for which collisions can be
/// found.
#[derive(Default)]
pub(crate) struct Sha256Hasher(Sha256);

impl Sha256Hasher {
    pub(crate) fn digest(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

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
