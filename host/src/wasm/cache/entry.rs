//! An entry's bytes: a header, the compiled module, and the tag of both.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `callbox` and a zero |
//! | 4 | the format's version, little-endian like all numbers |
//! | 32 | the identity |
//! | 8 | the compiled module's length |
//! | as many | the compiled module |
//! | 32 | HMAC-SHA256 of all that precedes |

use super::corrupt;
use super::identity::{self, Identity};
use super::secret::{Secret, TAG_LENGTH};
use crate::values::Result;

const MAGIC: &[u8; 8] = b"callbox\0";
const HEADER_LENGTH: usize = MAGIC.len() + 4 + identity::LENGTH + 8;

/// What stands around a compiled module.
pub(super) struct Sealed {
    pub(super) header: [u8; HEADER_LENGTH],
    pub(super) tag: [u8; TAG_LENGTH],
}

/// An entry that this user's callbox stored, for this very module and engine. Only [`verify`] makes one.
pub(super) struct Verified {
    bytes: Vec<u8>,
}

impl Verified {
    /// The compiled module.
    pub(super) fn artifact(&self) -> &[u8] {
        &self.bytes[HEADER_LENGTH..self.bytes.len() - TAG_LENGTH]
    }
}

/// The header and the tag for a compiled module.
pub(super) fn seal(secret: &Secret, identity: &Identity, artifact: &[u8]) -> Sealed {
    let header = header(identity, artifact.len());
    Sealed {
        header,
        tag: secret.tag(&[&header, artifact]),
    }
}

/// Checks an entry, which stays in the memory that it was checked in.
///
/// # Errors
/// DATA_LOSS if it is not what was stored, or not for this module and engine.
pub(super) fn verify(secret: &Secret, identity: &Identity, bytes: Vec<u8>) -> Result<Verified> {
    let least = HEADER_LENGTH + TAG_LENGTH;
    let length = bytes.len().checked_sub(least).ok_or_else(|| {
        corrupt(format!(
            "expected at least {least} bytes, found {}",
            bytes.len()
        ))
    })?;
    // The tag first: nothing of an entry means anything before it is known who wrote it.
    let (signed, tag) = bytes.split_at(HEADER_LENGTH + length);
    if !secret.is_tag(tag, signed) {
        return Err(corrupt(
            "expected an entry with a tag by this directory's secret, found that it is corrupt or another's",
        ));
    }
    match signed[..HEADER_LENGTH] == header(identity, length) {
        true => Ok(Verified { bytes }),
        false => Err(corrupt(
            "expected the entry of this module and engine, found that of another under its name",
        )),
    }
}

fn header(identity: &Identity, length: usize) -> [u8; HEADER_LENGTH] {
    let mut header = [0; HEADER_LENGTH];
    let parts = [
        &MAGIC[..],
        &identity::FORMAT.to_le_bytes(),
        identity.bytes(),
        &(length as u64).to_le_bytes(),
    ];
    let bytes = parts.into_iter().flatten();
    for (to, from) in std::iter::zip(&mut header, bytes) {
        *to = *from;
    }
    header
}
