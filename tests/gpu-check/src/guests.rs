//! The sample kernels beside this program.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use callbox::cuda::CudaModule;
use callbox_tests::platform::cuda::trusted;

/// Loads the targets of a guest's manifest. Files beside this program are as trusted as the
/// program.
///
/// # Errors
/// Files that are missing or invalid.
pub(crate) fn kernels(root: &Path, guest: &str) -> Result<Arc<CudaModule>> {
    let path = root.join("guests").join(guest).join("callbox.json");
    Ok(trusted::manifest(&path)?)
}

/// Lists the PTX files of all guests, sorted by folder.
///
/// # Errors
/// A folder that cannot be read.
pub(crate) fn ptx(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.join("guests");
    let entries = |folder: &Path| {
        let read = std::fs::read_dir(folder);
        let read = read.with_context(|| format!("cannot read {}", folder.display()))?;
        let paths = read.map(|entry| Ok(entry?.path()));
        paths.collect::<Result<Vec<_>>>()
    };
    let mut found = Vec::new();
    for guest in entries(&folder)?.into_iter().filter(|path| path.is_dir()) {
        let is_ptx = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "ptx");
        found.extend(entries(&guest)?.into_iter().filter(is_ptx));
    }
    found.sort();
    Ok(found)
}

/// Reads a text file.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
