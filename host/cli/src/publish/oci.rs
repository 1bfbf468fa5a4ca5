//! Registries of containers.

use callbox::StatusCode;
use callbox_package::Package;
use serde_json::json;

use super::{Published, check_replaces, wrong};
use crate::failure::Outcome;
use crate::fetch::cache::digest;
use crate::fetch::http::{denied, lie, quoted};
use crate::fetch::oci::registry::{Registry, Rights};
use crate::fetch::oci::{self, CONFIG_TYPE, LAYER_TYPE, MANIFEST_TYPE, Manifest};
use crate::fetch::reference::OciReference;

/// The annotations that name a package.
const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";

/// How often an upload may begin.
const TRIES: u32 = 3;

const MOST_ANSWER: usize = 1 << 20;

/// Puts a package into a registry, under a tag.
pub(super) fn publish(
    package: &Package<'_>,
    reference: &OciReference,
    replaces: bool,
    published: &mut Published,
) -> Outcome<()> {
    published.to = reference.name();
    if reference.digest.is_some() {
        return Err(wrong("expected a tag, found a digest"));
    }
    let config = config(package.bytes());
    let manifest = manifest(package, &config);
    let sha256 = digest(&manifest);
    published.manifest_digest = Some(format!("sha256:{sha256}"));
    let registry = Registry::open(reference, Rights::Push)?;
    if let Some(earlier) = oci::manifest(&registry, reference)? {
        if earlier == manifest {
            published.changed = false;
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
    let address = registry.address(&format!("manifests/{}", reference.version()))?;
    let headers = [("Content-Type", MANIFEST_TYPE)];
    let reply = registry.ask("PUT", &address, &headers, Some(&manifest), MOST_ANSWER)?;
    let reply = reply.done(&address)?;
    let said = reply.header("docker-content-digest");
    if let Some(said) = said.filter(|said| *said != format!("sha256:{sha256}")) {
        let said = quoted(said);
        let message = format!("{address}: expected the digest sha256:{sha256}, found {said}");
        return Err(lie(message).into());
    }
    Ok(())
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
    let descriptor = |kind: &str, bytes: &[u8]| {
        json!({"mediaType": kind, "digest": format!("sha256:{}", digest(bytes)),
            "size": bytes.len()})
    };
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
