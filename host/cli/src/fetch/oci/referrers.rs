//! Bundles of signatures in registries: artefacts whose `subject` is the manifest of a package, as
//! version 1.1 of the OCI's specifications has them.
//!
//! A registry lists the artefacts of a subject at `referrers/DIGEST`, on pages that link to the
//! next one. For one that does not, clients keep the list themselves, as an index under the tag
//! `sha256-HEX`. A list is read whole or not at all: the bundle that counts can be on any page.

use std::time::Duration;

use callbox::{Blame, Result, Status, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::registry::Registry;
use super::{Descriptor, INDEX_TYPE, MANIFEST_TYPE, layer, manifest, reference, wrong};
use crate::fetch::cache::Cache;
use crate::fetch::http::{Address, denied, lie, quoted};
use crate::fetch::reference::OciReference;
use crate::output;
use crate::signing::MOST_BUNDLE;

/// The type of bundles that are published, and the beginning of those of other versions.
pub(crate) const BUNDLE_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const BUNDLE_TYPES: &str = "application/vnd.dev.sigstore.bundle";

/// The type and the bytes of a configuration without contents.
pub(crate) const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
pub(crate) const EMPTY: &[u8] = b"{}";

/// The most pages of a list, the most bytes of all of them, as the specification suggests for one,
/// and the longest time for them.
const MOST_PAGES: usize = 64;
const MOST_LIST: usize = 4 << 20;
const LIST_TIME: Duration = Duration::from_secs(60);

/// How many bundles are looked at: the last ones of the list, as long as there is time, and room
/// for one more of the largest.
const MOST_BUNDLES: usize = 64;
const MOST_BYTES: usize = 64 << 20;

/// The manifest of an artefact with a bundle.
#[derive(Deserialize)]
struct Artefact {
    layers: Vec<Descriptor>,
    subject: Option<SubjectFile>,
}

#[derive(Deserialize)]
struct SubjectFile {
    digest: String,
}

/// A list of artefacts.
#[derive(Debug)]
pub(crate) enum List {
    /// The digests of the bundles in the list that the registry keeps. The pages together may have
    /// many members that are not used.
    Kept(Vec<String>),
    /// The index that clients keep, with members that are not used.
    Tagged(Value),
}

/// The artefacts that refer to a manifest, `sha256:HEX`.
pub(crate) fn list(registry: &Registry, subject: &str) -> Result<List> {
    let registry = registry.within(LIST_TIME);
    if let Some(digests) = kept(&registry, subject)? {
        return Ok(List::Kept(digests));
    }
    let address = registry.address(&format!("manifests/{}", tag_of(subject)))?;
    let reply = registry.ask("GET", &address, &ACCEPTED, None, MOST_LIST)?;
    let index = if reply.status == 404 {
        json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": []})
    } else {
        reply.done(&address)?.json(&address)?
    };
    manifests(&address, &index)?;
    Ok(List::Tagged(index))
}

const ACCEPTED: [(&str, &str); 1] = [("Accept", INDEX_TYPE)];

/// The digests of the bundles on all pages of the registry's own list, or `None` if it keeps none.
fn kept(registry: &Registry, subject: &str) -> Result<Option<Vec<String>>> {
    let too_long = |most: usize, of: &str| {
        let message = format!(
            "expected at most {most} {of} in the list of the artefacts of {subject}, found more"
        );
        Status::new(StatusCode::ResourceExhausted, Blame::Host, message)
    };
    let mut address = registry.address(&format!("referrers/{subject}"))?;
    let mut digests = Vec::new();
    let mut left = MOST_LIST;
    for page in 0..MOST_PAGES {
        let reply = registry.ask("GET", &address, &ACCEPTED, None, left);
        let reply = reply.map_err(|status| match status.code() {
            StatusCode::ResourceExhausted => too_long(MOST_LIST, "bytes"),
            _ => status,
        })?;
        // Registries that do not know the path answer in several ways.
        if page == 0 && matches!(reply.status, 400 | 404 | 405 | 501) {
            return Ok(None);
        }
        let reply = reply.done(&address)?;
        left = left.saturating_sub(reply.body.len());
        let page = reply.json(&address)?;
        let bundles = manifests(&address, &page)?.iter().filter_map(bundle);
        digests.extend(bundles.map(str::to_owned));
        let Some(target) = next(reply.headers("link")) else {
            return Ok(Some(digests));
        };
        let following = address
            .redirected(target)
            .map_err(|message| lie(format!("{address}: the link to the next page: {message}")))?;
        if following.origin() != address.origin() {
            return Err(denied(format!(
                "{address} has its next page on another host, {following}"
            )));
        }
        address = following;
    }
    Err(too_long(MOST_PAGES, "pages"))
}

/// The digest of an entry of a list that is a bundle.
fn bundle(listed: &Value) -> Option<&str> {
    let kind = listed.get("artifactType")?.as_str()?;
    let digest = listed.get("digest")?.as_str()?;
    kind.starts_with(BUNDLE_TYPES).then_some(digest)
}

/// The target of the link with the relation `next` (RFC 8288).
fn next<'a>(links: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    for mut rest in links {
        while let Some((target, after)) = rest
            .split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'))
        {
            let mut is_quoted = false;
            let end = after.find(|c| {
                is_quoted ^= c == '"';
                c == ',' && !is_quoted
            });
            let (parameters, others) = after.split_at(end.unwrap_or(after.len()));
            let mut parameters = parameters.split(';').filter_map(|one| one.split_once('='));
            let is_next = parameters.any(|(name, value)| {
                let mut relations = value.trim().trim_matches('"').split_whitespace();
                name.trim().eq_ignore_ascii_case("rel")
                    && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
            });
            if is_next {
                return Some(target);
            }
            rest = others;
        }
    }
    None
}

