//! The file of a lock.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use callbox::{Blame, Status, StatusCode};
use callbox_core::json::{Object, objects};
use callbox_core::untrusted_text::{sanitize, shown_name};
use serde::{Deserialize, Serialize};

use super::next;
use crate::failure::{Failure, Outcome};
use crate::package::{in_tensor, tensor_in};
use crate::text::name;
use crate::{output, regular_file, write_file};

/// The longest error of the JSON reader, in bytes. It quotes unknown keys.
const MAX_ERROR: usize = 4096;

/// The version of the format.
const FORMAT: u64 = 1;

/// The largest lock that is read.
pub(super) const MOST_BYTES: usize = 1 << 20;

/// The JSON of a lock.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockFile {
    format: u64,
    #[serde(deserialize_with = "objects")]
    files: Vec<Entry>,
}

/// The entries of a lock by their paths or references.
pub(crate) type Entries = BTreeMap<String, Entry>;

/// A locked file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// The path from the lock's folder, with `/` between names, and `#TENSOR` for a package beside
    /// weights. Or the reference of a kernel of the Hub.
    pub(crate) file: String,
    /// SHA-256 of the file, over a manifest and its images, or of the metadata of a kernel.
    pub(crate) digest: String,
    /// The size of the file in bytes.
    pub(crate) size: u64,
    /// The name of a package, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The version of a package, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// The commit of a kernel of the Hub, which `callbox.hub` of the Python package loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// The reference that `callbox fetch` got the file from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
}

impl Entry {
    /// The entry for a person.
    pub(crate) fn describe(&self) -> String {
        let version = self.version.as_ref().map(|v| format!(" {v}"));
        let version = version.unwrap_or_default();
        format!(
            "{}{version}, {} bytes, {}",
            shown_name(&self.file),
            self.size,
            self.digest
        )
    }
}

/// A lock: the only files with code that a command may load.
#[derive(Debug)]
pub(crate) struct Lock {
    /// The lock as the command line names it.
    path: PathBuf,
    /// The real path of its folder.
    folder: PathBuf,
    entries: Entries,
    /// The entries that an interrupted change would have, which count too.
    next: Entries,
}

pub(super) fn wrong_lock(error: &str) -> String {
    let shown = sanitize(error.as_bytes(), error.len(), MAX_ERROR);
    format!("the lock is wrong: {shown}")
}

impl LockFile {
    pub(super) fn new(entries: &Entries) -> Self {
        Self {
            format: FORMAT,
            files: entries.values().cloned().collect(),
        }
    }

    /// Reads the text of a lock.
    pub(super) fn parse(text: &[u8]) -> Result<Entries, String> {
        let read = serde_json::from_slice::<Object<Self>>(text);
        let Object(lock) = read.map_err(|error| wrong_lock(&error.to_string()))?;
        lock.entries()
    }

    /// The entries, which are checked.
    pub(super) fn entries(self) -> Result<Entries, String> {
        if self.format != FORMAT {
            let found = self.format;
            return Err(format!("expected `format` {FORMAT}, found {found}"));
        }
        let mut entries = BTreeMap::new();
        for entry in self.files {
            let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            if entry.digest.len() != 64 || !entry.digest.bytes().all(is_digit) {
                return Err(format!(
                    "expected a SHA-256 of 64 lower-case hexadecimal digits for \"{}\", found \
                     \"{}\"",
                    shown_name(&entry.file),
                    shown_name(&entry.digest)
                ));
            }
            if let Some(twice) = entries.insert(entry.file.clone(), entry) {
                return Err(format!(
                    "the lock has \"{}\" twice",
                    shown_name(&twice.file)
                ));
            }
        }
        Ok(entries)
    }
}

impl Lock {
    /// Reads a lock.
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let text = regular_file::read(path, MOST_BYTES)?;
        let entries = LockFile::parse(&text)
            .map_err(|message| Status::invalid_argument(message).context(path.display()))?;
        let next = next::of(path, &text)?;
        if next.is_some() {
            let lock = path.display();
            output::warn(&format!(
                "{lock}: an update was interrupted, so that its files count in both versions: \
                 `callbox update` finishes it"
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            folder: folder_of(path)?,
            entries,
            next: next.unwrap_or_default(),
        })
    }

