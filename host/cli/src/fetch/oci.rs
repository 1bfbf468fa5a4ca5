//! Packages in registries of containers: the layout of the CNCF for wasm artefacts.

mod credentials;
mod index;
pub(crate) mod referrers;
pub(crate) mod registry;

use std::collections::BTreeMap;
use std::time::Duration;

use callbox::{Blame, Result, Status, StatusCode};
use callbox_package::Limits;
use serde::Deserialize;

use self::referrers::Subject;
use self::registry::{Registry, Rights};
use super::cache::{Cache, digest};
use super::http::{Rules, denied, lie, quoted};
use super::hub;
use super::reference::{self, OciReference};

pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";
pub(crate) const LAYER_TYPE: &str = "application/wasm";

/// The largest manifest.
pub(crate) const MOST_MANIFEST: usize = 256 << 10;

/// The longest time to look for the bundle of a package.
const BUNDLE_TIME: Duration = Duration::from_secs(600);

/// The parts of a manifest that are used.
#[derive(Debug, Deserialize)]
pub(crate) struct Manifest {
    #[serde(rename = "schemaVersion")]
    version: u64,
    config: Descriptor,
    layers: Vec<Descriptor>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType")]
    kind: String,
    digest: String,
    size: usize,
}

/// The package of a tag, or of the digest of a manifest.
pub(crate) fn fetch(
    reference: &OciReference,
    wanted: Option<&str>,
    is_offline: bool,
) -> Result<Vec<u8>> {
    let cache = hub::cache()?;
    let most = Limits::default().package_bytes;
    let noted = || cache.note(&reference.name());
    let known = wanted.map(str::to_owned);
    let known = known.or_else(|| is_offline.then(noted).flatten());
    if let Some(bytes) = known.and_then(|known| cache.file(&known, most)) {
        return Ok(bytes);
    }
    if is_offline {
        let name = reference.name();
        let message = format!("{name} was not downloaded before, and this command is offline");
        return Err(Status::new(StatusCode::Unavailable, Blame::Caller, message));
    }
    let registry = Registry::open(reference, Rights::Pull)?;
    let in_reference = |status: Status| status.context(reference.name());
    let (found, manifest) = look(&registry, reference)?;
    let (sha256, size) = manifest.layer().map_err(in_reference)?;
    cache.take_note(&subject_key(reference, sha256), &found);
    if let Some(wanted) = wanted.filter(|&wanted| wanted != sha256) {
        let message = format!("expected the digest {wanted}, found {sha256}");
        return Err(in_reference(denied(message)));
    }
    let bytes = match cache.file(sha256, size) {
        Some(bytes) => bytes,
        None => layer(&registry, &cache, sha256, size)?,
    };
    cache.take_note(&reference.name(), sha256);
    Ok(bytes)
}

/// The manifest of a package, and its SHA-256.
fn look(registry: &Registry, reference: &OciReference) -> Result<(String, Manifest)> {
    let in_reference = |status: Status| status.context(reference.name());
    let missing = || {
        let message = "the registry has no such artefact";
        in_reference(Status::new(StatusCode::NotFound, Blame::Caller, message))
    };
    let mut text = manifest(registry, reference)?.ok_or_else(missing)?;
    if let Some(index) = index::find(&text) {
        let chosen = OciReference {
            digest: Some(index.wasm().map_err(in_reference)?.to_owned()),
            ..reference.clone()
        };
        text = manifest(registry, &chosen)?.ok_or_else(missing)?;
    }
    let manifest = Manifest::read(&text).map_err(in_reference)?;
    Ok((digest(&text), manifest))
}

/// The key of the note about the manifest of a package, to which its bundles refer.
fn subject_key(reference: &OciReference, sha256: &str) -> String {
    format!(
        "manifest oci:{}/{} {sha256}",
        reference.host, reference.path
    )
}

