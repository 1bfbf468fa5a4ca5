//! The modules of programs that `callbox.jax` traced, by key.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use callbox::policy::{Policy, Traps};
use callbox::traced::{AnyModule, TARGET, TracedModules, module_key};
use callbox::{Blame, Result, Status, StatusCode};
use callbox_core::untrusted_text::shown_name;

use super::failure::Outcome;
use super::modules::{Loader, file_name, modules_in};
use super::policy::PolicyArguments;

/// The most files that a message lists.
const LISTED: usize = 8;

/// A file whose module a program may name.
struct Found {
    path: PathBuf,
    sha256: String,
}

/// Modules in folders, which traced programs name by keys.
pub(super) struct ModuleFolder {
    /// By their keys.
    files: BTreeMap<String, Found>,
    /// The folders or the lock, for messages.
    place: String,
    loader: Mutex<Loader>,
}

impl ModuleFolder {
    /// Reads the modules in folders, or those that the lock names if there is no folder. `None`
    /// without both.
    pub(super) fn read(folders: &[PathBuf], policy: &PolicyArguments) -> Outcome<Option<Self>> {
        let mut paths = Vec::new();
        for folder in folders {
            paths.extend(modules_in(folder)?);
        }
        let mut place = joined(folders.iter().map(|folder| folder.display().to_string()));
        if folders.is_empty() {
            let Some(lock) = policy.lock()? else {
                return Ok(None);
            };
            paths = lock.modules();
            place = lock.path().display().to_string();
        }
        let mut loader = Loader::new(policy)?;
        let mut files = BTreeMap::new();
        for path in paths {
            let Some((file, _)) = loader.open_in_folder(&path)? else {
                continue;
            };
            let sha256 = &file.contents.info().sha256;
            for key in keys(sha256, &policy.file()?)? {
                files.entry(key).or_insert_with(|| Found {
                    path: path.clone(),
                    sha256: sha256.clone(),
                });
            }
            loader.forget(&file);
        }
        Ok(Some(Self {
            files,
            place,
            loader: Mutex::new(loader),
        }))
    }
}

/// The keys that Python gives a module of this digest under a policy. How accesses out of bounds
/// are caught changes no result; Python's default differs from that of the command line.
fn keys(sha256: &str, policy: &Policy) -> Result<[String; 2]> {
    let key = |traps| {
        let policy = Policy {
            traps,
            ..policy.clone()
        };
        module_key(sha256, "", &policy)
    };
    Ok([key(Traps::Explicit)?, key(Traps::Signals)?])
}

/// The failure of traced programs without a folder of their modules.
pub(super) fn without_modules() -> Status {
    Status::not_found(
        "the program was traced with callbox.jax, and names its modules by keys: expected \
         --module-dir DIR with the files, or --lock FILE that lists them",
    )
}

fn joined(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

impl TracedModules for ModuleFolder {
    fn find(&self, key: &str, target: &str) -> Result<Arc<dyn AnyModule>> {
        let Some(found) = self.files.get(key) else {
            let paths = self.files.values().map(|found| &found.path);
            let mut names = Vec::from_iter(paths.map(|path| file_name(path)));
            names.sort();
            names.dedup();
            let more = if names.len() > LISTED { ", ..." } else { "" };
            names.truncate(LISTED);
            return Err(Status::not_found(format!(
                "no module of the key \"{}\" in {}, which has {}{more}: the key is a digest of \
                 the module and the policy of the process that traced the program, which --policy \
                 names",
                shown_name(key),
                self.place,
                if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                },
            )));
        };
        let mut loader = self.loader.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loader.open(&found.path).and_then(|file| {
            let sha256 = &file.contents.info().sha256;
            if *sha256 != found.sha256 {
                return Err(changed(found, sha256).into());
            }
            loader.load_any(&file, target)
        });
        loaded.map_err(|failure| failure.status().clone())
    }
}

/// The failure for a file that was replaced after its digest was taken.
fn changed(found: &Found, sha256: &str) -> Status {
    let (path, expected) = (found.path.display(), &found.sha256);
    Status::new(
        StatusCode::FailedPrecondition,
        Blame::Caller,
        format!("{path}: expected the module {expected}, found {sha256}: the file was changed"),
    )
}

impl std::fmt::Debug for ModuleFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModuleFolder")
            .field("place", &self.place)
            .field("target", &TARGET)
            .finish_non_exhaustive()
    }
}
