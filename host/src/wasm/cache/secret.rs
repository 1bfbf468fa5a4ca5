//! The secret by which entries are known to be this user's.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::directory::{Directory, Links, no_random_bytes};
use super::{corrupt, denied};
use crate::values::{Result, Status};

/// The name of its file.
const FILE: &str = "callbox-secret";

/// How many bytes it has.
const LENGTH: usize = 32;

/// How many bytes a tag has.
pub(super) const TAG_LENGTH: usize = 32;

/// The secret, ready to make and check tags.
pub(super) struct Secret {
    mac: Hmac<Sha256>,
}

impl Secret {
    /// The directory's secret. Where there is none, one is made; if several do so at one time, the first one's counts for all.
    pub(super) fn obtain(directory: &Directory) -> Result<Self> {
        let context = |status: Status| status.context(format_args!("the file {FILE}"));
        if let Some(secret) = Self::read(directory).map_err(context)? {
            return Ok(secret);
        }
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).map_err(no_random_bytes)?;
        directory.create(FILE, &bytes).map_err(context)?;
        let secret = Self::read(directory).map_err(context)?;
        secret.ok_or_else(|| context(denied("expected the file that was just made, found none")))
    }

    fn read(directory: &Directory) -> Result<Option<Self>> {
        let Some((_, bytes)) = directory.read(FILE, LENGTH as u64, Links::Any)? else {
            return Ok(None);
        };
        if bytes.len() != LENGTH {
            return Err(corrupt(format!(
                "expected {LENGTH} bytes, found {}",
                bytes.len()
            )));
        }
        let mac = Hmac::new_from_slice(&bytes);
        let mac = mac.map_err(|error| Status::internal(format!("a key of 32 bytes: {error}")))?;
        Ok(Some(Self { mac }))
    }

    /// The tag of these bytes, one part after the other.
    pub(super) fn tag(&self, parts: &[&[u8]]) -> [u8; TAG_LENGTH] {
        self.after(parts).finalize().into_bytes().into()
    }

    /// Whether this is the tag of these bytes. How long that takes says nothing of the right one.
    pub(super) fn is_tag(&self, tag: &[u8], bytes: &[u8]) -> bool {
        self.after(&[bytes]).verify_slice(tag).is_ok()
    }

    fn after(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}
