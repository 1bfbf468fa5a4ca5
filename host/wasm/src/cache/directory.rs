//! The directory. Files are read once, from their beginning to their end, and are replaced
//! atomically.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::SystemTime;

use callbox_core::values::{Blame, Result, Status, StatusCode};
use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, File, OpenOptions};

use super::failure::corrupt;
use super::identity::ENTRY;
use super::owner;
use crate::failure::{host_exhausted, status};

/// The suffix of files that are being written.
const UNFINISHED: &str = ".callbox-unfinished";

/// The number of names that a file may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// One at most.
    One,
    /// Any number: a process that stopped while creating the file may have left a second one.
    Any,
}

/// A directory, which is checked before each use.
pub(super) struct Directory {
    dir: Dir,
}

/// A file that is read.
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) size: u64,
}

/// A file of the cache in a listing.
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
    pub(super) is_entry: bool,
}

/// Opens the directory at a path, and creates it if it does not exist.
pub(super) fn open_ambient(path: &Path) -> Result<Dir> {
    let name = path.file_name().ok_or_else(|| {
        Status::invalid_argument("the path of a cache must end in the name of its directory")
    })?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let cannot = |error| failed("cannot open the parent directory", &error);
    let parent = Dir::open_ambient_dir(parent, cap_std::ambient_authority()).map_err(cannot)?;
    match parent.create_dir_with(name, &owner::directory_builder()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("cannot create the directory", &error));
        }
        _ => {}
    }
    parent.open_dir_nofollow(name).map_err(|error| {
        let metadata = parent.symlink_metadata(name).ok();
        match metadata.filter(|metadata| !metadata.is_dir()) {
            Some(other) => owner::unexpected_kind("a directory", &other),
            None => failed("cannot open the directory", &error),
        }
    })
}

/// Checks that this process may write a file of this size. A write past the limit would be a
/// signal, which ends the process.
#[cfg(unix)]
pub(super) fn check_size(bytes: u64) -> Result<()> {
    use rustix::process::{Resource, getrlimit};
    match getrlimit(Resource::Fsize).current {
        Some(most) if most < bytes => Err(host_exhausted(format!(
            "expected a file of at most {most} bytes, as this process's limit on files says, \
             found {bytes}"
        ))),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
pub(super) fn check_size(_: u64) -> Result<()> {
    Ok(())
}

impl Directory {
    pub(super) fn new(dir: Dir) -> Result<Self> {
        let directory = Self { dir };
        directory.check()?;
        Ok(directory)
    }

    /// Checks that only the user has access.
    pub(super) fn check(&self) -> Result<()> {
        let metadata = self
            .dir
            .dir_metadata()
            .map_err(|error| failed("cannot read the metadata of the directory", &error))?;
        owner::check_directory(&metadata)
    }

    /// Opens a file of at most `most` bytes for reading, if it exists. The checks apply to the
    /// opened file, so that renaming it meanwhile makes no difference.
    pub(super) fn open(&self, name: &str, most: u64, links: Links) -> Result<Option<Opened>> {
        let mut options = OpenOptions::new();
        // Opening a FIFO would otherwise block until another process writes to it.
        options.read(true).follow(FollowSymlinks::No).nonblock(true);
        let file = match self.dir.open_with(name, &options) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.cannot_open(name, &error)),
        };
        let metadata = file
            .metadata()
            .map_err(|error| failed("cannot read the metadata of the file", &error))?;
        owner::check_file(&metadata)?;
        if links == Links::One {
            owner::check_links(&metadata)?;
        }
        let size = metadata.len();
        if size > most {
            return Err(corrupt(format!(
                "expected a file of at most {most} bytes, found {size}"
            )));
        }
        Ok(Some(Opened { file, size }))
    }

    fn cannot_open(&self, name: &str, error: &io::Error) -> Status {
        let metadata = self.dir.symlink_metadata(name).ok();
        match metadata.filter(|metadata| !metadata.is_file()) {
            Some(other) => owner::unexpected_kind("a regular file", &other),
            None => failed("cannot open the file", error),
        }
    }

    /// Writes a file, which replaces another of this name.
    pub(super) fn write(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<()> {
        let unfinished = self.write_unfinished(write)?;
        let renamed = self.dir.rename(&unfinished, &self.dir, name);
        renamed.map_err(|error| {
            self.remove(&unfinished);
            failed("cannot move the file into place", &error)
        })
    }

    /// Creates a file, unless one of this name exists.
    pub(super) fn create(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let unfinished = self.write_unfinished(|file| {
            file.write_all(bytes)?;
            file.sync_all()
        })?;
        // Unlike renaming, linking replaces nothing.
        let linked = self.dir.hard_link(&unfinished, &self.dir, name);
        self.remove(&unfinished);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed("cannot move the file into place", &error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a temporary file, and returns its unique name.
    fn write_unfinished(&self, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(no_random_bytes)?;
        let name = format!("{}{UNFINISHED}", hex::encode(random));
        let opened = self.dir.open_with(&name, &owner::file_options());
        let written = opened.and_then(|mut file| write(&mut file));
        match written {
            Ok(()) => Ok(name),
            Err(error) => {
                self.remove(&name);
                Err(failed("expected to write a file", &error))
            }
        }
    }

    /// Lists the cache's own files except the secret. Foreign files are neither counted nor
    /// removed.
    pub(super) fn list(&self) -> Result<Vec<Listed>> {
        let cannot = |error| failed("cannot list the directory", &error);
        let mut files = Vec::new();
        for entry in self.dir.entries().map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let is_entry = name.ends_with(ENTRY);
            if !is_entry && !name.ends_with(UNFINISHED) {
                continue;
            }
            // Another process may have removed the file meanwhile.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_file() {
                let modified = metadata.modified().map_err(cannot)?.into_std();
                files.push(Listed {
                    name,
                    size: metadata.len(),
                    modified,
                    is_entry,
                });
            }
        }
        Ok(files)
    }

    /// Removes a file. Errors are discarded: another process may have removed it.
    pub(super) fn remove(&self, name: &str) {
        let _ = self.dir.remove_file(name);
    }
}

impl Opened {
    /// Reads as many bytes as `bytes` has.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact(bytes).map_err(|error| {
            if error.kind() == io::ErrorKind::UnexpectedEof {
                let size = self.size;
                return corrupt(format!(
                    "expected a file of {size} bytes, found fewer: it was cut while it was read"
                ));
            }
            failed("cannot read the file", &error)
        })
    }
}

/// Marks a file as used. On a read-only file system this fails, and entries are evicted in the
/// order in which they were written.
pub(super) fn touch(file: File) {
    let _ = file.into_std().set_modified(SystemTime::now());
}

pub(super) fn no_random_bytes(error: getrandom::Error) -> Status {
    status!(
        Unavailable,
        Host,
        "the operating system gave no random bytes: {error}"
    )
}

/// The status for an error of the operating system.
fn failed(problem: impl Display, error: &io::Error) -> Status {
    use io::ErrorKind;
    let code = match error.kind() {
        ErrorKind::NotFound => StatusCode::NotFound,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StatusCode::PermissionDenied,
        ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded
        | ErrorKind::FileTooLarge
        | ErrorKind::OutOfMemory => StatusCode::ResourceExhausted,
        _ => StatusCode::Unavailable,
    };
    Status::new(code, Blame::Host, format!("{problem}: {error}"))
}
