//! The part of a file that an interrupted download left.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::PathBuf;

use crate::fetch::cache::Cache;

/// The beginning of the first line of the file, before the entity tag and the key of the address.
const MARK: &str = "callbox-part-1";

/// The longest first line.
const MOST_LINE: usize = 512;

/// The bytes that were received so far, in memory and, with a cache, in a file.
///
/// Errors about the file are discarded: then the next command downloads the whole of it.
#[derive(Debug)]
pub(super) struct Partial {
    bytes: Vec<u8>,
    /// The strong entity tag of the file, or nothing.
    etag: String,
    /// The key of the address that the bytes came from.
    place: String,
    /// `None`: the part is not kept, as no cache is used or another process has the file.
    file: Option<(File, PathBuf)>,
}

impl Partial {
    /// The part with this key, of at most `most` bytes.
    pub(super) fn open(cache: Option<&Cache>, key: &str, most: usize) -> Self {
        let mut partial = Self {
            bytes: Vec::new(),
            etag: String::new(),
            place: String::new(),
            file: None,
        };
        if let Some((mut file, path)) = cache.and_then(|cache| cache.part(key)) {
            let mut contents = Vec::new();
            let limit = (MOST_LINE + most) as u64;
            let is_read = (&mut file).take(limit).read_to_end(&mut contents).is_ok();
            partial.file = Some((file, path));
            if !is_read || !partial.take(&contents, most) {
                partial.clear();
            }
        }
        partial
    }

    /// Takes the contents of the file, if they are whole.
    fn take(&mut self, contents: &[u8], most: usize) -> bool {
        let Some(end) = contents.iter().position(|&byte| byte == b'\n') else {
            return false;
        };
        let (line, bytes) = (&contents[..end], &contents[end + 1..]);
        let words = std::str::from_utf8(line).unwrap_or_default();
        let words: Vec<_> = words.split(' ').collect();
        let [MARK, place, etag] = words[..] else {
            return false;
        };
        if bytes.len() > most || !etag.bytes().all(|b| b.is_ascii_graphic()) {
            return false;
        }
        self.bytes = bytes.to_vec();
        (self.place, self.etag) = (place.to_owned(), etag.to_owned());
        true
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn etag(&self) -> &str {
        &self.etag
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Forgets what was received.
    pub(super) fn clear(&mut self) {
        self.begin("", "");
    }

    /// Begins a file with this entity tag, from an address with this key.
    pub(super) fn begin(&mut self, etag: &str, place: &str) {
        self.bytes.clear();
        (self.etag, self.place) = (etag.to_owned(), place.to_owned());
        let begun = self.file.as_mut().map(|(file, _)| {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(format!("{MARK} {place} {etag}\n").as_bytes())
        });
        self.keep_if(begun);
    }

    /// Adds what was received.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        let written = self.file.as_mut().map(|(file, _)| file.write_all(piece));
        self.keep_if(written);
    }

    /// Gives up the file if it could not be written.
    fn keep_if(&mut self, written: Option<std::io::Result<()>>) {
        if written.is_some_and(|written| written.is_err()) {
            self.remove();
        }
    }

    fn remove(&mut self) {
        if let Some((_, path)) = self.file.take() {
            let _ = std::fs::remove_file(path);
        }
    }

    /// The complete file.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.remove();
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Partial {
    /// Removes the file of a part that has nothing.
    fn drop(&mut self) {
        if self.bytes.is_empty() {
            self.remove();
        }
    }
}
