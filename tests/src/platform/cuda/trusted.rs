//! Native code that tests trust: the guests of this repository, and code that a test writes itself.
#![allow(
    unsafe_code,
    reason = "grants native code, and names the conventions of C functions"
)]

use std::path::Path;
use std::sync::Arc;

use callbox::cuda::manifest::{Manifest, digest};
use callbox::cuda::{CudaModule, LibraryTarget, NativeGrants};
use callbox::policy::Gpu;
use callbox::{Result, Status};
use sha2::{Digest, Sha256};

/// A grant of the code with this digest.
#[must_use]
pub fn grant(digest: [u8; 32]) -> NativeGrants {
    // SAFETY: tests load only their own code, whose kernels stay within the arrays of a call or run
    // on the stand-in driver, which checks each access.
    unsafe { NativeGrants::none().allow(digest) }
}

/// The targets of a manifest, with its images beside it.
///
/// # Errors
/// A file that cannot be read; what is wrong with the manifest.
pub fn manifest(path: &Path) -> Result<Arc<CudaModule>> {
    let bytes = read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let images = Manifest::parse(&text)?.images;
    let images = images
        .iter()
        .map(|image| read(&path.with_file_name(&image.file)));
    let module = manifest_text(&text, images.collect::<Result<_>>()?);
    module.map_err(|status| status.context(path.display()))
}

/// The targets of a manifest's text, with its images.
///
/// # Errors
/// What is wrong with the manifest.
pub fn manifest_text(text: &str, images: Vec<Vec<u8>>) -> Result<Arc<CudaModule>> {
    let slices: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
    let grants = grant(digest(text.as_bytes(), &slices));
    CudaModule::from_manifest(text, images, &grants, &Gpu::default())
}

/// Functions of a library that `cargo xtask guests` builds, or of a file that is not a library.
///
/// # Errors
/// What is wrong with the file or the functions.
pub fn library(path: &Path, targets: &[LibraryTarget]) -> Result<Arc<CudaModule>> {
    let grants = grant(Sha256::digest(read(path)?).into());
    library_by(path, targets, &grants)
}

/// The same, with these grants.
///
/// # Errors
/// What is not granted; what is wrong with the file or the functions.
pub fn library_by(
    path: &Path,
    targets: &[LibraryTarget],
    grants: &NativeGrants,
) -> Result<Arc<CudaModule>> {
    // SAFETY: tests name the convention that the function's source in `guests/cuda` or `guests/c`
    // has.
    unsafe { CudaModule::load_library(path, targets, grants) }
}

/// The same module, one of whose C functions has a trait.
///
/// # Errors
/// NOT_FOUND if there is no such target.
pub fn with_trait(module: &CudaModule, target: &str, name: &str) -> Result<Arc<CudaModule>> {
    // SAFETY: the functions of `guests/cuda` use no memory but that of their call.
    unsafe { module.with_trait(target, name) }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let path = path.display();
        Status::not_found(format!(
            "{path}: {error}; `cargo xtask guests` builds the libraries"
        ))
    })
}