/// The last bundle of the package with this SHA-256 that is wanted, or else one that is not.
pub(crate) fn bundle(
    reference: &OciReference,
    sha256: &str,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>> {
    let cache = hub::cache()?;
    let registry = Registry::open(reference, Rights::Pull)?.within(BUNDLE_TIME);
    let subject = match cache.note(&subject_key(reference, sha256)) {
        Some(known) => known,
        None => match look(&registry, reference)? {
            (found, manifest) if manifest.layer()?.0 == sha256 => found,
            // The tag has another package by now.
            _ => return Ok(None),
        },
    };
    let subject = format!("sha256:{subject}");
    let package = Subject {
        registry: &registry,
        cache: &cache,
        reference,
        digest: &subject,
    };
    referrers::list(&registry, &subject)?.find(&package, is_wanted)
}

/// The text of the manifest or index, whose digest was checked. `None` if the registry has none.
pub(crate) fn manifest(registry: &Registry, reference: &OciReference) -> Result<Option<Vec<u8>>> {
    let address = registry.address(&format!("manifests/{}", reference.version()))?;
    let accepted = format!("{MANIFEST_TYPE}, {INDEX_TYPE}");
    let headers = [("Accept", accepted.as_str())];
    let reply = registry.ask("GET", &address, &headers, None, MOST_MANIFEST)?;
    if reply.status == 404 {
        return Ok(None);
    }
    let reply = reply.done(&address)?;
    let found = format!("sha256:{}", digest(&reply.body));
    let said = reply.header("docker-content-digest").unwrap_or(&found);
    let wanted = reference.digest.as_deref().unwrap_or(said);
    if said != found || wanted != found {
        let (said, wanted) = (quoted(said), quoted(wanted));
        return Err(lie(format!(
            "{address}: expected the manifest {wanted}, found {found}, which the registry calls \
             {said}"
        )));
    }
    Ok(Some(reply.body))
}

/// Downloads the layer. Storage at another host gets no token.
fn layer(registry: &Registry, cache: &Cache, sha256: &str, size: usize) -> Result<Vec<u8>> {
    let address = registry.address(&format!("blobs/sha256:{sha256}"))?;
    let rules = Rules {
        token: registry.token(),
        may_leave: true,
        within: None,
        most: size,
        commit: None,
        digest: Some(sha256),
        cache: Some(cache),
    };
    let bytes = registry.client().get(&address, rules)?;
    let found = digest(&bytes);
    if bytes.len() != size || found != sha256 {
        return Err(lie(format!(
            "{address}: expected {size} bytes with SHA-256 {sha256}, found {} with {found}",
            bytes.len()
        )));
    }
    cache.keep(&bytes);
    Ok(bytes)
}

impl Manifest {
    /// Reads a manifest, which a stranger wrote.
    pub(crate) fn read(text: &[u8]) -> Result<Self> {
        let manifest: Self = serde_json::from_slice(text).map_err(|error| {
            wrong(format!(
                "expected an artefact of one wasm module: {}",
                crate::text::name(&error.to_string())
            ))
        })?;
        if manifest.version != 2 || manifest.config.kind != CONFIG_TYPE {
            let found = quoted(&manifest.config.kind);
            return Err(wrong(format!(
                "expected a wasm artefact, {CONFIG_TYPE}, found {found}"
            )));
        }
        Ok(manifest)
    }

    /// The SHA-256 and the size of the only layer.
    fn layer(&self) -> Result<(&str, usize)> {
        let [layer] = &self.layers[..] else {
            let count = self.layers.len();
            return Err(wrong(format!("expected one layer, found {count}")));
        };
        if layer.kind != LAYER_TYPE {
            let found = quoted(&layer.kind);
            return Err(wrong(format!(
                "expected a layer of {LAYER_TYPE}, found {found}"
            )));
        }
        layer.checked(Limits::default().package_bytes)
    }
}

impl Descriptor {
    /// The SHA-256 and the size of a layer with a bundle.
    fn bundle(&self, types: &str, most: usize) -> Result<(&str, usize)> {
        if !self.kind.starts_with(types) {
            let found = quoted(&self.kind);
            return Err(wrong(format!("expected a layer of {types}, found {found}")));
        }
        self.checked(most)
    }

    /// The SHA-256 and the size of a layer of at most `most` bytes.
    fn checked(&self, most: usize) -> Result<(&str, usize)> {
        let sha256 = self.digest.strip_prefix("sha256:").unwrap_or_default();
        reference::digest(sha256).map_err(|_| {
            let found = quoted(&self.digest);
            wrong(format!(
                "expected a digest sha256:HEX of the layer, found {found}"
            ))
        })?;
        if self.size > most {
            let message = format!(
                "expected a layer of at most {most} bytes, found {}",
                self.size
            );
            let code = StatusCode::ResourceExhausted;
            return Err(Status::new(code, Blame::Guest, message));
        }
        Ok((sha256, self.size))
    }
}

fn wrong(message: String) -> Status {
    Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
}
