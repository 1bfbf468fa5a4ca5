//! Registries of containers.

use callbox::{Blame, Status, StatusCode};
use callbox_package::Package;
use serde_json::{Value, json};

use super::{Content, Published, check_replaces, wrong};
use crate::failure::Outcome;
use crate::fetch::cache::digest;
use crate::fetch::http::{Reply, denied, lie, quoted};
use crate::fetch::oci::referrers::{self, BUNDLE_TYPE, EMPTY, EMPTY_TYPE};
use crate::fetch::oci::registry::{Registry, Rights};
use crate::fetch::oci::{self, CONFIG_TYPE, INDEX_TYPE, LAYER_TYPE, MANIFEST_TYPE, Manifest};
use crate::fetch::reference::OciReference;

/// The annotations that name a package.
const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";

/// How often an upload may begin.
const TRIES: u32 = 3;

const MOST_ANSWER: usize = 1 << 20;

/// Puts a package into a registry, under a tag. Its bundle is there before the tag leads to it.
pub(super) fn publish(
    content: Content<'_>,
    reference: &OciReference,
    replaces: bool,
    published: &mut Published,
) -> Outcome<()> {
    published.to = reference.name();
    if reference.digest.is_some() {
        return Err(wrong("expected a tag, found a digest"));
    }
    let package = content.package;
    let config = config(package.bytes());
    let manifest = manifest(package, &config);
    let sha256 = digest(&manifest);
    published.manifest_digest = Some(format!("sha256:{sha256}"));
    let registry = Registry::open(reference, Rights::Push)?;
    if let Some(earlier) = oci::manifest(&registry, reference)? {
        if earlier == manifest {
            published.changed = false;
            if let Some(bundle) = content.bundle {
                publish_bundle(&registry, &manifest, bundle, published)?;
            }
            return Ok(());
        }
        if !replaces {
            let earlier = Manifest::read(&earlier).ok();
            let annotation = |name: &str| {
                let found = earlier.as_ref()?.annotations.get(name)?;
                Some(found.clone())
            };
            let name = annotation(TITLE).unwrap_or_default();
            let version = annotation(VERSION).unwrap_or_default();
            check_replaces(package, (&name, &version), &published.to)?;
        }
    }
    upload(&registry, package.bytes())?;
    upload(&registry, &config)?;
    if let Some(bundle) = content.bundle {
        let by_digest = format!("sha256:{sha256}");
        put(&registry, &by_digest, MANIFEST_TYPE, &manifest)?;
        publish_bundle(&registry, &manifest, bundle, published)?;
    }
    put(&registry, reference.version(), MANIFEST_TYPE, &manifest)?;
    Ok(())
}

/// Puts a manifest or an index at a tag or a digest.
fn put(registry: &Registry, version: &str, kind: &str, text: &[u8]) -> Outcome<Reply> {
    let address = registry.address(&format!("manifests/{version}"))?;
    let headers = [("Content-Type", kind)];
    let reply = registry.ask("PUT", &address, &headers, Some(text), MOST_ANSWER)?;
    let reply = reply.done(&address)?;
    let sha256 = digest(text);
    let said = reply.header("docker-content-digest");
    if let Some(said) = said.filter(|said| *said != format!("sha256:{sha256}")) {
        let said = quoted(said);
        let message = format!("{address}: expected the digest sha256:{sha256}, found {said}");
        return Err(lie(message).into());
    }
    Ok(reply)
}

/// Puts a bundle into the registry, as an artefact that refers to the manifest of its package.
fn publish_bundle(
    registry: &Registry,
    subject: &[u8],
    bundle: &[u8],
    published: &mut Published,
) -> Outcome<()> {
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": BUNDLE_TYPE,
        "config": descriptor(EMPTY_TYPE, EMPTY),
        "layers": [descriptor(BUNDLE_TYPE, bundle)],
        "subject": descriptor(MANIFEST_TYPE, subject),
    });
    let manifest = manifest.to_string().into_bytes();
    let artefact = format!("sha256:{}", digest(&manifest));
    let subject = format!("sha256:{}", digest(subject));
    published.bundle_digest = Some(artefact.clone());
    if referrers::list(registry, &subject)?.has(&artefact) {
        return Ok(());
    }
    published.changed = true;
    upload(registry, EMPTY)?;
    upload(registry, bundle)?;
    let reply = put(registry, &artefact, MANIFEST_TYPE, &manifest)?;
    // The registry says so if it lists the artefact itself.
    if reply.header("oci-subject").is_some() {
        return Ok(());
    }
    for _ in 0..TRIES {
        let list = referrers::list(registry, &subject)?;
        if list.has(&artefact) {
            return Ok(());
        }
        let Some(index) = list.with(&artefact, manifest.len()) else {
            return Ok(());
        };
        let tag = referrers::tag_of(&subject);
        put(registry, &tag, INDEX_TYPE, index.as_bytes())?;
        // Another command may have replaced the list at the same time: it is looked at again.
    }
    let message = format!("the list of the artefacts of {subject} is changed again and again");
    Err(Status::new(StatusCode::Aborted, Blame::Host, message).into())
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": format!("sha256:{}", digest(bytes)), "size": bytes.len()})
}

/// The configuration of the artefact. Its time is the same for each package, so that the same
/// package has the same digest everywhere.
fn config(module: &[u8]) -> Vec<u8> {
    let config = json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": "wasm",
        "os": "wasip1",
        "layerDigests": [format!("sha256:{}", digest(module))],
    });
    config.to_string().into_bytes()
}

fn manifest(package: &Package<'_>, config: &[u8]) -> Vec<u8> {
    let header = package.header();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptor(CONFIG_TYPE, config),
        "layers": [descriptor(LAYER_TYPE, package.bytes())],
        "annotations": {
            TITLE: header.name,
            VERSION: header.version,
            "org.opencontainers.image.licenses": header.license,
        },
    });
    manifest.to_string().into_bytes()
}

/// Uploads a file, unless the registry has it. An interrupted upload begins anew.
fn upload(registry: &Registry, bytes: &[u8]) -> callbox::Result<()> {
    let mut tries = 1;
    loop {
        match try_upload(registry, bytes) {
            Err(status) if status.code() == StatusCode::Unavailable && tries < TRIES => {
                std::thread::sleep(std::time::Duration::from_secs(1));
                tries += 1;
            }
            ended => return ended,
        }
    }
}

fn try_upload(registry: &Registry, bytes: &[u8]) -> callbox::Result<()> {
    let sha256 = digest(bytes);
    let known = registry.address(&format!("blobs/sha256:{sha256}"))?;
    if registry.ask("HEAD", &known, &[], None, 0)?.status == 200 {
        return Ok(());
    }
    let begin = registry.address("blobs/uploads/")?;
    let reply = registry.ask("POST", &begin, &[], Some(&[]), MOST_ANSWER)?;
    let reply = reply.done(&begin)?;
    let location = reply.header("location").unwrap_or_default();
    let address = begin.redirected(location).map_err(lie)?;
    if address.origin() != begin.origin() {
        return Err(denied(format!(
            "{begin} wants the file sent to another host, {address}"
        )));
    }
    let address = address
        .with_query(&format!("digest=sha256%3A{sha256}"))
        .map_err(lie)?;
    let headers = [("Content-Type", "application/octet-stream")];
    let reply = registry.ask("PUT", &address, &headers, Some(bytes), MOST_ANSWER)?;
    reply.done(&address).map(|_| ())
}
