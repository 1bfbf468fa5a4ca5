//! Folders, for sites of files.

use std::fs;
use std::path::Path;

use callbox::{Blame, Status, StatusCode};
use callbox_package::Package;

use super::Published;
use crate::failure::{Failure, Outcome};
use crate::{regular_file, write_file};

/// Writes `NAME-VERSION.wasm` into a folder, which is made if it does not exist.
pub(super) fn publish(
    package: &Package<'_>,
    folder: &Path,
    replaces: bool,
    published: &mut Published,
) -> Outcome<()> {
    let header = package.header();
    let path = folder.join(format!("{}-{}.wasm", header.name, header.version));
    published.to = path.to_string_lossy().into_owned();
    if path.symlink_metadata().is_ok() {
        let found = regular_file::read(&path, package.bytes().len());
        if found.is_ok_and(|found| found == package.bytes()) {
            published.changed = false;
            return Ok(());
        }
        if !replaces {
            let message = "another package of this version is there: a new version needs a greater \
                           number, and --replace replaces it";
            let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
            return Err(status.context(path.display()).into());
        }
    }
    if folder.is_file() {
        let message = "expected a folder, hf:ORG/NAME@VERSION or oci:HOST/PATH:TAG, found a file";
        let status = Status::invalid_argument(message).context(folder.display());
        return Err(Failure::usage(status));
    }
    let cannot = |error| Failure::file(format!("expected to make {}", folder.display()), &error);
    fs::create_dir_all(folder).map_err(cannot)?;
    write_file::write(&path, &[package.bytes()])
}
