//! References in a lock.

use std::path::{Path, PathBuf};

use callbox::{Blame, Status, StatusCode};

use super::cache::digest;
use super::reference::{Place, Reference};
use super::source::Package;
use crate::failure::{Failure, Outcome};
use crate::lock::{Entries, Entry, Lock, elsewhere, finish, folder_of, name_of_new, write_lock};

/// What `--write-lock` adds to a lock.
#[derive(Debug)]
pub(super) struct Additions {
    lock: PathBuf,
    entries: Entries,
}

impl Additions {
    /// The entries of a package that is to be written to a file.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the lock has another version of the reference: `callbox update`
    /// shows what changed, and this does not.
    pub(super) fn new(
        lock: &Path,
        reference: &Reference,
        file: &Path,
        package: &Package,
    ) -> Outcome<Self> {
        let Some(from) = reference.name() else {
            let message = "--write-lock is for references of hosts: `callbox lock` locks files";
            return Err(Failure::usage(Status::invalid_argument(message)));
        };
        if matches!(&reference.place, Place::Web(address) if address.has_query()) {
            let message = "expected an address without a query, which locks do not keep";
            return Err(Failure::usage(Status::invalid_argument(message)));
        }
        finish(lock)?;
        let mut entries = if lock.exists() {
            Lock::read(lock)?.entries().clone()
        } else {
            Entries::new()
        };
        let name = name_of_new(&folder_of(lock)?, file)?.ok_or_else(|| elsewhere(file))?;
        for added in new_entries(&from, Some(&name), package)? {
            let known = entries.values();
            let mut known = known.filter(|known| {
                known.file == added.file || added.from.is_some() && known.from == added.from
            });
            if let Some(other) = known.find(|known| known.digest != added.digest) {
                let message = format!(
                    "{} has {} with another digest, {}: `callbox update` shows what changed",
                    lock.display(),
                    other.file,
                    other.digest
                );
                let code = StatusCode::FailedPrecondition;
                return Err(Status::new(code, Blame::Caller, message).into());
            }
            entries.insert(added.file.clone(), added);
        }
        let lock = lock.to_owned();
        Ok(Self { lock, entries })
    }

    pub(super) fn write(self) -> Outcome<()> {
        write_lock(&self.lock, &self.entries).map(|_| ())
    }
}

/// The entries of a reference and of the file that has its package.
pub(crate) fn new_entries(
    from: &str,
    file: Option<&str>,
    package: &Package,
) -> Outcome<Vec<Entry>> {
    let header = package.header()?;
    let name = header.as_ref().map(|(name, _)| name.clone());
    let version = header.map(|(_, version)| version);
    let kernel = package.hub.as_ref().map(|hub| Entry {
        file: from.to_owned(),
        digest: hub.digest.clone(),
        size: hub.size as u64,
        name: name.clone(),
        version: version.clone(),
        commit: Some(hub.commit.clone()),
        from: None,
    });
    let file = file.map(|file| Entry {
        file: file.to_owned(),
        digest: digest(&package.bytes),
        size: package.bytes.len() as u64,
        name: name.clone(),
        version: version.clone(),
        commit: None,
        from: Some(from.to_owned()),
    });
    Ok(kernel.into_iter().chain(file).collect())
}
