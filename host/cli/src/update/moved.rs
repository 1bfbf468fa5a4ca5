//! The references of a lock, and the changes of those that moved.

use std::collections::BTreeMap;
use std::sync::Arc;

use callbox::{Blame, Status, StatusCode};
use callbox_package::{Limits, Trust};
use serde::Serialize;

use crate::diff::{self, Difference};
use crate::failure::{Failure, Outcome};
use crate::fetch::bundles;
use crate::fetch::cache::digest;
use crate::fetch::hub::{self, Wanted};
use crate::fetch::locked::new_entries;
use crate::fetch::reference::{self, Place, Reference};
use crate::fetch::source::{self, Package};
use crate::lock::{Entry, Lock};
use crate::text::name;
use crate::{regular_file, signing};

/// A reference of a lock.
#[derive(Debug)]
pub(super) struct Locked {
    /// The reference as the lock has it.
    from: String,
    reference: Reference,
    /// The entry of a kernel of the Hub.
    kernel: Option<Entry>,
    /// The files that came from the reference.
    files: Vec<Entry>,
}

/// The new version of a reference.
#[derive(Debug)]
pub(super) struct Moved {
    /// Shared: each file of one reference has the same.
    pub(super) bytes: Arc<Vec<u8>>,
    /// The bundle beside it, if the old version has one or rules ask for one.
    pub(super) bundle: Option<Arc<Vec<u8>>>,
    /// The files to write, by their paths from the lock's folder.
    pub(super) files: Vec<String>,
    pub(super) entries: Vec<Entry>,
}

/// What was found at a reference.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    reference: String,
    pub(super) moved: bool,
    /// Whether the version goes back.
    older: bool,
    files: Vec<String>,
    old: Version,
    new: Version,
    diff: Option<Difference>,
}

/// A version of a reference: its digest as the lock has it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Version {
    digest: String,
    version: Option<String>,
    commit: Option<String>,
}

/// The references of a lock, in order.
pub(super) fn references(lock: &Lock) -> Outcome<Vec<Locked>> {
    let mut found: BTreeMap<&str, (Option<Entry>, Vec<Entry>)> = BTreeMap::new();
    for entry in lock.entries().values() {
        if let Some(from) = &entry.from {
            lock.check_path(&entry.file)?;
            found.entry(from).or_default().1.push(entry.clone());
        } else if entry.commit.is_some() {
            found.entry(&entry.file).or_default().0 = Some(entry.clone());
        }
    }
    let references = found.into_iter().map(|(from, (kernel, files))| {
        let parsed = reference::parse(from).and_then(|parsed| match parsed.name() {
            Some(name) if name == from && parsed.digest.is_none() => Ok(parsed),
            _ => Err("expected the reference of a host".to_owned()),
        });
        let reference = parsed.map_err(|message| {
            Status::invalid_argument(message)
                .context(name(from))
                .context(lock.path().display())
        })?;
        Ok(Locked {
            from: from.to_owned(),
            reference,
            kernel,
            files,
        })
    });
    references.collect()
}

/// Compares a reference with what the lock has of it.
pub(super) fn look(
    lock: &Lock,
    locked: &Locked,
    trust: Option<&Trust>,
) -> Outcome<(Report, Option<Moved>)> {
    let mut new = source::get(&locked.reference, None, false)?;
    let (old_version, new_version) = (locked.version(), locked.version_of(&new)?);
    let mut report = Report {
        reference: locked.from.clone(),
        moved: !locked.is_at(&new),
        older: is_older(
            old_version.version.as_deref(),
            new_version.version.as_deref(),
        ),
        files: locked.files.iter().map(|file| file.file.clone()).collect(),
        old: old_version,
        new: new_version,
        diff: None,
    };
    if !report.moved {
        return Ok((report, None));
    }
    let mut files = locked.files.iter();
    let has_bundle = |file: &Entry| signing::beside(&lock.path_of(&file.file)).exists();
    if new.takes_bundles(trust) || files.any(has_bundle) {
        new.bundle = bundles::of(&locked.reference, &new, trust, false)?;
    }
    new.check_trust(trust)?;
    let old = old_bytes(lock, locked)?;
    let from = name(&locked.from);
    report.diff = Some(diff::between((&from, &old), (&from, &new.bytes))?);
    Ok((report, Some(moved(lock, locked, new)?)))
}

impl Locked {
    /// Whether the lock has this version everywhere.
    fn is_at(&self, package: &Package) -> bool {
        let sha256 = digest(&package.bytes);
        let is_kernel_same = match (&self.kernel, &package.hub) {
            (Some(entry), Some(hub)) => {
                entry.digest == hub.digest && entry.commit.as_ref() == Some(&hub.commit)
            }
            _ => true,
        };
        is_kernel_same && self.files.iter().all(|file| file.digest == sha256)
    }

