//! Grants: which native code may be loaded.
//!
//! Kernels and shared libraries are native code. They run with the rights of the process, and
//! nothing sandboxes them. A grant names the SHA-256 digest of code that the caller vouches for;
//! code with any other digest is refused.
#![allow(
    unsafe_code,
    reason = "granting native code is the caller's promise that it is sound"
)]

use std::collections::BTreeSet;

use callbox_core::values::{Blame, Result, Status, StatusCode};

/// The SHA-256 digests of the native code that may be loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeGrants {
    digests: BTreeSet<[u8; 32]>,
}

impl NativeGrants {
    /// Grants nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether nothing is granted.
    pub(crate) fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Grants the code with this digest as well.
    ///
    /// A shared library's digest is its file's. A manifest's is
    /// [`manifest::digest`](crate::manifest::digest), which includes its images.
    ///
    /// # Safety
    /// The code runs without a sandbox, in the host process or on a GPU that shares its memory. The
    /// caller guarantees that it has no undefined behaviour:
    ///
    /// - The kernels of a manifest access only the arrays and the scratch memory that they are
    ///   passed, within bounds, for every call site that the manifest's declarations and checks
    ///   accept.
    /// - A shared library's initialisers are sound to run, and a `callbox_status_api` that it
    ///   exports is the variable that `callbox_cuda.h` declares.
    #[must_use]
    pub unsafe fn allow(mut self, digest: [u8; 32]) -> Self {
        self.digests.insert(digest);
        self
    }

    /// Parses a digest of 64 hexadecimal digits.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the text is anything else.
    pub fn parse_digest(text: &str) -> Result<[u8; 32]> {
        let mut digest = [0; 32];
        hex::decode_to_slice(text, &mut digest).map_err(|_| {
            Status::invalid_argument(format!(
                "expected a SHA-256 digest as 64 hexadecimal digits, found {text:?}"
            ))
        })?;
        Ok(digest)
    }

    /// Checks that the code with this digest may be loaded.
    ///
    /// # Errors
    /// PERMISSION_DENIED, with the digest, if it is not granted.
    pub fn check(&self, what: &str, digest: [u8; 32]) -> Result<()> {
        if self.digests.contains(&digest) {
            return Ok(());
        }
        Err(Status::new(
            StatusCode::PermissionDenied,
            Blame::Caller,
            format!(
                "{what} is native code, which is not sandboxed: it is loaded only where its SHA-256 \
                 digest is granted (--allow-native {})",
                hex::encode(digest)
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn only_granted_digests_pass() {
        let digest = [0xA5; 32];
        let refused = NativeGrants::none().check("f.so", digest).unwrap_err();
        assert_eq!(refused.code(), StatusCode::PermissionDenied);
        assert!(refused.message().contains(&"a5".repeat(32)), "{refused}");
        let parsed = NativeGrants::parse_digest(&hex::encode(digest)).unwrap();
        // SAFETY: no code is loaded with these grants.
        let grants = unsafe { NativeGrants::none().allow(parsed) };
        assert_eq!(grants.check("f.so", digest), Ok(()));
        assert!(grants.check("f.so", [0; 32]).is_err());
        for wrong in ["", "a5", &"g5".repeat(32), &"é".repeat(32)] {
            let error = NativeGrants::parse_digest(wrong).unwrap_err();
            assert_eq!(error.code(), StatusCode::InvalidArgument);
        }
    }
}