/// The manifests of an index.
fn manifests<'a>(address: &Address, index: &'a Value) -> Result<&'a Vec<Value>> {
    let manifests = index.get("manifests").and_then(Value::as_array);
    manifests.ok_or_else(|| lie(format!("{address}: expected an index of manifests")))
}

/// The tag under which clients keep a list.
pub(crate) fn tag_of(subject: &str) -> String {
    subject.replace(':', "-")
}

impl List {
    /// The digests of the bundles.
    fn bundles(&self) -> Vec<&str> {
        match self {
            Self::Kept(digests) => digests.iter().map(String::as_str).collect(),
            Self::Tagged(index) => {
                let listed = index["manifests"].as_array().into_iter().flatten();
                listed.filter_map(bundle).collect()
            }
        }
    }

    /// Whether the list has a bundle.
    pub(crate) fn has(&self, digest: &str) -> bool {
        self.bundles().contains(&digest)
    }

    /// The text of the index that clients keep, with one more bundle. `None` if the registry keeps
    /// the list.
    pub(crate) fn with(self, digest: &str, size: usize) -> Option<String> {
        let Self::Tagged(mut index) = self else {
            return None;
        };
        index["manifests"].as_array_mut()?.push(json!({
            "mediaType": MANIFEST_TYPE, "digest": digest, "size": size, "artifactType": BUNDLE_TYPE
        }));
        Some(index.to_string())
    }

    /// The last bundle of the list that is wanted, or else one that is not, or why there is none.
    /// Anyone who may write to the repository can add to the list, so that one that is wrong leaves
    /// the others.
    pub(crate) fn find(
        &self,
        package: &Subject<'_>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        let digests = self.bundles();
        let (mut left, mut looked_at) = (MOST_BYTES, 0);
        let (mut other, mut failure) = (None, None);
        for digest in digests.iter().rev().take(MOST_BUNDLES) {
            if left < MOST_BUNDLE || package.registry.client().is_late() {
                break;
            }
            looked_at += 1;
            match package.bundle(digest, MOST_BUNDLE) {
                Ok(bundle) if is_wanted(&bundle) => return Ok(Some(bundle)),
                Ok(bundle) => {
                    left = left.saturating_sub(bundle.len());
                    other = other.or(Some(bundle));
                }
                Err(status) => failure = failure.or(Some(status.context(quoted(digest)))),
            }
        }
        if looked_at < digests.len() {
            let (reference, count) = (package.reference.name(), digests.len());
            output::warn(&format!(
                "{reference}: only the last {looked_at} of {count} bundles were looked at"
            ));
        }
        match (other, failure) {
            (Some(bundle), _) => Ok(Some(bundle)),
            (None, Some(status)) => Err(status),
            (None, None) => Ok(None),
        }
    }
}

/// A package to which bundles refer.
pub(crate) struct Subject<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) cache: &'a Cache,
    pub(crate) reference: &'a OciReference,
    /// The digest of its manifest, `sha256:HEX`.
    pub(crate) digest: &'a str,
}

impl Subject<'_> {
    /// The bundle in an artefact.
    fn bundle(&self, digest: &str, most: usize) -> Result<Vec<u8>> {
        let sha256 = digest.strip_prefix("sha256:").unwrap_or_default();
        reference::digest(sha256).map_err(wrong)?;
        let artefact = OciReference {
            digest: Some(digest.to_owned()),
            ..self.reference.clone()
        };
        let text = manifest(self.registry, &artefact)?;
        let text =
            text.ok_or_else(|| lie("the registry lists an artefact that it lacks".to_owned()))?;
        let artefact: Artefact = serde_json::from_slice(&text).map_err(|error| {
            let error = crate::text::name(&error.to_string());
            wrong(format!("expected an artefact with a bundle: {error}"))
        })?;
        let subject = artefact.subject.map(|found| found.digest);
        if subject.is_none_or(|found| found != self.digest) {
            let subject = self.digest;
            return Err(wrong(format!(
                "expected an artefact of the subject {subject}"
            )));
        }
        let [only] = &artefact.layers[..] else {
            let count = artefact.layers.len();
            return Err(wrong(format!("expected one layer, found {count}")));
        };
        let (sha256, size) = only.bundle(BUNDLE_TYPES, most)?;
        layer(self.registry, self.cache, sha256, size)
    }
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn the_next_page_is_the_target_of_a_link() {
        for (links, expected) in [
            (&["</v2/a?n=1>; rel=\"next\""][..], Some("/v2/a?n=1")),
            (&["<?n=1>;REL=Next"], Some("?n=1")),
            (&["<a>; rel=prev, <b>; rel=\"last next\""], Some("b")),
            (&["<a,b>; title=\"x, <c>\"; rel=next"], Some("a,b")),
            (&["<a>; rel=first", "<b>; rel=next"], Some("b")),
            (&["<a>; rel=\"next-archive\""], None),
            (&["<a>", "a; rel=next", "<a; rel=next", ""], None),
            (&[], None),
        ] {
            assert_eq!(next(links.iter().copied()), expected, "{links:?}");
        }
    }
}
