//! Which native code may be loaded: nothing that nobody named.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::values::{Blame, Result, Status, StatusCode};

/// The SHA-256 digests of native code that somebody trusts with the whole process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeGrants {
    digests: BTreeSet<[u8; 32]>,
}

impl NativeGrants {
    /// Trusts nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Trusts the code of this digest as well.
    #[must_use]
    pub fn allow(mut self, digest: [u8; 32]) -> Self {
        self.digests.insert(digest);
        self
    }

    /// The same, of a digest as 64 hexadecimal digits.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is anything else.
    pub fn allow_hex(self, digest: &str) -> Result<Self> {
        let wrong = || {
            Status::invalid_argument(format!(
                "expected a SHA-256 digest as 64 hexadecimal digits, found {digest:?}"
            ))
        };
        if digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, place) in bytes.iter_mut().zip(0..) {
            let digits = &digest[2 * place..2 * place + 2];
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(self.allow(bytes))
    }

    /// Checks that code of this digest is trusted.
    ///
    /// # Errors
    /// PERMISSION_DENIED, with the digest, if it is not.
    pub fn check(&self, what: &str, digest: [u8; 32]) -> Result<()> {
        if self.digests.contains(&digest) {
            return Ok(());
        }
        Err(Status::new(
            StatusCode::PermissionDenied,
            Blame::Caller,
            format!(
                "{what} is native code, which is not sandboxed: it is loaded only where its SHA-256 digest is granted (--allow-native {})",
                hex(digest)
            ),
        ))
    }
}

/// A digest as 64 hexadecimal digits.
#[must_use]
pub fn hex(digest: [u8; 32]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn nothing_is_granted_but_what_is_named() {
        let digest = [0xA5; 32];
        let refused = NativeGrants::none().check("f.so", digest).unwrap_err();
        assert_eq!(refused.code(), StatusCode::PermissionDenied);
        assert!(refused.message().contains(&"a5".repeat(32)), "{refused}");
        let grants = NativeGrants::none().allow_hex(&hex(digest)).unwrap();
        assert_eq!(grants.check("f.so", digest), Ok(()));
        assert!(grants.check("f.so", [0; 32]).is_err());
        for wrong in ["", "a5", &"g5".repeat(32), &"é".repeat(32)] {
            let error = NativeGrants::none().allow_hex(wrong).unwrap_err();
            assert_eq!(error.code(), StatusCode::InvalidArgument);
        }
    }
}
