//! `callbox lock`, and the files that `--lock` reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use callbox::{Blame, Status, StatusCode};
use callbox_package::Limits;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::failure::{Failure, Outcome};
use super::inspect::{Kind, manifest_in, native_digest};
use super::output;
use super::{json, package, regular_file, write_file};

const EXAMPLES: &str = "\
Examples:
  callbox lock kernels/softmax-1.0.0.wasm kernels/norm.wasm
  callbox run program.hlo --targets kernels/ --lock callbox.lock --input 0=x.npy
  callbox lock kernels/callbox.json -o gpu.lock

The lock has the path of each file below the lock's own folder, its digest and its size. With
--lock, `run`, `call` and `test` load no other module, manifest or library. The digest of a
manifest covers its images.

With --json, standard output is one object, of failures too (then lock is null):
  {\"status\":{...},\"lock\":{\"format\":1,
    \"files\":[{\"file\":...,\"digest\":...,\"size\":...,\"name\":...,\"version\":...}]}}";

/// Write down the digests of the modules, packages, manifests and libraries that a program uses
///
/// Replaces an earlier lock, and shows what changed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The files to lock: modules, packages, manifests or their folders, and libraries
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The lock to write. The locked files are in its folder or below it
    #[arg(short, long, value_name = "FILE.lock", default_value = "callbox.lock")]
    output: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The version of the format.
const FORMAT: u64 = 1;

/// The largest lock that is read.
const MOST_BYTES: usize = 1 << 20;

/// The JSON of a lock.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LockFile {
    format: u64,
    files: Vec<Entry>,
}

/// A locked file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The path from the lock's folder, with `/` between names.
    file: String,
    /// SHA-256 of the file, or over a manifest and its images.
    digest: String,
    /// The size of the file in bytes.
    size: u64,
    /// The name of a package, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The version of a package, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The commit of a kernel of the Hub, which `callbox.hub` of the Python package loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
}

impl Entry {
    /// The entry for a person.
    fn describe(&self) -> String {
        let version = self.version.as_ref().map(|v| format!(" {v}"));
        let version = version.unwrap_or_default();
        format!(
            "{}{version}, {} bytes, {}",
            self.file, self.size, self.digest
        )
    }
}

/// A lock: the only files with code that a command may load.
#[derive(Debug)]
pub(super) struct Lock {
    /// The lock as the command line names it.
    path: PathBuf,
    /// The real path of its folder.
    folder: PathBuf,
    entries: BTreeMap<String, Entry>,
}

impl Lock {
    /// Reads a lock.
    pub(super) fn read(path: &Path) -> Outcome<Self> {
        let text = regular_file::read(path, MOST_BYTES)?;
        let in_lock = |message: String| {
            Failure::from(Status::invalid_argument(message).context(path.display()))
        };
        let lock: LockFile = serde_json::from_slice(&text)
            .map_err(|error| in_lock(format!("the lock is wrong: {error}")))?;
        if lock.format != FORMAT {
            return Err(in_lock(format!(
                "expected `format` {FORMAT}, found {}",
                lock.format
            )));
        }
        let mut entries = BTreeMap::new();
        for entry in lock.files {
            let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            if entry.digest.len() != 64 || !entry.digest.bytes().all(is_digit) {
                return Err(in_lock(format!(
                    "expected a SHA-256 of 64 lower-case hexadecimal digits for {:?}, found {:?}",
                    entry.file, entry.digest
                )));
            }
            if let Some(twice) = entries.insert(entry.file.clone(), entry) {
                return Err(in_lock(format!("the lock has {:?} twice", twice.file)));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            folder: folder_of(path)?,
            entries,
        })
    }

    /// Checks the digest and the size of a file that was read.
    pub(super) fn check(&self, file: &Path, digest: &str, size: u64) -> Outcome<()> {
        let entry = self.entry(file)?;
        if entry.digest == digest && entry.size == size {
            return Ok(());
        }
        Err(self.differs(file, entry, &format!("{size} bytes, {digest}")))
    }

    /// Checks the digest over a manifest and its images.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "of manifests only"))]
    pub(super) fn check_digest(&self, file: &Path, digest: &str) -> Outcome<()> {
        let entry = self.entry(file)?;
        if entry.digest == digest {
            return Ok(());
        }
        Err(self.differs(file, entry, digest))
    }

    /// The commit and the digest of a kernel of the Hub.
    #[cfg_attr(not(feature = "fetch"), allow(dead_code, reason = "of downloads only"))]
    pub(super) fn kernel(&self, reference: &str) -> Outcome<(String, String)> {
        let entry = self.entries.get(reference);
        let commit = entry.and_then(|entry| entry.commit.clone());
        commit
            .zip(entry.map(|entry| entry.digest.clone()))
            .ok_or_else(|| {
                denied(format!(
                    "{reference} is not in {}: `callbox.hub.lock` of the Python package writes it \
                     down",
                    self.path.display()
                ))
            })
    }

