//! What a grant names.

use sha2::{Digest, Sha256};

/// The SHA-256 of a manifest and its images: of each file's length in bytes, as eight little-endian bytes, and the file; the manifest
/// first, then the images in the manifest's order.
///
/// The lengths keep bytes from passing from one file into the next.
///
/// ```
/// use callbox::cuda::manifest::digest;
///
/// assert_ne!(digest(b"{}", &[b"ab", b"c"]), digest(b"{}", &[b"a", b"bc"]));
/// ```
#[must_use]
pub fn digest(manifest: &[u8], images: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for file in std::iter::once(&manifest).chain(images) {
        hash.update((file.len() as u64).to_le_bytes());
        hash.update(file);
    }
    hash.finalize().into()
}
