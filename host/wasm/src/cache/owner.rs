//! Checks owners and modes: which users may access the cache's files.

use callbox_core::values::{Result, Status};
use cap_std::fs::{DirBuilder, Metadata, OpenOptions};

use super::failure::denied;

/// The mode of the directory.
const DIRECTORY: u32 = 0o700;

/// The mode of the files in it.
const FILE: u32 = 0o600;

/// Checks that a directory belongs to the effective user, with no access for others.
///
/// # Errors
/// PERMISSION_DENIED, or UNIMPLEMENTED where files have no owners.
pub(super) fn check_directory(metadata: &Metadata) -> Result<()> {
    if !metadata.is_dir() {
        return Err(unexpected_kind("a directory", metadata));
    }
    platform::check(metadata, DIRECTORY, "directory")
}

/// Checks the same of a file, which must be a regular file.
///
/// # Errors
/// As for [`check_directory`].
pub(super) fn check_file(metadata: &Metadata) -> Result<()> {
    if !metadata.is_file() {
        return Err(unexpected_kind("a regular file", metadata));
    }
    platform::check(metadata, FILE, "file")
}

/// Checks that a file has no other name, through which it could be written. It has none at all if
/// another process has replaced or removed it since it was opened.
///
/// # Errors
/// PERMISSION_DENIED.
pub(super) fn check_links(metadata: &Metadata) -> Result<()> {
    match platform::links(metadata) {
        0 | 1 => Ok(()),
        links => Err(denied(format!(
            "expected a file with one link, found {links}"
        ))),
    }
}

/// PERMISSION_DENIED for a file of another kind than expected.
pub(super) fn unexpected_kind(expected: &str, metadata: &Metadata) -> Status {
    let found = if metadata.is_symlink() {
        "a symbolic link"
    } else if metadata.is_dir() {
        "a directory"
    } else if metadata.is_file() {
        "a regular file"
    } else {
        "a file of another kind"
    };
    denied(format!("expected {expected}, found {found}"))
}

/// A builder of the directory, with its mode.
pub(super) fn directory_builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    platform::set_directory_mode(&mut builder, DIRECTORY);
    builder
}

/// Options that create a file, with its mode.
pub(super) fn file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    platform::set_file_mode(&mut options, FILE);
    options
}

#[cfg(unix)]
mod platform {
    use cap_std::fs::{
        DirBuilder, DirBuilderExt, Metadata, MetadataExt, OpenOptions, OpenOptionsExt,
    };

    use super::{Result, denied};

    pub(super) fn check(metadata: &Metadata, mode: u32, what: &str) -> Result<()> {
        let user = rustix::process::geteuid().as_raw();
        if metadata.uid() != user {
            return Err(denied(format!(
                "expected a {what} of user {user}, found one of user {}",
                metadata.uid()
            )));
        }
        // The higher bits grant no access, and a directory may inherit one.
        let found = metadata.mode() & 0o777;
        if found != mode {
            return Err(denied(format!(
                "expected a {what} of mode {mode:04o}, found {found:04o}"
            )));
        }
        Ok(())
    }

    pub(super) fn links(metadata: &Metadata) -> u64 {
        metadata.nlink()
    }

    pub(super) fn set_directory_mode(builder: &mut DirBuilder, mode: u32) {
        builder.mode(mode);
    }

    pub(super) fn set_file_mode(options: &mut OpenOptions, mode: u32) {
        options.mode(mode);
    }
}

#[cfg(not(unix))]
mod platform {
    use cap_std::fs::{DirBuilder, Metadata, OpenOptions};

    use super::{Result, Status};

    pub(super) fn check(_: &Metadata, _: u32, _: &str) -> Result<()> {
        Err(Status::unimplemented(
            "a compile cache needs a system whose files have owners and modes",
        ))
    }

    pub(super) fn links(_: &Metadata) -> u64 {
        0
    }

    pub(super) fn set_directory_mode(_: &mut DirBuilder, _: u32) {}

    pub(super) fn set_file_mode(_: &mut OpenOptions, _: u32) {}
}
