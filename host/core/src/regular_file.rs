//! Opens regular files.
//!
//! A manifest or a package names further files, so that a path is not always the user's own.
//! Opening a FIFO waits for a writer, and opening a device may have an effect.
#![allow(
    clippy::disallowed_methods,
    reason = "the embedder names the files, and they are read with its authority"
)]

use std::fs::{File, FileType, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Opens a regular file for reading.
///
/// # Errors
/// The system's; `IsADirectory` and `InvalidInput` if the path is something else.
pub fn open(path: &Path) -> Result<File> {
    check_type(path.metadata()?.file_type())?;
    let mut options = OpenOptions::new();
    options.read(true);
    // If a FIFO takes the file's place between the two checks, opening it does not wait.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    let file = options.open(path)?;
    check_type(file.metadata()?.file_type())?;
    Ok(file)
}

fn check_type(found: FileType) -> Result<()> {
    if found.is_file() {
        return Ok(());
    }
    let kind = if found.is_dir() {
        ErrorKind::IsADirectory
    } else {
        ErrorKind::InvalidInput
    };
    let message = format!("expected a regular file, found {}", name(found));
    Err(Error::new(kind, message))
}

fn name(found: FileType) -> &'static str {
    #[cfg(unix)]
    use std::os::unix::fs::FileTypeExt;
    match found {
        _ if found.is_dir() => "a directory",
        #[cfg(unix)]
        _ if found.is_fifo() => "a FIFO",
        #[cfg(unix)]
        _ if found.is_socket() => "a socket",
        _ => "a device",
    }
}
