//! Reads files with native code, by paths that the embedder names.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use callbox_core::regular_file;
use callbox_core::untrusted_text::shown_path;
use callbox_core::values::{Blame, Result, Status, StatusCode};

/// The largest file that is read, and the most bytes of a manifest's images together.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED or UNKNOWN as the system reports; INVALID_ARGUMENT if the path is
/// not a regular file; RESOURCE_EXHAUSTED if the file is larger.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let failed = |error: io::Error| {
        let code = match error.kind() {
            ErrorKind::NotFound => StatusCode::NotFound,
            ErrorKind::PermissionDenied => StatusCode::PermissionDenied,
            ErrorKind::IsADirectory | ErrorKind::InvalidInput => StatusCode::InvalidArgument,
            _ => StatusCode::Unknown,
        };
        let message = format!("expected to read {}: {error}", shown_path(path));
        Status::new(code, Blame::Caller, message)
    };
    let file = regular_file::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!("{} has more than {most} bytes", shown_path(path)),
        ));
    }
    Ok(bytes)
}
