//! Digests of files that are not kept in memory.

use std::io::{self, Read};
use std::path::Path;

use callbox::{Blame, Status, StatusCode};
use sha2::{Digest, Sha256};

use super::MOST_BYTES;
use crate::failure::Outcome;
use crate::regular_file;

/// The number of bytes of a file that are in memory at a time.
const PART_BYTES: usize = 1 << 16;

/// A part of a file that is read in order.
#[cfg_attr(
    not(feature = "cuda"),
    allow(
        dead_code,
        reason = "only the digest of a manifest has the parts of its files"
    )
)]
pub(super) enum Part<'a> {
    /// The beginning of a file of this size.
    Begin(u64),
    /// The next bytes.
    Bytes(&'a [u8]),
}

/// The size and the SHA-256 of a file, whose parts `visit` gets, too. Several files may have `left`
/// bytes together.
pub(super) fn hash(
    path: &Path,
    left: &mut u64,
    visit: &mut dyn FnMut(Part<'_>),
) -> Outcome<(u64, String)> {
    let cannot = |error: io::Error| regular_file::cannot(path, &error);
    let changed = || cannot(io::Error::other("it changed while it was read"));
    let mut file = regular_file::open(path)?;
    let size = file.metadata().map_err(cannot)?.len();
    *left = left
        .checked_sub(size)
        .ok_or_else(|| too_large(size).context(path.display()))?;
    visit(Part::Begin(size));
    let (mut hash, mut unread) = (Sha256::new(), size);
    let mut part = vec![0; PART_BYTES];
    loop {
        let length = match file.read(&mut part) {
            Ok(0) if unread == 0 => return Ok((size, hex::encode(hash.finalize()))),
            Ok(0) => return Err(changed()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(cannot(error)),
        };
        unread = unread.checked_sub(length as u64).ok_or_else(changed)?;
        hash.update(&part[..length]);
        visit(Part::Bytes(&part[..length]));
    }
}

fn too_large(size: u64) -> Status {
    let message =
        format!("expected files of at most {MOST_BYTES} bytes in all, found one of {size} more");
    Status::new(StatusCode::ResourceExhausted, Blame::Caller, message)
}
