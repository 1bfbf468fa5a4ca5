//! Bundles of signatures in registries: artefacts whose `subject` is the manifest of a package, as
//! version 1.1 of the OCI's specifications has them.
//!
//! A registry lists the artefacts of a subject at `referrers/DIGEST`. For one that does not,
//! clients keep the list themselves, as an index under the tag `sha256-HEX`.

use callbox::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::registry::Registry;
use super::{Descriptor, INDEX_TYPE, MANIFEST_TYPE, layer, manifest, reference, wrong};
use crate::fetch::cache::Cache;
use crate::fetch::http::{lie, quoted};
use crate::fetch::reference::OciReference;

/// The type of bundles that are published, and the beginning of those of other versions.
pub(crate) const BUNDLE_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const BUNDLE_TYPES: &str = "application/vnd.dev.sigstore.bundle";

/// The type and the bytes of a configuration without contents.
pub(crate) const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
pub(crate) const EMPTY: &[u8] = b"{}";

/// The largest list, as the specification suggests.
const MOST_LIST: usize = 4 << 20;

/// How many bundles are looked at: the last ones of the list.
const MOST_BUNDLES: usize = 16;

/// The manifest of an artefact with a bundle.
#[derive(Deserialize)]
struct Artefact {
    layers: Vec<Descriptor>,
    subject: Option<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    digest: String,
}

/// A list of artefacts.
#[derive(Debug)]
pub(crate) struct List {
    /// The index, with members that are not used.
    index: Value,
    /// Whether the registry keeps it.
    pub(crate) is_kept: bool,
}

/// The artefacts that refer to a manifest, `sha256:HEX`.
pub(crate) fn list(registry: &Registry, subject: &str) -> Result<List> {
    let of_registry = (format!("referrers/{subject}"), true);
    let of_clients = (format!("manifests/{}", tag_of(subject)), false);
    for (path, is_kept) in [of_registry, of_clients] {
        let address = registry.address(&path)?;
        let headers = [("Accept", INDEX_TYPE)];
        let reply = registry.ask("GET", &address, &headers, None, MOST_LIST)?;
        // Registries that do not know the path answer in several ways.
        let is_missing = reply.status == 404 || is_kept && matches!(reply.status, 400 | 405 | 501);
        if !is_missing {
            let index: Value = reply.done(&address)?.json(&address)?;
            if !index["manifests"].is_array() {
                return Err(lie(format!("{address}: expected an index of manifests")));
            }
            return Ok(List { index, is_kept });
        }
    }
    Ok(List {
        index: json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": []}),
        is_kept: false,
    })
}

/// The tag under which clients keep a list.
pub(crate) fn tag_of(subject: &str) -> String {
    subject.replace(':', "-")
}

impl List {
    fn listed(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> {
        let listed = self.index["manifests"].as_array().into_iter().flatten();
        listed.map(|listed| {
            let field = |name: &str| listed[name].as_str().unwrap_or_default();
            (field("digest"), field("artifactType"))
        })
    }

    /// Whether the list has an artefact.
    pub(crate) fn has(&self, digest: &str) -> bool {
        self.listed().any(|(known, _)| known == digest)
    }

    /// The text of the list with one more artefact.
    pub(crate) fn with(&self, digest: &str, size: usize) -> String {
        let mut index = self.index.clone();
        if let Some(manifests) = index["manifests"].as_array_mut() {
            manifests.push(
                json!({"mediaType": MANIFEST_TYPE, "digest": digest, "size": size,
                "artifactType": BUNDLE_TYPE}),
            );
        }
        index.to_string()
    }

    /// The bundles of the list, the last one first. Anyone who may write to the repository can add
    /// to the list, so that one that is wrong leaves the others.
    pub(crate) fn bundles(
        &self,
        registry: &Registry,
        cache: &Cache,
        reference: &OciReference,
        subject: &str,
        most: usize,
    ) -> Vec<Result<Vec<u8>>> {
        let is_bundle = |kind: &&str| kind.starts_with(BUNDLE_TYPES);
        let digests = self.listed().rev();
        let digests = digests.filter(|(_, kind)| is_bundle(kind));
        let bundles = digests.take(MOST_BUNDLES).map(|(digest, _)| {
            let bundle = bundle(registry, cache, reference, digest, subject, most);
            bundle.map_err(|status| status.context(quoted(digest)))
        });
        bundles.collect()
    }
}

/// The bundle in an artefact.
fn bundle(
    registry: &Registry,
    cache: &Cache,
    reference: &OciReference,
    digest: &str,
    subject: &str,
    most: usize,
) -> Result<Vec<u8>> {
    let sha256 = digest.strip_prefix("sha256:").unwrap_or_default();
    reference::digest(sha256).map_err(wrong)?;
    let artefact = OciReference {
        digest: Some(digest.to_owned()),
        ..reference.clone()
    };
    let text = manifest(registry, &artefact)?;
    let text =
        text.ok_or_else(|| lie("the registry lists an artefact that it lacks".to_owned()))?;
    let artefact: Artefact = serde_json::from_slice(&text).map_err(|error| {
        let error = crate::text::name(&error.to_string());
        wrong(format!("expected an artefact with a bundle: {error}"))
    })?;
    if artefact.subject.is_none_or(|found| found.digest != subject) {
        return Err(wrong(format!(
            "expected an artefact of the subject {subject}"
        )));
    }
    let [only] = &artefact.layers[..] else {
        let count = artefact.layers.len();
        return Err(wrong(format!("expected one layer, found {count}")));
    };
    let (sha256, size) = only.bundle(BUNDLE_TYPES, most)?;
    layer(registry, cache, sha256, size)
}
