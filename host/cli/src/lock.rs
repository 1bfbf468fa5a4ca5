//! `callbox lock`, and the files that `--lock` reads.

#[cfg_attr(not(feature = "fetch"), allow(dead_code, reason = "of downloads only"))]
mod file;
#[cfg_attr(not(feature = "fetch"), allow(dead_code, reason = "of downloads only"))]
mod next;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callbox_package::Limits;
use sha2::{Digest, Sha256};

pub(super) use self::file::Lock;
#[cfg_attr(
    not(feature = "fetch"),
    allow(unused_imports, reason = "of downloads only")
)]
pub(super) use self::file::{
    Entries, Entry, elsewhere, folder_of, name_of_new, write as write_lock,
};
use self::file::{LockFile, name_below};
#[cfg(feature = "fetch")]
pub(super) use self::next::{NewFile, change};
pub(super) use self::next::{finish, staged};
use super::failure::Outcome;
use super::inspect::{Kind, manifest_in, native_digest};
use super::output;
use super::{json, package};

const EXAMPLES: &str = "\
Examples:
  callbox lock kernels/softmax-1.0.0.wasm kernels/norm.wasm
  callbox run program.hlo --targets kernels/ --lock callbox.lock --input 0=x.npy
  callbox lock kernels/callbox.json -o gpu.lock
  callbox lock model.safetensors

The lock has the path of each file below the lock's own folder, its digest and its size. With
--lock, `run`, `call` and `test` load no other module, manifest or library. The digest of a
manifest covers its images. Of a .safetensors file, the packages beside the weights are locked, as
FILE.safetensors#TENSOR, and the weights are not.

With --json, standard output is one object, of failures too (then lock is null):
  {\"status\":{...},\"lock\":{\"format\":1,
    \"files\":[{\"file\":...,\"digest\":...,\"size\":...,\"name\":...,\"version\":...}]}}";

/// Write down the digests of the modules, packages, manifests and libraries that a program uses
///
/// Replaces an earlier lock, and shows what changed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The files to lock: modules, packages, .safetensors files with packages, manifests or their
    /// folders, and libraries
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The lock to write. The locked files are in its folder or below it
    #[arg(short, long, value_name = "FILE.lock", default_value = "callbox.lock")]
    output: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
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
    finish(path)?;
    let before = if path.exists() {
        Lock::read(path)?.entries().clone()
    } else {
        Entries::new()
    };
    let mut entries = Entries::new();
    let mut add = |mut entry: Entry| {
        // The file has the same origin, whichever version it is.
        entry.from = before.get(&entry.file).and_then(|old| old.from.clone());
        entries.insert(entry.file.clone(), entry);
    };
    for file in &arguments.files {
        if has_weights(file) {
            package::beside_weights(file, |file, bytes| {
                add(of_module(&folder, &file, bytes)?);
                Ok(())
            })?;
        } else {
            add(entry(&folder, file)?);
        }
    }
    // `callbox fetch` and `callbox.hub.lock` write those of the Hub.
    let of_hub = before.iter().filter(|(_, entry)| entry.commit.is_some());
    entries.extend(of_hub.map(|(name, entry)| (name.clone(), entry.clone())));
    let lock = write_lock(path, &entries)?;
    Ok((lock, changes(path, &before, &entries)))
}

/// Whether a file can have packages beside weights, by its name.
fn has_weights(file: &Path) -> bool {
    let end = file.extension();
    end.is_some_and(|end| end == "safetensors") && package::tensor_in(file).is_none()
}

/// The entry of a file.
fn entry(folder: &Path, file: &Path) -> Outcome<Entry> {
    let file = manifest_in(file);
    let name = name_below(folder, &file)?.ok_or_else(|| elsewhere(&file))?;
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
            from: None,
        });
    }
    of_module(folder, &file, &package::read_file(&file)?)
}

/// The entry of a module with these bytes.
fn of_module(folder: &Path, file: &Path, bytes: &[u8]) -> Outcome<Entry> {
    let name = name_below(folder, file)?.ok_or_else(|| elsewhere(file))?;
    let package = callbox_package::find(bytes, &Limits::default());
    let package = package.map_err(|status| status.context(file.display()))?;
    let header = package.map(|package| package.header().clone());
    Ok(Entry {
        file: name,
        digest: hex::encode(Sha256::digest(bytes)),
        size: bytes.len() as u64,
        name: header.as_ref().map(|header| header.name.clone()),
        version: header.map(|header| header.version),
        commit: None,
        from: None,
    })
}

/// What is new, changed or gone, for a person.
fn changes(path: &Path, before: &Entries, after: &Entries) -> String {
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
