//! What can be said of a manifest and the files beside it without loading any of them.

use std::path::Path;

use callbox::cuda::hex;
use callbox::cuda::manifest::{Image, Manifest, digest};
use callbox::{Result, Status};
use sha2::{Digest, Sha256};

use super::fields::{bytes, field, list, target};
use crate::cli::failure::Outcome;
use crate::cli::modules;
use crate::cli::text::name;

/// Images and libraries are not read further than this: the library does not load larger ones.
pub(super) const MOST_BYTES: usize = 1 << 30;

/// What is shown of a manifest.
#[derive(Debug)]
pub(in crate::cli) struct InspectedManifest {
    pub(in crate::cli) size: usize,
    /// The digest over the manifest and its images: what a grant names. None if an image cannot be read.
    pub(in crate::cli) digest: Option<String>,
    pub(in crate::cli) manifest: Manifest,
    /// What lies beside it, in the order of its images.
    pub(in crate::cli) images: Vec<InspectedImage>,
}

/// What lies beside a manifest of one of its images.
#[derive(Debug)]
pub(in crate::cli) struct InspectedImage {
    /// Size and SHA-256 of the image's file, or why it cannot be read.
    pub(in crate::cli) file: Result<(usize, String)>,
    /// The SHA-256 of the source, if the manifest names one, or why it cannot be read.
    pub(in crate::cli) source: Option<Result<String>>,
}

impl InspectedImage {
    /// Whether the image is of the source that lies beside it, if the manifest names one and it can be read.
    pub(in crate::cli) fn agrees(&self, image: &Image) -> Option<bool> {
        let found = self.source.as_ref()?.as_ref().ok()?;
        Some(image.source_sha256.as_ref()? == found)
    }
}

pub(super) fn read(path: &Path) -> Outcome<InspectedManifest> {
    let text = modules::read(path, MOST_BYTES)?;
    let manifest = str::from_utf8(&text).map_err(|error| {
        Status::invalid_argument(format!(
            "expected a manifest, which is UTF-8, found other bytes at byte {}",
            error.valid_up_to()
        ))
    });
    let manifest = manifest
        .and_then(Manifest::parse)
        .map_err(|status| status.context(path.display()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let open = |file: &str| {
        let bytes = modules::read(&folder.join(file), MOST_BYTES);
        bytes.map_err(|failure| failure.status().clone())
    };
    let images: Vec<_> = manifest
        .images
        .iter()
        .map(|image| open(&image.file))
        .collect();
    let slices: Result<Vec<&[u8]>, ()> = images
        .iter()
        .map(|bytes| bytes.as_deref().map_err(drop))
        .collect();
    let digest = slices.ok().map(|images| hex(digest(&text, &images)));
    let images = std::iter::zip(&manifest.images, images).map(|(image, bytes)| InspectedImage {
        file: bytes.map(|bytes| (bytes.len(), sha256(&bytes))),
        source: image.source.as_deref().map(|file| Ok(sha256(&open(file)?))),
    });
    Ok(InspectedManifest {
        size: text.len(),
        digest,
        images: images.collect(),
        manifest,
    })
}

fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).into())
}

/// The manifest for a person.
pub(super) fn describe(inspected: &InspectedManifest) -> String {
    let grant = match &inspected.digest {
        Some(digest) => format!("--allow-native {digest}"),
        None => "none: an image cannot be read".to_owned(),
    };
    let mut lines = vec![
        field("size", &bytes(inspected.size as u64)),
        field("grant", &grant),
    ];
    let manifest = &inspected.manifest;
    let images = std::iter::zip(&manifest.images, &inspected.images);
    lines.extend(list(
        "images",
        images.map(|(image, found)| describe_image(image, found)),
    ));
    lines.push(String::new());
    lines.push(match manifest.targets.is_empty() {
        true => "no targets".to_owned(),
        false => "targets, as the manifest declares them".to_owned(),
    });
    for declared in &manifest.targets {
        lines.extend(target(&declared.signature));
        let launches = declared.launches.iter().map(|launch| {
            let image = &manifest.images[launch.image];
            format!("{} of {}", name(&launch.entry), name(&image.name))
        });
        let launches: Vec<_> = launches.collect();
        let launches = match launches.is_empty() {
            true => "none".to_owned(),
            false => launches.join(", "),
        };
        lines.push(format!("    {:<11} {launches}", "launches"));
    }
    lines.join("\n") + "\n"
}

fn describe_image(image: &Image, found: &InspectedImage) -> String {
    let file = match &found.file {
        Ok((size, _)) => bytes(*size as u64),
        Err(status) => format!("cannot be read: {}", name(status.message())),
    };
    let source = match (&image.source, &found.source) {
        (Some(source), Some(Err(status))) => {
            let why = name(status.message());
            format!("; its source {} cannot be read: {why}", name(source))
        }
        (Some(source), _) => {
            let agrees = match found.agrees(image) {
                Some(true) => "is the one that it was compiled from",
                _ => "has changed since it was compiled",
            };
            format!("; its source {} {agrees}", name(source))
        }
        (None, _) => String::new(),
    };
    let kind = image.kind.extension();
    format!(
        "{}: {} ({kind}), {file}{source}",
        name(&image.name),
        name(&image.file)
    )
}
