//! Folders, for sites of files.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use callbox::{Blame, Status, StatusCode};

use super::{BundleChange, Content, Published};
use crate::failure::{Failure, Outcome};
use crate::{regular_file, signing, write_file};

/// How long a command waits for another one that publishes into the same folder.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes `NAME-VERSION.wasm`, and its bundle beside it, into a folder, which is made if it does
/// not exist.
pub(super) fn publish(
    content: Content<'_>,
    folder: &Path,
    replaces: bool,
    published: &mut Published,
) -> Outcome<()> {
    let header = content.package.header();
    let package = content.package.bytes();
    let path = folder.join(format!("{}-{}.wasm", header.name, header.version));
    published.to = path.to_string_lossy().into_owned();
    if folder.is_file() {
        let message = "expected a folder, hf:ORG/NAME@VERSION or oci:HOST/PATH:TAG, found a file";
        let status = Status::invalid_argument(message).context(folder.display());
        return Err(Failure::usage(status));
    }
    let cannot = |error| Failure::file(format!("expected to make {}", folder.display()), &error);
    fs::create_dir_all(folder).map_err(cannot)?;
    let _held = hold(folder)?;
    let is_there = path.symlink_metadata().is_ok();
    let found = regular_file::read(&path, package.len());
    let is_same = is_there && found.is_ok_and(|found| found == package);
    if is_there && !is_same && !replaces {
        return Err(refused(
            &path,
            "another package of this version is there: a new version needs a greater number, and \
             --replace replaces it",
        ));
    }
    let beside = signing::beside(&path);
    let found = signing::bundle_of(&path)?;
    let change = content.bundle_change(found.as_deref());
    if change != BundleChange::Keep && found.is_some() && !replaces {
        return Err(refused(
            &beside,
            "another bundle of signatures is there: --replace replaces or removes it",
        ));
    }
    // The bundle comes first, so that a new package is never there without it.
    if let (BundleChange::Write, Some(bundle)) = (change, content.bundle) {
        write_file::write(&beside, &[bundle])?;
    }
    if !is_same {
        write_file::write(&path, &[package])?;
    }
    // One of an earlier package goes last, so that this one never loses it.
    if change == BundleChange::Remove {
        fs::remove_file(&beside).map_err(|error| regular_file::cannot(&beside, &error))?;
    }
    published.changed = !is_same || change != BundleChange::Keep;
    let has_bundle = content.bundle.is_some();
    published.bundle = has_bundle.then(|| beside.to_string_lossy().into_owned());
    Ok(())
}

/// Locks a folder, so that of two commands at once the second sees the files of the first. `None`
/// on systems without such locks.
fn hold(folder: &Path) -> Outcome<Option<File>> {
    let until = Instant::now() + PATIENCE;
    let Ok(file) = File::open(folder) else {
        return Ok(None);
    };
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(refused(
                    folder,
                    "another command holds a lock on the folder",
                ));
            }
        }
    }
}

fn refused(path: &Path, message: &str) -> Failure {
    let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
    status.context(path.display()).into()
}
