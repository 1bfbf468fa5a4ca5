//! The secret by which entries are authenticated.

use callbox_core::values::{Result, Status};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::directory::{Directory, Links, check_size, no_random_bytes};
use super::failure::{corrupt, denied};

/// The name of its file.
const FILE: &str = "callbox-secret";

/// The bytes of a secret.
const LENGTH: usize = 32;

/// The bytes of a tag.
pub(super) const TAG_LENGTH: usize = 32;

/// The secret, ready to make and check tags.
pub(super) struct Secret {
    mac: Hmac<Sha256>,
}

/// Computes the tag of bytes that come in pieces.
pub(super) struct Tagger(Hmac<Sha256>);

impl Secret {
    /// Reads the directory's secret, or creates one. Concurrent creators all use the first secret.
    pub(super) fn obtain(directory: &Directory) -> Result<Self> {
        let context = |status: Status| status.context(format_args!("the file {FILE}"));
        if let Some(secret) = Self::read(directory).map_err(context)? {
            return Ok(secret);
        }
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).map_err(no_random_bytes)?;
        check_size(LENGTH as u64).map_err(context)?;
        directory.create(FILE, &bytes).map_err(context)?;
        let secret = Self::read(directory).map_err(context)?;
        secret.ok_or_else(|| {
            context(denied(
                "another process removed the file that was just created",
            ))
        })
    }

    fn read(directory: &Directory) -> Result<Option<Self>> {
        let Some(mut opened) = directory.open(FILE, LENGTH as u64, Links::Any)? else {
            return Ok(None);
        };
        if opened.size != LENGTH as u64 {
            return Err(corrupt(format!(
                "expected {LENGTH} bytes, found {}",
                opened.size
            )));
        }
        let mut bytes = [0; LENGTH];
        opened.read(&mut bytes)?;
        let mac = Hmac::new_from_slice(&bytes).map_err(|error| {
            Status::internal(format!("HMAC refused a key of {LENGTH} bytes: {error}"))
        })?;
        Ok(Some(Self { mac }))
    }

    /// The beginning of a tag.
    pub(super) fn tagger(&self) -> Tagger {
        Tagger(self.mac.clone())
    }
}

impl Tagger {
    /// Continues with these bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The tag of all bytes.
    pub(super) fn tag(self) -> [u8; TAG_LENGTH] {
        self.0.finalize().into_bytes().into()
    }

    /// Whether this is the tag of all bytes, compared in constant time.
    pub(super) fn has_tag(self, tag: &[u8]) -> bool {
        self.0.verify_slice(tag).is_ok()
    }
}
