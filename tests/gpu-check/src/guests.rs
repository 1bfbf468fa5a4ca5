//! The sample kernels that lie beside this program.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use callbox::cuda::manifest::{Manifest, digest};
use callbox::cuda::{CudaModule, NativeGrants};

/// The targets of a guest's manifest. What lies beside this program is trusted as the program is.
///
/// # Errors
/// What cannot be read or is wrong.
pub(crate) fn kernels(root: &Path, guest: &str) -> Result<Arc<CudaModule>> {
    let path = root.join("guests").join(guest).join("callbox.json");
    let text = read(&path)?;
    let manifest = Manifest::parse(&text)?;
    let images = manifest.images.iter();
    let images =
        images.map(|image| read(&path.with_file_name(&image.file)).map(String::into_bytes));
    module(&text, images.collect::<Result<_>>()?)
        .with_context(|| format!("loading {}", path.display()))
}

/// The targets of a manifest, with its images.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn module(text: &str, images: Vec<Vec<u8>>) -> Result<Arc<CudaModule>> {
    let slices: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
    let grants = NativeGrants::none().allow(digest(text.as_bytes(), &slices));
    Ok(CudaModule::from_manifest(text, images, &grants)?)
}

/// All PTX of guests, in the order of their folders.
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

/// A text file.
///
/// # Errors
/// One that cannot be read.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
