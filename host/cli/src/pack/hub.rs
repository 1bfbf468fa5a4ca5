//! The layout of kernels on the Hugging Face Hub, which `callbox.hub` of the Python package reads.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use callbox::Status;
use callbox_package::{FORMAT, MANIFEST, Package};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::failure::{Failure, Outcome};
use crate::package::{folder, wrong};
use crate::signing::BESIDE;

/// The folder of the variant in a repository of kernels.
const VARIANT: &str = "callbox-wasm32";

/// The file that names all others of the variant.
const METADATA: &str = "metadata.json";

/// The JSON of the metadata.
#[derive(Debug, Serialize)]
struct Metadata<'a> {
    format: u64,
    name: &'a str,
    version: &'a str,
    license: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    derivatives: &'a BTreeMap<String, String>,
    /// The path of the package.
    module: &'a str,
    /// The path of the native twin's manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<&'static str>,
    files: Vec<FileEntry<'a>>,
}

#[derive(Debug, Serialize)]
struct FileEntry<'a> {
    path: &'a str,
    size: usize,
    sha256: String,
}

/// The files of the variant.
pub(crate) struct Variant {
    /// The contents by path.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// The path of the package.
    pub(crate) module: String,
    /// SHA-256 of the metadata, which covers every file of the variant.
    pub(crate) digest: String,
}

impl Variant {
    pub(crate) fn new(package: &Package<'_>) -> Outcome<Self> {
        let header = package.header();
        let module = format!("{}.wasm", header.name);
        let mut files = twin(package)?;
        let bundle = format!("{module}{BESIDE}");
        let own = [module.as_str(), METADATA, &bundle];
        if let Some(name) = own.iter().find(|name| files.contains_key(*name)) {
            let message = format!("the twin has a file `{name}`: rename it");
            return Err(wrong(message).into());
        }
        files.insert(&module, package.bytes());
        let entries = files.iter().map(|(path, bytes)| FileEntry {
            path,
            size: bytes.len(),
            sha256: hex::encode(Sha256::digest(bytes)),
        });
        let metadata = Metadata {
            format: FORMAT,
            name: &header.name,
            version: &header.version,
            license: &header.license,
            derivatives: &header.derivatives,
            module: &module,
            manifest: package.file(MANIFEST).map(|_| MANIFEST),
            files: entries.collect(),
        };
        let mut json = serde_json::to_vec_pretty(&metadata)
            .map_err(|error| Status::internal(error.to_string()))?;
        json.push(b'\n');
        files.insert(METADATA, &json);
        let digest = hex::encode(Sha256::digest(&json));
        let files = files.into_iter();
        Ok(Self {
            files: files
                .map(|(path, bytes)| (path.to_owned(), bytes.to_vec()))
                .collect(),
            module,
            digest,
        })
    }
}

/// The end of the name of a folder that is being replaced.
const EARLIER: &str = ".earlier";

/// The variant that was written.
pub(super) struct Written {
    /// The path of the package.
    pub(super) module: PathBuf,
    /// SHA-256 of the metadata.
    pub(super) digest: String,
}

/// Writes `build/callbox-wasm32` in the folder of a repository, replacing an earlier one.
pub(super) fn write(repository: &Path, package: &Package<'_>) -> Outcome<Written> {
    let Variant {
        files,
        module,
        digest,
    } = Variant::new(package)?;
    let build = repository.join("build");
    let variant = build.join(VARIANT);
    check_replaceable(&variant)?;
    let cannot = |error| Failure::file(format!("expected to write {}", variant.display()), &error);
    fs::create_dir_all(&build).map_err(cannot)?;
    let _lock = alone_in(&build);
    let staged = build.join(format!(".{VARIANT}.{}.part", std::process::id()));
    let written = stage(&staged, &files).and_then(|()| replace(&staged, &variant));
    written.map_err(|error| {
        // The part folder may not exist. Errors are discarded.
        let _ = fs::remove_dir_all(&staged);
        cannot(error)
    })?;
    Ok(Written {
        module: variant.join(&module),
        digest,
    })
}

/// The manifest of the native twin and the files that it names.
fn twin<'a>(package: &Package<'a>) -> Outcome<BTreeMap<&'a str, &'a [u8]>> {
    let Some(manifest) = package.file(MANIFEST) else {
        return Ok(BTreeMap::new());
    };
    let named = folder::named_files(manifest)?;
    let is_named = |path: &str| path == MANIFEST || named.iter().any(|(file, _)| file == path);
    Ok(package.files().filter(|(path, _)| is_named(path)).collect())
}

/// Checks that a folder is one that an earlier `callbox pack` wrote, or does not exist.
fn check_replaceable(variant: &Path) -> Outcome<()> {
    let exists = variant.symlink_metadata().is_ok();
    if !exists || variant.join(METADATA).is_file() && !variant.is_symlink() {
        return Ok(());
    }
    Err(Failure::usage(Status::invalid_argument(format!(
        "{} is not a variant that `callbox pack --hub` wrote: it has no {METADATA}",
        variant.display()
    ))))
}

fn stage(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    fs::create_dir(folder)?;
    for (path, bytes) in files {
        let path = folder.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mut file = File::create_new(path)?;
        file.write_all(bytes)?;
        // Some file systems report a full disk only now.
        file.sync_all()?;
    }
    Ok(())
}

/// Has this process alone write variants in a folder until the file is closed, and removes what
/// killed processes left. `None` if the file system has no locks.
fn alone_in(build: &Path) -> Option<File> {
    let file = File::open(build).ok()?;
    file.lock().ok()?;
    let start = format!(".{VARIANT}.");
    for entry in fs::read_dir(build).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&start) && (name.ends_with(".part") || name.ends_with(EARLIER)) {
            // A folder that stays is reported when its name is needed.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Some(file)
}

/// Exchanges two folders in one step, where the file system can.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) -> bool {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> bool {
    false
}

/// Puts a staged folder in the place of another one.
fn replace(staged: &Path, folder: &Path) -> io::Result<()> {
    if folder.exists() && exchange(staged, folder) {
        return fs::remove_dir_all(staged);
    }
    let mut earlier = staged.as_os_str().to_owned();
    earlier.push(EARLIER);
    let has_earlier = folder.exists();
    if has_earlier {
        fs::rename(folder, &earlier)?;
    }
    if let Err(error) = fs::rename(staged, folder) {
        if has_earlier {
            fs::rename(&earlier, folder)?;
        }
        return Err(error);
    }
    if has_earlier {
        fs::remove_dir_all(&earlier)?;
    }
    Ok(())
}