    /// Checks the digest and the size of a file that was read.
    pub(crate) fn check(&self, file: &Path, digest: &str, size: u64) -> Outcome<()> {
        let name = name_below(&self.folder, file)?;
        self.check_entry(self.entry(name, file)?, file, digest, size)
    }

    /// The same for a module in a tensor of a file with any name.
    #[cfg_attr(not(feature = "fetch"), allow(dead_code, reason = "of programs only"))]
    pub(crate) fn check_tensor(
        &self,
        file: &Path,
        tensor: &str,
        digest: &str,
        size: u64,
    ) -> Outcome<()> {
        let name = name_below(&self.folder, file)?.map(|name| format!("{name}#{tensor}"));
        let file = in_tensor(file, tensor);
        self.check_entry(self.entry(name, &file)?, &file, digest, size)
    }

    fn check_entry(&self, entry: &Entry, file: &Path, digest: &str, size: u64) -> Outcome<()> {
        let is_it = |entry: &Entry| entry.digest == digest && entry.size == size;
        if is_it(entry) || self.next.get(&entry.file).is_some_and(is_it) {
            return Ok(());
        }
        Err(self.differs(file, entry, &format!("{size} bytes, {digest}")))
    }

    /// Checks the digest over a manifest and its images.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "of manifests only"))]
    pub(crate) fn check_digest(&self, file: &Path, digest: &str) -> Outcome<()> {
        let entry = self.entry(name_below(&self.folder, file)?, file)?;
        if entry.digest == digest {
            return Ok(());
        }
        Err(self.differs(file, entry, digest))
    }

    /// The commit and the digest of a kernel of the Hub.
    pub(crate) fn kernel(&self, reference: &str) -> Outcome<(String, String)> {
        let entry = self.entries.get(reference);
        let commit = entry.and_then(|entry| entry.commit.clone());
        commit
            .zip(entry.map(|entry| entry.digest.clone()))
            .ok_or_else(|| {
                denied(format!(
                    "{reference} is not in {}: `callbox fetch --write-lock` writes it down",
                    self.path.display()
                ))
            })
    }

    /// The digest of the file that `callbox fetch` got from a reference.
    pub(crate) fn fetched(&self, reference: &str) -> Outcome<String> {
        let mut entries = self.entries.values();
        let found = entries.find(|entry| entry.from.as_deref() == Some(reference));
        found.map(|entry| entry.digest.clone()).ok_or_else(|| {
            denied(format!(
                "{reference} is not in {}: `callbox fetch --write-lock` writes it down",
                self.path.display()
            ))
        })
    }

    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Checks that the path of an entry, whose file may be written, is below the lock's folder.
    pub(crate) fn check_path(&self, file: &str) -> Outcome<()> {
        if is_below(file) {
            let checked = check_folder(&self.folder, file);
            return checked.map_err(|failure| failure.context(self.path.display()));
        }
        let message = "expected the path of a file below the folder of the lock";
        let status = Status::invalid_argument(message).context(name(file));
        Err(status.context(self.path.display()).into())
    }

