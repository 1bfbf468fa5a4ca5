//! Writes one file that a command line names.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::path::Path;

use super::failure::{Failure, Outcome};

/// Writes a file, replacing an earlier one, whose mode it keeps. If writing fails, the earlier one
/// stays.
pub(super) fn write(path: &Path, parts: &[&[u8]]) -> Outcome<()> {
    write_with(path, |file| {
        parts.iter().try_for_each(|part| file.write_all(part))
    })
}

/// The same with the contents that a function writes.
pub(super) fn write_with(
    path: &Path,
    contents: impl FnOnce(&mut File) -> io::Result<()>,
) -> Outcome<()> {
    write_as(path, path, contents)
}

/// Writes a file that is to take the place of another one, whose mode it gets.
#[cfg_attr(not(feature = "fetch"), allow(dead_code, reason = "of downloads only"))]
pub(super) fn write_beside(staged: &Path, path: &Path, parts: &[&[u8]]) -> Outcome<()> {
    write_as(staged, path, |file| {
        parts.iter().try_for_each(|part| file.write_all(part))
    })
}

/// Writes a file with the mode of another one, or of an earlier one of the same name.
fn write_as(
    path: &Path,
    like: &Path,
    contents: impl FnOnce(&mut File) -> io::Result<()>,
) -> Outcome<()> {
    let mut staged = path.as_os_str().to_owned();
    staged.push(format!(".{}.part", std::process::id()));
    let staged = Path::new(&staged);
    let earlier = like.metadata().ok().filter(fs::Metadata::is_file);
    let permissions = earlier.map(|data| data.permissions());
    let written = stage(staged, permissions, contents).and_then(|()| fs::rename(staged, path));
    written.map_err(|error| {
        // The part file may not exist. Errors are discarded.
        let _ = fs::remove_file(staged);
        Failure::file(format!("expected to write {}", path.display()), &error)
    })
}

fn stage(
    path: &Path,
    permissions: Option<Permissions>,
    contents: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    // Before the contents, which may be private.
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    contents(&mut file)?;
    // Some file systems report a full disk only now.
    file.sync_all()
}
