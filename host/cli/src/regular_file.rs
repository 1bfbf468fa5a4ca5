//! Reads the files that a command line names.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use callbox::{Blame, Status, StatusCode};
use callbox_core::regular_file;

use super::failure::{Failure, Outcome};

/// Opens a regular file.
pub(super) fn open(path: &Path) -> Outcome<File> {
    regular_file::open(path).map_err(|error| cannot(path, &error))
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
