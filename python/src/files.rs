//! Reads the files that a caller names.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Error, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use pyo3::exceptions::{PyFileNotFoundError, PyIsADirectoryError, PyOSError, PyPermissionError};
use pyo3::prelude::*;

/// Reads a regular file of at most `most` bytes.
///
/// Of a longer file it reads one byte more, so that the library refuses it.
pub(crate) fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = (most as u64).saturating_add(1);
    open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file. Opening a FIFO would wait for a writer, and opening a device may have an
/// effect.
fn open(path: &Path) -> io::Result<File> {
    check_type(path.metadata()?.file_type())?;
    // If a FIFO takes the file's place between the two checks, opening it does not wait.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    check_type(file.metadata()?.file_type())?;
    Ok(file)
}

fn check_type(found: FileType) -> io::Result<()> {
    let (kind, name) = match found {
        _ if found.is_file() => return Ok(()),
        _ if found.is_dir() => (ErrorKind::IsADirectory, "a directory"),
        _ if found.is_fifo() => (ErrorKind::InvalidInput, "a FIFO"),
        _ if found.is_socket() => (ErrorKind::InvalidInput, "a socket"),
        _ => (ErrorKind::InvalidInput, "a device"),
    };
    Err(Error::new(
        kind,
        format!("expected a regular file, found {name}"),
    ))
}

/// Converts the error of reading a file.
pub(crate) fn error(path: &Path, error: &Error) -> PyErr {
    let message = format!("cannot read {}: {error}", path.display());
    match error.kind() {
        ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
        ErrorKind::IsADirectory => PyIsADirectoryError::new_err(message),
        ErrorKind::PermissionDenied => PyPermissionError::new_err(message),
        _ => PyOSError::new_err(message),
    }
}
