//! The directory: files that are read whole, and files that appear whole.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::SystemTime;

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, File, Metadata, OpenOptions};

use super::{corrupt, denied, owner};
use crate::values::{Blame, Result, Status, StatusCode};

/// How the names of entries end.
const ENTRY: &str = ".callbox-module";

/// How the names of files end that are being written.
const UNFINISHED: &str = ".callbox-unfinished";

/// How many names a file may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// One at most.
    One,
    /// Any number: a process that stopped while it made the file may have left it a second one.
    Any,
}

/// A directory that was checked, and is checked again before each use.
pub(super) struct Directory {
    dir: Dir,
}

/// A file of the cache, as a listing has it.
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
    pub(super) is_entry: bool,
}

/// The directory of this path, made if it is not there.
pub(super) fn open_ambient(path: &Path) -> Result<Dir> {
    let name = path.file_name().ok_or_else(|| {
        Status::invalid_argument("expected the path of a directory that ends in its name")
    })?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let cannot = |error| failed("expected to open the directory above", &error);
    let parent = Dir::open_ambient_dir(parent, cap_std::ambient_authority()).map_err(cannot)?;
    match parent.create_dir_with(name, &owner::directory_builder()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("expected to make the directory", &error));
        }
        _ => {}
    }
    parent.open_dir_nofollow(name).map_err(|error| {
        let metadata = parent.symlink_metadata(name).ok();
        match metadata.filter(|metadata| !metadata.is_dir()) {
            Some(other) => denied(format!(
                "expected a directory, found {}",
                owner::kind(&other)
            )),
            None => failed("expected to open the directory", &error),
        }
    })
}

impl Directory {
    pub(super) fn new(dir: Dir) -> Result<Self> {
        let directory = Self { dir };
        directory.check()?;
        Ok(directory)
    }

    /// Checks that it is still the user's alone.
    pub(super) fn check(&self) -> Result<()> {
        let metadata = self.dir.dir_metadata();
        let metadata =
            metadata.map_err(|error| failed("expected to look at the directory", &error))?;
        owner::check_directory(&metadata)
    }

    /// A file's bytes, if it is there, and the file itself. What is checked is the file that is read, whatever becomes of its name
    /// meanwhile.
    pub(super) fn read(
        &self,
        name: &str,
        most: u64,
        links: Links,
    ) -> Result<Option<(File, Vec<u8>)>> {
        let mut options = OpenOptions::new();
        // A pipe would otherwise keep who opens it until someone writes to it.
        options.read(true).follow(FollowSymlinks::No).nonblock(true);
        let mut file = match self.dir.open_with(name, &options) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.cannot_open(name, &error)),
        };
        let metadata = file
            .metadata()
            .map_err(|error| failed("expected to look at the file", &error))?;
        owner::check_file(&metadata)?;
        if links == Links::One {
            owner::check_links(&metadata)?;
        }
        let bytes = read_whole(&mut file, &metadata, most)?;
        Ok(Some((file, bytes)))
    }

    fn cannot_open(&self, name: &str, error: &io::Error) -> Status {
        let metadata = self.dir.symlink_metadata(name).ok();
        match metadata.filter(|metadata| !metadata.is_file()) {
            Some(other) => denied(format!(
                "expected a regular file, found {}",
                owner::kind(&other)
            )),
            None => failed("expected to open the file", error),
        }
    }

    /// Puts a file there, in place of another of this name.
    pub(super) fn write(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        let unfinished = self.write_unfinished(parts, false)?;
        let renamed = self.dir.rename(&unfinished, &self.dir, name);
        renamed.map_err(|error| {
            self.remove(&unfinished);
            failed("expected to put the file into its place", &error)
        })
    }

    /// Puts a file there, unless there is one of this name, which is then left alone.
    pub(super) fn create(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let unfinished = self.write_unfinished(&[bytes], true)?;
        // Unlike renaming, this replaces nothing.
        let linked = self.dir.hard_link(&unfinished, &self.dir, name);
        self.remove(&unfinished);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed("expected to put the file into its place", &error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a file of a name that no other has.
    fn write_unfinished(&self, parts: &[&[u8]], sync: bool) -> Result<String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(no_random_bytes)?;
        let name = format!("{}{UNFINISHED}", hexadecimal(&random));
        let opened = self.dir.open_with(&name, &owner::file_options());
        let written = opened.and_then(|mut file| {
            parts.iter().try_for_each(|part| file.write_all(part))?;
            if sync { file.sync_all() } else { Ok(()) }
        });
        match written {
            Ok(()) => Ok(name),
            Err(error) => {
                self.remove(&name);
                Err(failed("expected to write a file", &error))
            }
        }
    }

    /// The cache's own files but the secret. What else lies there is not the cache's to count or remove.
    pub(super) fn list(&self) -> Result<Vec<Listed>> {
        let cannot = |error| failed("expected to list the directory", &error);
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
            // Another process may have removed it meanwhile.
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

    /// Removes a file. Whether that succeeds only a listing can say: another process may have been faster.
    pub(super) fn remove(&self, name: &str) {
        let _ = self.dir.remove_file(name);
    }
}

/// The name of the entry with this digest.
pub(super) fn entry_name(digest: &[u8]) -> String {
    format!("{}{ENTRY}", hexadecimal(digest))
}

/// Notes that a file was used. Where that is not possible, as on a file system that can only be read, entries go in the order in which
/// they were written.
pub(super) fn touch(file: File) {
    let _ = file.into_std().set_modified(SystemTime::now());
}

pub(super) fn no_random_bytes(error: getrandom::Error) -> Status {
    Status::new(
        StatusCode::Unavailable,
        Blame::Host,
        format!("expected random bytes from the operating system: {error}"),
    )
}

/// Reads a file that has at most so many bytes, all of them.
fn read_whole(file: &mut File, metadata: &Metadata, most: u64) -> Result<Vec<u8>> {
    let size = metadata.len();
    if size > most {
        return Err(corrupt(format!(
            "expected a file of at most {most} bytes, found {size}"
        )));
    }
    let mut bytes = Vec::new();
    usize::try_from(size)
        .ok()
        .and_then(|size| bytes.try_reserve_exact(size).ok())
        .ok_or_else(|| {
            Status::new(
                StatusCode::ResourceExhausted,
                Blame::Host,
                format!("expected memory for a file of {size} bytes"),
            )
        })?;
    let read = file.take(size).read_to_end(&mut bytes);
    let read = read.map_err(|error| failed("expected to read the file", &error))?;
    match read as u64 == size {
        true => Ok(bytes),
        false => Err(corrupt(format!(
            "expected a file of {size} bytes, found it cut to {read} meanwhile"
        ))),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A status for what the operating system said.
fn failed(expected: impl Display, error: &io::Error) -> Status {
    use io::ErrorKind as Kind;
    let code = match error.kind() {
        Kind::NotFound => StatusCode::NotFound,
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => StatusCode::PermissionDenied,
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge | Kind::OutOfMemory => {
            StatusCode::ResourceExhausted
        }
        _ => StatusCode::Unavailable,
    };
    Status::new(code, Blame::Host, format!("{expected}: {error}"))
}
