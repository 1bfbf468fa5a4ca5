//! Packages by reference, as `callbox fetch` gets them, for programs that load them themselves.
//!
//! The Python package loads `oci:`, `hf:` and https references with it. The user's environment
//! variables, passwords of registries and cache of downloads count, as on the command line.

use std::path::{Path, PathBuf};
#[cfg(feature = "cuda")]
use std::sync::Arc;

#[cfg(feature = "cuda")]
use callbox::cuda::{CudaModule, NativeGrants};
#[cfg(feature = "cuda")]
use callbox::policy::Gpu;
use callbox::{Result, Status};
#[cfg(feature = "cuda")]
use callbox_package::Limits;
use callbox_package::Trust;

use crate::failure::Outcome;
use crate::fetch::{bundles, cache, reference, source};
use crate::lock::Lock;
#[cfg(feature = "cuda")]
use crate::package::twin;

/// What a package must be, and where it may come from.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// SHA-256 in hexadecimal: of the file, or for the Hub of `metadata.json`. Another one is
    /// PERMISSION_DENIED.
    pub digest: Option<String>,
    /// The lock that must have the reference: its commit and digest are fetched.
    pub lock: Option<PathBuf>,
    /// Whether to use only what was downloaded before.
    pub offline: bool,
}

/// A package that was fetched. Nothing of it has run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fetched {
    /// The names for rules about signatures, the reference first.
    pub names: Vec<String>,
    /// The name of its file, for messages.
    pub file_name: String,
    /// The module.
    pub bytes: Vec<u8>,
    /// The bundle of signatures that its host has, if a rule takes one.
    pub bundle: Option<Vec<u8>>,
}

/// Whether a text is a reference of a host, and not the path of a file.
#[must_use]
pub fn is_reference(text: &str) -> bool {
    let is_host = |prefix: &&str| text.starts_with(*prefix);
    ["hf:", "oci:", "https://", "http://"].iter().any(is_host)
}

/// Gets the package of a reference: `oci:HOST/PATH:TAG`, `hf:ORG/NAME@VERSION` or an https address,
/// with `#sha256:DIGEST` or not. The rules of `trust` are those of the caller to check.
///
/// # Errors
/// INVALID_ARGUMENT for a malformed reference, NOT_FOUND, PERMISSION_DENIED for another digest,
/// DATA_LOSS for a host that contradicts itself, and UNAVAILABLE without a connection.
pub fn fetch(text: &str, wanted: &Wanted, trust: Option<&Trust>) -> Result<Fetched> {
    let fetched = fetch_as_wanted(text, wanted, trust);
    fetched.map_err(|failure| failure.status().clone())
}

fn fetch_as_wanted(text: &str, wanted: &Wanted, trust: Option<&Trust>) -> Outcome<Fetched> {
    let mut reference = reference::parse(text).map_err(Status::invalid_argument)?;
    if let Some(digest) = &wanted.digest {
        let digest = reference::digest(digest).map_err(Status::invalid_argument)?;
        if reference
            .digest
            .as_ref()
            .is_some_and(|known| *known != digest)
        {
            let message = format!("expected one digest, found {digest} beside that of {text}");
            return Err(Status::invalid_argument(message).into());
        }
        reference.digest = Some(digest);
    }
    let lock = wanted.lock.as_deref().map(Lock::read).transpose()?;
    let package = source::get(&reference, lock.as_ref(), wanted.offline)?;
    let bundle = if package.takes_bundles(trust) {
        bundles::of(&reference, &package, trust, wanted.offline)?
    } else {
        None
    };
    Ok(Fetched {
        names: package.names,
        file_name: package.file_name,
        bytes: package.bytes,
        bundle,
    })
}

/// Checks that a lock has a file, or a tensor of a `.safetensors` file, with these contents.
///
/// # Errors
/// PERMISSION_DENIED if it has not, and as for reading the lock.
pub fn check_locked(lock: &Path, file: &Path, tensor: Option<&str>, contents: &[u8]) -> Result<()> {
    let (digest, size) = (cache::digest(contents), contents.len() as u64);
    let checked = Lock::read(lock).and_then(|lock| match tensor {
        Some(tensor) => lock.check_tensor(file, tensor, &digest, size),
        None => lock.check(file, &digest, size),
    });
    checked.map_err(|failure| failure.status().clone())
}

/// The digest of the native twin that a package carries, as grants name it. `None` for a module
/// that is no package, or has no twin.
///
/// # Errors
/// INVALID_ARGUMENT for a damaged package or manifest.
#[cfg(feature = "cuda")]
pub fn twin_digest(module: &[u8]) -> Result<Option<[u8; 32]>> {
    let package = callbox_package::find(module, &Limits::default())?;
    package.map_or(Ok(None), |package| twin::digest(&package))
}

/// Loads the native twin that a package carries.
///
/// # Errors
/// INVALID_ARGUMENT for what is no package, NOT_FOUND if it has no twin, and those of
/// [`CudaModule::from_manifest`].
#[cfg(feature = "cuda")]
pub fn load_twin(package: &[u8], grants: &NativeGrants, gpu: &Gpu) -> Result<Arc<CudaModule>> {
    let package = callbox_package::read(package, &Limits::default())?;
    twin::load(&package, grants, gpu)
}
