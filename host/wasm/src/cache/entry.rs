//! An entry's bytes: a header, the compiled module, and the tag of both.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `callbox` and a zero |
//! | 4 | the format's version, little-endian like all numbers |
//! | 32 | the identity |
//! | 8 | the compiled module's length |
//! | that length | the compiled module |
//! | 32 | HMAC-SHA256 of everything before |

use std::io::{self, Write};

use callbox_core::values::{Result, Status};

use super::directory::Opened;
use super::failure::corrupt;
use super::identity::{self, Identity};
use super::secret::{Secret, TAG_LENGTH, Tagger};
use crate::code::{Code, CodeBuffer};
use crate::failure::host_exhausted;

const MAGIC: &[u8; 8] = b"callbox\0";
const HEADER_LENGTH: usize = MAGIC.len() + 4 + identity::LENGTH + 8;

/// The bytes of the compiled module that are read at a time.
const PIECE: usize = 1 << 20;

/// An entry that this user's callbox stored for this module and engine. Only [`verify`] constructs
/// one.
pub(crate) struct VerifiedEntry(Code);

impl VerifiedEntry {
    /// The compiled module.
    pub(crate) fn code(&self) -> &Code {
        &self.0
    }
}

/// The size of an entry.
pub(super) fn size(code: &Code) -> u64 {
    (HEADER_LENGTH + code.size() + TAG_LENGTH) as u64
}

/// Writes an entry.
pub(super) fn write(
    secret: &Secret,
    identity: &Identity,
    code: &Code,
    to: &mut impl Write,
) -> io::Result<()> {
    let mut tagged = Tagged {
        tagger: secret.tagger(),
        to,
    };
    tagged.write_all(&header(identity, code.size()))?;
    code.write_to(&mut tagged)?;
    let Tagged { tagger, to } = tagged;
    to.write_all(&tagger.tag())
}

/// A writer that computes the tag of everything that is written.
struct Tagged<'a, W> {
    tagger: Tagger,
    to: &'a mut W,
}

impl<W: Write> Write for Tagged<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.tagger.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Reads an entry once, and verifies it.
///
/// # Errors
/// DATA_LOSS if the entry was altered, or is of another module or engine.
pub(super) fn verify(
    secret: &Secret,
    identity: &Identity,
    entry: &mut Opened,
) -> Result<VerifiedEntry> {
    let least = HEADER_LENGTH + TAG_LENGTH;
    let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
    let length = size
        .checked_sub(least)
        .ok_or_else(|| corrupt(format!("expected at least {least} bytes, found {size}")))?;
    let mut tagger = secret.tagger();
    let mut found = [0; HEADER_LENGTH];
    entry.read(&mut found)?;
    tagger.update(&found);
    let code = read_code(entry, length, &mut tagger)?;
    let mut tag = [0; TAG_LENGTH];
    entry.read(&mut tag)?;
    // The tag comes first: an unauthenticated header means nothing.
    if !tagger.has_tag(&tag) {
        return Err(corrupt(
            "the tag does not match: the entry is corrupt, or was tagged with another secret",
        ));
    }
    if found != header(identity, length) {
        return Err(corrupt(
            "the file holds the entry of another module or engine",
        ));
    }
    Ok(VerifiedEntry(code))
}

fn read_code(entry: &mut Opened, length: usize, tagger: &mut Tagger) -> Result<Code> {
    let mut code = CodeBuffer::new(length);
    let mut piece = vec![0; PIECE.min(length)];
    for at in (0..length).step_by(PIECE) {
        let left = length - at;
        let piece = &mut piece[..left.min(PIECE)];
        entry.read(piece)?;
        tagger.update(piece);
        code.push(piece).map_err(no_memory)?;
    }
    code.finish().map_err(no_memory)
}

fn no_memory(error: io::Error) -> Status {
    host_exhausted(format!("no memory to read an entry: {error}"))
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
