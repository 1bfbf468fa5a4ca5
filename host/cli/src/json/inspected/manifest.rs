//! The object of a manifest.

use callbox::Status;
use callbox::cuda::manifest::{FORMAT, Image, KernelTarget, Manifest};
use serde::Serialize;

use super::{Sequence, Target};
use crate::inspect::{InspectedImage, InspectedManifest};
use crate::ptx::PtxReport;

pub(super) fn object(inspected: &InspectedManifest) -> impl Serialize {
    #[derive(Serialize)]
    struct Object<'a, I, T> {
        size: usize,
        digest: Option<&'a str>,
        grade: Option<&'a str>,
        format: u64,
        images: I,
        targets: T,
    }
    let manifest = &inspected.manifest;
    let images = std::iter::zip(&manifest.images, &inspected.images);
    let targets = manifest.targets.iter();
    Object {
        size: inspected.size,
        digest: inspected.digest.as_deref(),
        grade: inspected.grade(),
        format: FORMAT,
        images: Sequence(images.map(|(declared, found)| image(declared, found))),
        targets: Sequence(targets.map(|target| kernel_target(manifest, target))),
    }
}

fn image<'a>(image: &'a Image, found: &'a InspectedImage) -> impl Serialize + use<'a> {
    #[derive(Serialize)]
    struct Object<'a> {
        name: &'a str,
        kind: &'static str,
        file: &'a str,
        size: Option<u64>,
        sha256: Option<&'a str>,
        problem: Option<&'a str>,
        source: Option<Source<'a>>,
        ptx: Option<&'a PtxReport>,
    }
    #[derive(Serialize)]
    struct Source<'a> {
        file: &'a str,
        sha256: Option<&'a str>,
        found_sha256: Option<&'a str>,
        agrees: Option<bool>,
    }
    let file = found.file.as_ref().ok();
    let found_source = found.source.as_ref();
    Object {
        name: &image.name,
        kind: image.kind.extension(),
        file: &image.file,
        size: file.map(|(size, _)| *size),
        sha256: file.map(|(_, sha256)| sha256.as_str()),
        problem: found.file.as_ref().err().map(Status::message),
        source: image.source.as_ref().map(|source| Source {
            file: source,
            sha256: image.source_sha256.as_deref(),
            found_sha256: found_source.and_then(|found| found.as_deref().ok()),
            agrees: found.agrees(image),
        }),
        ptx: found.ptx.as_ref(),
    }
}

fn kernel_target<'a>(
    manifest: &'a Manifest,
    kernels: &'a KernelTarget,
) -> impl Serialize + use<'a> {
    #[derive(Serialize)]
    struct Object<'a, L> {
        #[serde(flatten)]
        target: Target<'a>,
        launches: L,
    }
    #[derive(Serialize)]
    struct Launch<'a> {
        image: &'a str,
        entry: &'a str,
    }
    Object {
        target: Target::of(&kernels.signature),
        launches: Sequence(kernels.launches.iter().map(|launch| Launch {
            image: &manifest.images[launch.image].name,
            entry: &launch.entry,
        })),
    }
}
