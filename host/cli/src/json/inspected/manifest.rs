//! The object of a manifest.

use callbox::Status;
use callbox::cuda::manifest::{FORMAT, Image, KernelTarget, Manifest};
use serde_json::{Value, json};

use super::target;
use crate::inspect::{InspectedImage, InspectedManifest};

pub(super) fn object(inspected: &InspectedManifest) -> Value {
    let manifest = &inspected.manifest;
    let images = std::iter::zip(&manifest.images, &inspected.images);
    let targets = manifest.targets.iter();
    json!({
        "size": inspected.size,
        "digest": inspected.digest,
        "grade": inspected.grade(),
        "format": FORMAT,
        "images": images.map(|(declared, found)| image(declared, found)).collect::<Vec<_>>(),
        "targets": targets.map(|target| kernel_target(manifest, target)).collect::<Vec<_>>(),
    })
}

fn image(image: &Image, found: &InspectedImage) -> Value {
    let file = found.file.as_ref().ok();
    let source = image.source.as_ref().map(|source| {
        let found_sha256 = found
            .source
            .as_ref()
            .and_then(|source| source.as_ref().ok());
        json!({
            "file": source,
            "sha256": image.source_sha256,
            "found_sha256": found_sha256,
            "agrees": found.agrees(image),
        })
    });
    json!({
        "name": image.name,
        "kind": image.kind.extension(),
        "file": image.file,
        "size": file.map(|(size, _)| size),
        "sha256": file.map(|(_, sha256)| sha256),
        "problem": found.file.as_ref().err().map(Status::message),
        "source": source,
        "ptx": found.ptx,
    })
}

fn kernel_target(manifest: &Manifest, kernels: &KernelTarget) -> Value {
    let launches = kernels
        .launches
        .iter()
        .map(|launch| json!({"image": manifest.images[launch.image].name, "entry": launch.entry}));
    let mut object = target(&kernels.signature);
    object["launches"] = launches.collect();
    object
}
