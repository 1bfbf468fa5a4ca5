//! Whose files are: the part of the cache that asks the operating system who may write what.

use cap_std::fs::{DirBuilder, Metadata, OpenOptions};

use super::denied;
use crate::values::Result;

/// The mode of the directory.
const DIRECTORY: u32 = 0o700;

/// The mode of the files in it.
const FILE: u32 = 0o600;

/// Checks that a directory is the effective user's and nobody else's to read or write.
///
/// # Errors
/// PERMISSION_DENIED, or UNIMPLEMENTED where files have no owners.
pub(super) fn check_directory(metadata: &Metadata) -> Result<()> {
    match metadata.is_dir() {
        true => platform::check(metadata, DIRECTORY, "directory"),
        false => Err(denied(format!(
            "expected a directory, found {}",
            kind(metadata)
        ))),
    }
}

/// The same of a file, which must be a regular one.
///
/// # Errors
/// As for [`check_directory`].
pub(super) fn check_file(metadata: &Metadata) -> Result<()> {
    match metadata.is_file() {
        true => platform::check(metadata, FILE, "file"),
        false => Err(denied(format!(
            "expected a regular file, found {}",
            kind(metadata)
        ))),
    }
}

/// Checks that a file has no other name, by which it could be written to from elsewhere. It may have none any longer: another process
/// replaced or removed it since it was opened.
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

/// What a file is, for a message.
pub(super) fn kind(metadata: &Metadata) -> &'static str {
    match () {
        () if metadata.is_symlink() => "a symbolic link",
        () if metadata.is_dir() => "a directory",
        () if metadata.is_file() => "a regular file",
        () => "a file of another kind",
    }
}

/// How the directory is made.
pub(super) fn directory_builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    platform::set_directory_mode(&mut builder, DIRECTORY);
    builder
}

/// How a file is made.
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
        // The bits above these say nothing of who may read or write, and a directory may inherit one.
        let found = metadata.mode() & 0o777;
        match found == mode {
            true => Ok(()),
            false => Err(denied(format!(
                "expected a {what} of mode {mode:04o}, found {found:04o}"
            ))),
        }
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

    use super::Result;
    use crate::values::Status;

    pub(super) fn check(_: &Metadata, _: u32, _: &str) -> Result<()> {
        Err(Status::unimplemented(
            "expected a system whose files have owners and modes for a compile cache",
        ))
    }

    pub(super) fn links(_: &Metadata) -> u64 {
        0
    }

    pub(super) fn set_directory_mode(_: &mut DirBuilder, _: u32) {}

    pub(super) fn set_file_mode(_: &mut OpenOptions, _: u32) {}
}