    /// The lock as the command line names it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The modules and packages that it lists.
    pub(super) fn modules(&self) -> Vec<PathBuf> {
        let files = self.entries.keys().filter(|file| file.ends_with(".wasm"));
        files.map(|file| self.folder.join(file)).collect()
    }

    fn entry(&self, file: &Path) -> Outcome<&Entry> {
        let name = name_below(&self.folder, file)?;
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

fn denied(message: String) -> Failure {
    Status::new(StatusCode::PermissionDenied, Blame::Caller, message).into()
}

/// The real path of the folder of a lock, which need not exist itself.
fn folder_of(lock: &Path) -> Outcome<PathBuf> {
    let folder = match lock.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::canonicalize(folder).map_err(|error| regular_file::cannot(folder, &error))
}

/// The path of a file from a folder. `None` if it is elsewhere, or not UTF-8.
fn name_below(folder: &Path, file: &Path) -> Outcome<Option<String>> {
    let real = fs::canonicalize(file).map_err(|error| regular_file::cannot(file, &error))?;
    let Ok(below) = real.strip_prefix(folder) else {
        return Ok(None);
    };
    let names = below.components().map(|component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let names: Option<Vec<_>> = names.collect();
    Ok(names.map(|names| names.join("/")))
}

pub(super) fn lock(arguments: &Arguments) -> ExitCode {
    let outcome = write(arguments);
    let code = output::exit_code(&outcome);
    match (arguments.json, outcome) {
        (true, outcome) => {
            let outcome = outcome.map(|(lock, _)| lock);
            output::emit(&json::command("lock", outcome.as_ref()), code)
        }
        (false, Ok((_, text))) => output::emit(&text, code),
        (false, Err(_)) => code,
    }
}

/// Writes the lock, and says what changed.
fn write(arguments: &Arguments) -> Outcome<(LockFile, String)> {
    let path = &arguments.output;
    let folder = folder_of(path)?;
    let mut entries = BTreeMap::new();
    for file in &arguments.files {
        let entry = entry(&folder, file)?;
        entries.insert(entry.file.clone(), entry);
    }
    let before = if path.exists() {
        Lock::read(path)?.entries
    } else {
        BTreeMap::new()
    };
    // `callbox.hub.lock` writes those of the Hub.
    let of_hub = before.iter().filter(|(_, entry)| entry.commit.is_some());
    entries.extend(of_hub.map(|(name, entry)| (name.clone(), entry.clone())));
    let lock = LockFile {
        format: FORMAT,
        files: entries.values().cloned().collect(),
    };
    let text =
        serde_json::to_string_pretty(&lock).map_err(|error| Status::internal(error.to_string()))?;
    write_file::write(path, &[text.as_bytes(), b"\n"])?;
    Ok((lock, changes(path, &before, &entries)))
}

/// The entry of a file.
fn entry(folder: &Path, file: &Path) -> Outcome<Entry> {
    let file = manifest_in(file);
    let name = name_below(folder, &file)?.ok_or_else(|| {
        Failure::usage(Status::invalid_argument(format!(
            "{} is not below the folder of the lock: name a lock in a folder above it with -o",
            file.display()
        )))
    })?;
    let kind = Kind::of(&file);
    if kind != Kind::Module {
        let (digest, size) = native_digest(kind, &file)?;
        return Ok(Entry {
            file: name,
            digest,
            size,
            name: None,
            version: None,
            commit: None,
        });
    }
    let bytes = package::read_file(&file)?;
    let package = callbox_package::find(&bytes, &Limits::default());
    let package = package.map_err(|status| status.context(file.display()))?;
    let header = package.map(|package| package.header().clone());
    Ok(Entry {
        file: name,
        digest: hex::encode(Sha256::digest(&bytes)),
        size: bytes.len() as u64,
        name: header.as_ref().map(|header| header.name.clone()),
        version: header.map(|header| header.version),
        commit: None,
    })
}

/// What is new, changed or gone, for a person.
fn changes(
    path: &Path,
    before: &BTreeMap<String, Entry>,
    after: &BTreeMap<String, Entry>,
) -> String {
    let mut lines = vec![path.display().to_string()];
    for (name, entry) in after {
        let (word, entry) = match before.get(name) {
            None => ("new", entry.describe()),
            Some(old) if old == entry => ("same", entry.describe()),
            Some(old) => {
                lines.push(format!("  {:<8} {}", "was", old.describe()));
                ("is", entry.describe())
            }
        };
        lines.push(format!("  {word:<8} {entry}"));
    }
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    lines.extend(gone.map(|(_, entry)| format!("  {:<8} {}", "gone", entry.describe())));
    super::text::printable(&(lines.join("\n") + "\n"))
}
