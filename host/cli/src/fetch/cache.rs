//! Downloaded files by their SHA-256, and the commit that each revision had when last seen.
//!
//! The folder is the one of `callbox.hub` of the Python package.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callbox::{Blame, Result, Status, StatusCode};
use sha2::{Digest, Sha256};

use crate::{output, regular_file, write_file};

/// The longest note.
const MOST_NOTE: usize = 256;

/// A folder of one user. Files are verified each time they are read.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens the folder, which is made if it does not exist.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if other users can write to it, or it cannot be made.
    pub(crate) fn open(folder: PathBuf) -> Result<Self> {
        let inner = [FILES, REVISIONS, PARTS].map(|name| folder.join(name));
        for part in std::iter::once(&folder).chain(&inner) {
            make(part).map_err(|error| {
                refused(format!(
                    "cannot make the folder {}: {error}",
                    part.display()
                ))
            })?;
            if !is_own(part) {
                return Err(refused(format!(
                    "expected a folder that this user alone can write, found {}",
                    part.display()
                )));
            }
        }
        Ok(Self { folder })
    }

    /// The file with this digest, of at most `most` bytes.
    pub(crate) fn file(&self, sha256: &str, most: usize) -> Option<Vec<u8>> {
        let found = regular_file::read(&self.folder.join(FILES).join(sha256), most).ok()?;
        (digest(&found) == sha256).then_some(found)
    }

    /// Keeps a file.
    pub(crate) fn keep(&self, contents: &[u8]) {
        let sha256 = digest(contents);
        if self.file(&sha256, contents.len()).is_none() {
            write(&self.folder.join(FILES).join(sha256), contents);
        }
    }

    /// The file of an interrupted download, which this process alone writes. `None` if another one
    /// does, or it cannot be opened.
    pub(crate) fn part(&self, key: &str) -> Option<(File, PathBuf)> {
        self.remove_old_parts();
        let path = self.folder.join(PARTS).join(key);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        {
            use rustix::fs::OFlags;
            use std::os::unix::fs::OpenOptionsExt as _;
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
            options.mode(0o600).custom_flags(flags.bits().cast_signed());
        }
        let file = options.open(&path).ok()?;
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        (is_file && file.try_lock().is_ok()).then_some((file, path))
    }

    /// Removes interrupted downloads that were not taken up for a week. Errors are discarded.
    fn remove_old_parts(&self) {
        let parts = fs::read_dir(self.folder.join(PARTS)).into_iter().flatten();
        for part in parts.flatten() {
            let changed = part.metadata().and_then(|found| found.modified()).ok();
            let age = changed.and_then(|changed| changed.elapsed().ok());
            if age.is_some_and(|age| age > PART_LIFE) {
                let _ = fs::remove_file(part.path());
            }
        }
    }

    /// What was noted of a revision: its commit, or the digest of the metadata of a commit.
    pub(crate) fn note(&self, key: &str) -> Option<String> {
        let text = regular_file::read(&self.path_of(key), MOST_NOTE).ok()?;
        let text = String::from_utf8(text).ok()?;
        let text = text.trim();
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let is_note = matches!(text.len(), 40 | 64) && text.bytes().all(is_digit);
        is_note.then(|| text.to_owned())
    }

    /// Remembers a commit or a digest.
    pub(crate) fn take_note(&self, key: &str, text: &str) {
        if self.note(key).as_deref() != Some(text) {
            write(&self.path_of(key), format!("{text}\n").as_bytes());
        }
    }

    /// The file of a note. Names of repositories differ in case, which file systems may ignore.
    fn path_of(&self, key: &str) -> PathBuf {
        self.folder.join(REVISIONS).join(digest(key.as_bytes()))
    }
}

const FILES: &str = "sha256";
const REVISIONS: &str = "revisions";
const PARTS: &str = "parts";

/// How long the part of an interrupted download is kept.
const PART_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Writes a file. If it cannot be written, the download is not kept, and that is told.
fn write(path: &Path, contents: &[u8]) {
    if let Err(failure) = write_file::write(path, &[contents]) {
        output::warn(&format!("the download is not kept: {}", failure.status()));
    }
}

fn make(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Whether this user alone can write to a folder.
fn is_own(folder: &Path) -> bool {
    let Ok(found) = folder.symlink_metadata() else {
        return false;
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let user = rustix::process::getuid().as_raw();
        if found.uid() != user || found.mode() & 0o022 != 0 {
            return false;
        }
    }
    found.is_dir()
}

/// SHA-256 in hexadecimal.
pub(crate) fn digest(contents: &[u8]) -> String {
    hex::encode(Sha256::digest(contents))
}

fn refused(message: String) -> Status {
    Status::new(StatusCode::FailedPrecondition, Blame::Caller, message)
}
