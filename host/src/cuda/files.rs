//! Files with native code, by the paths that the embedder gives.
#![allow(
    clippy::disallowed_methods,
    reason = "the embedder names the files, with its own authority"
)]

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use crate::values::{Blame, Result, Status, StatusCode};

/// The largest file that is read, in bytes.
const MOST: u64 = 1 << 30;

/// A file's bytes.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED or UNKNOWN as the system says; INVALID_ARGUMENT for what is no file; RESOURCE_EXHAUSTED for one of more than 1 GiB.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: io::Error| {
        let code = match error.kind() {
            ErrorKind::NotFound => StatusCode::NotFound,
            ErrorKind::PermissionDenied => StatusCode::PermissionDenied,
            _ => StatusCode::Unknown,
        };
        let text = format!("expected to read {}: {error}", path.display());
        Status::new(code, Blame::Caller, text)
    };
    // Looked at before it is opened: opening a FIFO waits for ever.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Status::invalid_argument(format!(
            "{}: expected a file, found something else",
            path.display()
        )));
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let read = file
        .take(MOST + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    match read as u64 > MOST {
        false => Ok(bytes),
        true => Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!(
                "{}: expected at most {MOST} bytes, found more",
                path.display()
            ),
        )),
    }
}
