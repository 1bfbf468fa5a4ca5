//! The digest that a grant names.

use sha2::{Digest, Sha256};

/// The SHA-256 digest of a manifest and its images.
///
/// The hash covers each file's length in bytes, as eight little-endian bytes, followed by the file:
/// the manifest first, then the images in the manifest's order. The lengths keep bytes from moving
/// from one file to the next.
///
/// ```
/// use callbox_cuda::manifest::digest;
///
/// assert_ne!(digest(b"{}", &[b"ab", b"c"]), digest(b"{}", &[b"a", b"bc"]));
/// ```
#[must_use]
pub fn digest(manifest: &[u8], images: &[&[u8]]) -> [u8; 32] {
    let mut digest = ManifestDigest::new(manifest);
    for image in images {
        digest.begin_image(image.len() as u64);
        digest.update(image);
    }
    digest.finish()
}

/// Computes [`digest`] of images that are read in parts.
#[derive(Clone, Debug)]
pub struct ManifestDigest(Sha256);

impl ManifestDigest {
    /// The digest of a manifest, whose images follow.
    #[must_use]
    pub fn new(manifest: &[u8]) -> Self {
        let mut digest = Self(Sha256::new());
        digest.begin_image(manifest.len() as u64);
        digest.update(manifest);
        digest
    }

    /// Begins the next image, of this many bytes.
    pub fn begin_image(&mut self, length: u64) {
        self.0.update(length.to_le_bytes());
    }

    /// Adds the next bytes of the image.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of the manifest and its images.
    #[must_use]
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}
