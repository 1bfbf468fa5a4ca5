//! The native code that a command line names, loaded. It is not sandboxed: all of it takes a grant.

mod argument;

pub(super) use argument::{NativeArgument, is_library, parse};

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::cuda::{CudaModule, LibraryTarget, NativeGrants};
use callbox::{Platform, Registry, Status};

use super::failure::{Failure, Outcome};
use super::registered::Registered;

/// The name of a manifest in its folder.
const MANIFEST: &str = "callbox.json";

/// The registry of the targets of these manifests and libraries, and of the manifests in these folders.
pub(super) fn registry(
    natives: &[NativeArgument],
    folders: &[PathBuf],
    grants: &NativeGrants,
) -> Outcome<Registry> {
    let mut registered = Registered::new(Platform::Cuda)?;
    let folders = folders.iter().cloned().map(NativeArgument::Manifest);
    for native in natives.iter().cloned().chain(folders) {
        let (path, module) = match native {
            NativeArgument::Manifest(path) => {
                let path = manifest(&path);
                let module = load_manifest(&path, grants)?;
                (path, module)
            }
            NativeArgument::Library { file, targets } => {
                let module = load_library(&file, &targets, grants)?;
                (file, module)
            }
        };
        registered.module(&path, &(module as _))?;
    }
    Ok(registered.into_registry())
}

/// Loads a manifest or a library for one target, and gives its name: of a library's function, the convention stands behind that.
pub(super) fn load(
    path: &Path,
    target: &str,
    grants: &NativeGrants,
) -> Outcome<(Arc<CudaModule>, String)> {
    if !is_library(path) {
        let module = load_manifest(&manifest(path), grants)?;
        return Ok((module, target.to_owned()));
    }
    let target = argument::target(target)
        .map_err(|message| Failure::usage(Status::invalid_argument(message)))?;
    let module = load_library(path, std::slice::from_ref(&target), grants)?;
    Ok((module, target.name))
}

/// The manifest that a path names: itself, or in the folder that it is.
pub(super) fn manifest(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.join(MANIFEST),
        false => path.to_owned(),
    }
}

fn load_manifest(path: &Path, grants: &NativeGrants) -> Outcome<Arc<CudaModule>> {
    check_readable(path)?;
    Ok(CudaModule::load_manifest(path, grants)?)
}

fn load_library(
    path: &Path,
    targets: &[LibraryTarget],
    grants: &NativeGrants,
) -> Outcome<Arc<CudaModule>> {
    check_readable(path)?;
    Ok(CudaModule::load_library(path, targets, grants)?)
}

/// A file that cannot be opened is wrong usage, as for each command: what is wrong in it is not.
fn check_readable(path: &Path) -> Outcome<()> {
    let opened = File::open(path);
    let cannot = |error| Failure::file(format!("expected to read {}", path.display()), &error);
    opened.map(drop).map_err(cannot)
}