    /// The version that the lock has.
    fn version(&self) -> Version {
        let entry = self.kernel.as_ref().or(self.files.first());
        Version {
            digest: entry.map(|entry| entry.digest.clone()).unwrap_or_default(),
            version: entry.and_then(|entry| entry.version.clone()),
            commit: entry.and_then(|entry| entry.commit.clone()),
        }
    }

    fn version_of(&self, package: &Package) -> Outcome<Version> {
        let kernel = self.kernel.as_ref().and(package.hub.as_ref());
        let sha256 = || digest(&package.bytes);
        Ok(Version {
            digest: kernel.map_or_else(sha256, |hub| hub.digest.clone()),
            version: package.header()?.map(|(_, version)| version),
            commit: kernel.map(|hub| hub.commit.clone()),
        })
    }
}

/// The package that the lock has: one of its files, or what its host has for the commit.
fn old_bytes(lock: &Lock, locked: &Locked) -> Outcome<Vec<u8>> {
    let most = Limits::default().package_bytes;
    for file in &locked.files {
        let bytes = regular_file::read(&lock.path_of(&file.file), most);
        if let Some(bytes) = bytes.ok().filter(|bytes| digest(bytes) == file.digest) {
            return Ok(bytes);
        }
    }
    if let (Some(entry), Place::Hub(reference)) = (&locked.kernel, &locked.reference.place) {
        let who = format!("{} has", lock.path().display());
        let wanted = Wanted {
            commit: entry.commit.clone(),
            digest: Some((entry.digest.clone(), who)),
        };
        let found = source::from_hub(reference, &wanted, false);
        return match found {
            Ok(found) => Ok(found.bytes),
            Err(failure) => Err(locked.reference.in_failure(failure)),
        };
    }
    let cache = hub::cache()?;
    let mut files = locked.files.iter();
    let known = files.find_map(|file| cache.file(&file.digest, most));
    known.ok_or_else(|| {
        let message = "its locked version is neither in its file nor in the cache, so that there \
                       is nothing to compare: restore the file";
        let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
        status.context(name(&locked.from)).into()
    })
}

/// What to write for the new version.
fn moved(lock: &Lock, locked: &Locked, new: Package) -> Outcome<Moved> {
    let mut entries = Vec::new();
    if locked.kernel.is_some() {
        entries.extend(new_entries(&locked.from, None, &new)?);
    }
    let most = Limits::default().package_bytes;
    let sha256 = digest(&new.bytes);
    let mut files = Vec::new();
    for file in &locked.files {
        let added = new_entries(&locked.from, Some(&file.file), &new)?;
        entries.extend(added.into_iter().filter(|entry| entry.from.is_some()));
        let path = lock.path_of(&file.file);
        if path.symlink_metadata().is_ok() {
            let found = digest(&regular_file::read(&path, most)?);
            if found != file.digest && found != sha256 {
                return Err(changed(lock, file));
            }
        }
        files.push(file.file.clone());
    }
    Ok(Moved {
        bytes: Arc::new(new.bytes),
        bundle: new.bundle.map(Arc::new),
        files,
        entries,
    })
}

/// The failure for a file that is not the one that the lock has.
fn changed(lock: &Lock, file: &Entry) -> Failure {
    let lock = lock.path().display();
    let message = format!("expected the file that {lock} has, found another one: restore it first");
    let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
    status.context(name(&file.file)).into()
}

/// Whether a version comes before another one. Text after the three numbers is not compared.
pub(crate) fn is_older(old: Option<&str>, new: Option<&str>) -> bool {
    fn numbers(version: &str) -> Option<Vec<u64>> {
        let core = version.split(['-', '+']).next()?;
        core.split('.').map(|number| number.parse().ok()).collect()
    }
    let old = old.and_then(numbers);
    new.and_then(numbers)
        .zip(old)
        .is_some_and(|(new, old)| new < old)
}

impl Report {
    pub(super) fn describe(&self) -> String {
        let reference = name(&self.reference);
        let Some(diff) = &self.diff else {
            return format!("{reference}\n  did not move\n");
        };
        let mut lines = vec![reference];
        if let (Some(old), Some(new)) = (&self.old.commit, &self.new.commit) {
            lines.push(format!("  commit {old} became {new}"));
        }
        if self.older {
            lines.push("  ! the new version is older than the locked one".to_owned());
        }
        let changes = diff.describe();
        lines.extend(changes.lines().map(|line| format!("  {line}")));
        lines.join("\n") + "\n"
    }
}
