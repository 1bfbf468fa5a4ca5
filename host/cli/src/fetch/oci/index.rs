//! Image indexes, which list the manifests of one artefact for several platforms.

use callbox::Result;
use serde::Deserialize;

use super::{CONFIG_TYPE, MANIFEST_TYPE, wrong};
use crate::fetch::http::quoted;
use crate::fetch::reference;

/// The most manifests of an index.
const MOST_MANIFESTS: usize = 256;

/// The parts of an index that are used.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    manifests: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    media_type: String,
    digest: String,
    #[serde(default)]
    artifact_type: String,
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    architecture: String,
}

/// The index, if the text is one. Manifests have no field `manifests`.
pub(super) fn find(text: &[u8]) -> Option<Index> {
    serde_json::from_slice(text).ok()
}

impl Index {
    /// The digest of the only manifest for wasm, or of the only manifest.
    pub(super) fn wasm(&self) -> Result<&str> {
        if self.manifests.len() > MOST_MANIFESTS {
            return Err(wrong(format!(
                "expected an index of at most {MOST_MANIFESTS} manifests, found {}",
                self.manifests.len()
            )));
        }
        let is_manifest = |listed: &&Listed| listed.media_type == MANIFEST_TYPE;
        let all = Vec::from_iter(self.manifests.iter().filter(is_manifest));
        let of_wasm = Vec::from_iter(all.iter().copied().filter(|listed| listed.is_wasm()));
        let found = if of_wasm.is_empty() { &all } else { &of_wasm };
        let [one] = &found[..] else {
            let digests = found.iter().take(8).map(|listed| quoted(&listed.digest));
            let digests = Vec::from_iter(digests).join(", ");
            let message = if of_wasm.is_empty() {
                format!(
                    "expected a manifest for wasm in the index, found {} others",
                    all.len()
                )
            } else {
                format!(
                    "the index has several manifests for wasm: name one of {digests} as @DIGEST"
                )
            };
            return Err(wrong(message));
        };
        let sha256 = one.digest.strip_prefix("sha256:").unwrap_or_default();
        reference::digest(sha256).map_err(|_| {
            let found = quoted(&one.digest);
            wrong(format!(
                "expected a digest sha256:HEX of the manifest, found {found}"
            ))
        })?;
        Ok(&one.digest)
    }
}

impl Listed {
    fn is_wasm(&self) -> bool {
        let platform = self.platform.as_ref();
        self.artifact_type == CONFIG_TYPE
            || platform.is_some_and(|platform| platform.architecture == "wasm")
    }
}