    /// The real path of a locked file.
    pub(crate) fn path_of(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The lock as the command line names it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The modules and packages that it lists, also those beside weights.
    pub(crate) fn modules(&self) -> Vec<PathBuf> {
        let is_module = |file: &&String| file.ends_with(".wasm") || file.contains(".safetensors#");
        let files = self.entries.keys().filter(is_module);
        files.map(|file| self.folder.join(file)).collect()
    }

    /// The entry of a name, for a file with this path in messages.
    fn entry(&self, name: Option<String>, file: &Path) -> Outcome<&Entry> {
        name.and_then(|name| self.entries.get(&name))
            .ok_or_else(|| {
                denied(format!(
                    "{} is not in {}: `callbox lock` writes it down",
                    file.display(),
                    self.path.display()
                ))
            })
    }

    fn differs(&self, file: &Path, entry: &Entry, found: &str) -> Failure {
        denied(format!(
            "{} has {} with {} bytes, {}, found {found}",
            self.path.display(),
            file.display(),
            entry.size,
            entry.digest,
        ))
    }
}

/// A lock and its text, which no command could read if it were longer.
pub(super) fn text_of(path: &Path, entries: &Entries) -> Outcome<(LockFile, String)> {
    let lock = LockFile::new(entries);
    let text = serde_json::to_string_pretty(&lock);
    let text = text.map_err(|error| Status::internal(error.to_string()))?;
    if text.len() >= MOST_BYTES {
        let message = format!(
            "expected a lock of at most {MOST_BYTES} bytes, found {} with {} files: nothing is \
             written",
            text.len() + 1,
            entries.len()
        );
        let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
        return Err(status.context(path.display()).into());
    }
    Ok((lock, text))
}

/// Writes a lock. If its path is a link, the file that it leads to is replaced, and not the link.
pub(crate) fn write(path: &Path, entries: &Entries) -> Outcome<LockFile> {
    let (lock, text) = text_of(path, entries)?;
    let real = if path.is_symlink() {
        let cannot = |error| Failure::file(format!("expected to write {}", path.display()), &error);
        fs::canonicalize(path).map_err(cannot)?
    } else {
        path.to_owned()
    };
    write_file::write(&real, &[text.as_bytes(), b"\n"])?;
    Ok(lock)
}

fn denied(message: String) -> Failure {
    Status::new(StatusCode::PermissionDenied, Blame::Caller, message).into()
}

/// The real path of the folder of a lock, which need not exist itself.
pub(crate) fn folder_of(lock: &Path) -> Outcome<PathBuf> {
    let folder = match lock.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::canonicalize(folder).map_err(|error| regular_file::cannot(folder, &error))
}

/// The path of a file from a folder, with the name of the tensor if the module is in one. `None` if
/// it is elsewhere, or not UTF-8.
pub(crate) fn name_below(folder: &Path, file: &Path) -> Outcome<Option<String>> {
    if let Some((weights, tensor)) = tensor_in(file) {
        let name = name_below(folder, &weights)?;
        return Ok(name.map(|name| format!("{name}#{tensor}")));
    }
    let real = fs::canonicalize(file).map_err(|error| regular_file::cannot(file, &error))?;
    Ok(below(folder, &real))
}

/// The same for a file that is to be written, which need not exist.
pub(crate) fn name_of_new(folder: &Path, file: &Path) -> Outcome<Option<String>> {
    let name = file.file_name().unwrap_or_default();
    Ok(below(folder, &folder_of(file)?.join(name)))
}

fn below(folder: &Path, real: &Path) -> Option<String> {
    let below = real.strip_prefix(folder).ok()?;
    let names = below.components().map(|component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let names: Option<Vec<_>> = names.collect();
    names.map(|names| names.join("/"))
}

/// Whether the path of an entry is that of a file below the folder of the lock.
pub(super) fn is_below(file: &str) -> bool {
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
    Path::new(file).components().all(is_name)
}

/// Checks that no link leads elsewhere on the way to a file below the folder of the lock: locks
/// have real paths.
pub(super) fn check_folder(folder: &Path, file: &str) -> Outcome<()> {
    let path = folder.join(file);
    let expected = path.parent().unwrap_or(folder);
    let found = match fs::canonicalize(expected) {
        Ok(found) => found,
        // Writing the file fails with the missing folder's name.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(regular_file::cannot(expected, &error)),
    };
    if found == expected {
        return Ok(());
    }
    let message = format!(
        "expected a folder below that of the lock, found a link to {}",
        found.display()
    );
    let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
    Err(status.context(name(file)).into())
}

/// The failure for a file that is not below the folder of the lock.
pub(crate) fn elsewhere(file: &Path) -> Failure {
    Failure::usage(Status::invalid_argument(format!(
        "{} is not below the folder of the lock: name a lock in a folder above it with -o",
        file.display()
    )))
}
