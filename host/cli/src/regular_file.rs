//! Opens and reads the files that a command line names.
//!
//! A manifest names further files, so that the paths are not always the user's own. Regular files
//! alone are opened: opening a FIFO waits for a writer, and opening a device may have an effect.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use callbox::{Blame, Status, StatusCode};

use super::failure::{Failure, Outcome};

/// Opens a regular file.
pub(super) fn open(path: &Path) -> Outcome<File> {
    open_regular(path).map_err(|error| cannot(path, &error))
}

/// Reads a regular file of at most `most` bytes.
pub(super) fn read(path: &Path, most: usize) -> Outcome<Vec<u8>> {
    read_from(open(path)?, path, most)
}

/// Reads standard input, of at most `most` bytes.
pub(super) fn read_standard_input(most: usize) -> Outcome<Vec<u8>> {
    read_from(io::stdin().lock(), Path::new("-"), most)
}

fn read_from(file: impl Read, path: &Path, most: usize) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take((most as u64).saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| cannot(path, &error))?;
    if bytes.len() <= most {
        return Ok(bytes);
    }
    let message = format!("expected a file of at most {most} bytes, found more");
    let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
    Err(status.context(path.display()).into())
}

/// The failure to read a file.
pub(super) fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::file(format!("expected to read {}", path.display()), error)
}

fn open_regular(path: &Path) -> io::Result<File> {
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

fn check_type(found: FileType) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    Err(if found.is_dir() {
        io::ErrorKind::IsADirectory.into()
    } else {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "a FIFO, a device or a socket is not read; name a regular file",
        )
    })
}
