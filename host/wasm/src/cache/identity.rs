//! The key of an entry: the module's file, and everything that its compiled code depends on.

use std::hash::Hasher;

use crate::fingerprint::Sha256Hasher;

/// The version of the cache's format, which changes with the contents of an entry or of its key.
pub(super) const FORMAT: u32 = 2;

/// The bytes of an identity.
pub(super) const LENGTH: usize = 32;

/// The suffix of entries' names.
pub(super) const ENTRY: &str = ".callbox-module";

/// A digest of the format's version, the module and the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity([u8; LENGTH]);

impl Identity {
    /// The identity of a module in an engine with this
    /// [fingerprint](crate::fingerprint::fingerprint), given SHA-256 of the module's file.
    pub(crate) fn of(fingerprint: [u8; 32], digest: [u8; 32]) -> Self {
        let mut hasher = Sha256Hasher::default();
        hasher.write(b"callbox compile cache");
        hasher.write(&FORMAT.to_le_bytes());
        hasher.write(&digest);
        hasher.write(&fingerprint);
        Self(hasher.digest())
    }

    pub(super) fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }

    /// The name of the entry's file.
    pub(super) fn file_name(&self) -> String {
        format!("{}{ENTRY}", hex::encode(self.0))
    }
}
