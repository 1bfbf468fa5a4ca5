//! The description of a manifest and the files beside it.

use std::collections::BTreeMap;
use std::path::Path;

use callbox::cuda::manifest::{Image, ImageKind, Manifest, ManifestDigest};
use callbox::policy::Gpu;
use callbox::{Result, Status};

use super::MOST_BYTES;
use super::fields::{bytes, field, list, target};
use super::hash::{Part, hash};
use crate::failure::{Failure, Outcome};
use crate::ptx::{self, Grade, PtxReport, Verifier};
use crate::regular_file;
use crate::text::name;

/// The longest manifest that is read; the format's own limit is less.
pub(crate) const MAX_MANIFEST: usize = 16 << 20;

/// The description of a manifest.
#[derive(Debug)]
pub(crate) struct InspectedManifest {
    pub(crate) size: usize,
    /// The digest over the manifest and its images, which a grant names. `None` if an image cannot
    /// be read.
    pub(crate) digest: Option<String>,
    pub(crate) manifest: Manifest,
    /// The files of its images, in order.
    pub(crate) images: Vec<InspectedImage>,
}

/// The files of an image.
#[derive(Debug)]
pub(crate) struct InspectedImage {
    /// Size and SHA-256 of the image's file, or why it cannot be read.
    pub(crate) file: Result<(u64, String)>,
    /// The SHA-256 of the source's file, if the manifest names one, or why it cannot be read.
    pub(crate) source: Option<Result<String>>,
    /// What the verifier says of its kernels, if it is PTX whose file can be read.
    pub(crate) ptx: Option<PtxReport>,
}

impl InspectedImage {
    /// Whether the image was compiled from the source's file. `None` if that is unknown.
    pub(crate) fn agrees(&self, image: &Image) -> Option<bool> {
        let found = self.source.as_ref()?.as_ref().ok()?;
        Some(image.source_sha256.as_ref()? == found)
    }
}

impl InspectedManifest {
    /// What the manifest needs: `fenced`, `depends` on the call, or `granted`. `None` if an image
    /// cannot be read.
    pub(crate) fn grade(&self) -> Option<&'static str> {
        let is_ptx = |image: &Image| image.kind == ImageKind::Ptx;
        if !self.manifest.images.iter().all(is_ptx) {
            return Some("granted");
        }
        let mut worst = Grade::Fenced;
        for image in &self.images {
            worst = worst.max(image.ptx.as_ref()?.grade);
        }
        Some(match worst {
            Grade::Fenced => "fenced",
            Grade::Depends => "depends",
            Grade::Refused => "granted",
        })
    }
}

/// Parses the bytes of a manifest.
pub(crate) fn parse(text: &[u8]) -> Result<Manifest> {
    let text = str::from_utf8(text).map_err(|error| {
        Status::invalid_argument(format!(
            "expected a manifest, which is UTF-8, found other bytes at byte {}",
            error.valid_up_to()
        ))
    })?;
    Manifest::parse(text)
}

pub(super) fn read(path: &Path) -> Outcome<InspectedManifest> {
    let text = regular_file::read(path, MAX_MANIFEST)?;
    let manifest = parse(&text).map_err(|status| status.context(path.display()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let into_status = |failure: Failure| failure.status().clone();
    let mut digest = Some(ManifestDigest::new(&text));
    let (mut images_left, mut sources_left) = (MOST_BYTES, MOST_BYTES);
    let mut images = Vec::with_capacity(manifest.images.len());
    for image in &manifest.images {
        let file = hash(
            &folder.join(&image.file),
            &mut images_left,
            &mut |part| match (&mut digest, part) {
                (Some(digest), Part::Begin(size)) => digest.begin_image(size),
                (Some(digest), Part::Bytes(bytes)) => digest.update(bytes),
                (None, _) => {}
            },
        );
        if file.is_err() {
            digest = None;
        }
        let source = image.source.as_deref().map(|source| {
            let hashed = hash(&folder.join(source), &mut sources_left, &mut |_| {});
            hashed.map(|(_, sha256)| sha256).map_err(into_status)
        });
        images.push(InspectedImage {
            file: file.map_err(into_status),
            source,
            ptx: None,
        });
    }
    verify(folder, &manifest, &mut images);
    Ok(InspectedManifest {
        size: text.len(),
        digest: digest.map(|digest| hex::encode(digest.finish())),
        images,
        manifest,
    })
}

/// Verifies the PTX of a manifest. An image that is missing, or beyond the bytes of all images, is
/// left out.
fn verify(folder: &Path, manifest: &Manifest, images: &mut [InspectedImage]) {
    let mut same_files = BTreeMap::<String, Vec<usize>>::new();
    for (number, image) in images.iter().enumerate() {
        if let Ok((_, sha256)) = &image.file
            && manifest.images[number].kind == ImageKind::Ptx
        {
            same_files.entry(sha256.clone()).or_default().push(number);
        }
    }
    let launches = ptx::all_launches(manifest);
    let gpu = Gpu::default();
    let verifier = Verifier::new(&gpu);
    for numbers in same_files.values() {
        let Ok(reports) = ptx::of_images(folder, manifest, numbers, &launches, &verifier) else {
            continue;
        };
        for (&number, report) in std::iter::zip(numbers, reports) {
            images[number].ptx = Some(report);
        }
    }
}

/// The manifest for a person.
pub(super) fn describe(inspected: &InspectedManifest) -> String {
    let grant = match &inspected.digest {
        Some(digest) => format!("--allow-native {digest}"),
        None => "none: an image cannot be read".to_owned(),
    };
    let grade = match inspected.grade() {
        Some("fenced") => "fenced: needs no grant",
        Some("depends") => "fenced, if the shapes of a call let its kernels pass",
        Some(_) => "granted: needs the grant",
        None => "unknown: an image cannot be read",
    };
    let mut lines = vec![
        field("size", &bytes(inspected.size as u64)),
        field("grant", &grant),
        field("grade", grade),
    ];
    let manifest = &inspected.manifest;
    let images = std::iter::zip(&manifest.images, &inspected.images);
    lines.extend(list(
        "images",
        images.map(|(image, found)| describe_image(image, found)),
    ));
    let kernels = inspected
        .images
        .iter()
        .filter_map(|found| found.ptx.as_ref());
    let kernels: Vec<_> = kernels.flat_map(ptx::summary).collect();
    if !kernels.is_empty() {
        lines.extend(list("kernels", kernels.into_iter()));
    }
    lines.push(String::new());
    lines.push(if manifest.targets.is_empty() {
        "no targets".to_owned()
    } else {
        "targets, as the manifest declares them".to_owned()
    });
    for declared in &manifest.targets {
        lines.extend(target(&declared.signature));
        let launches = declared.launches.iter().map(|launch| {
            let image = &manifest.images[launch.image];
            format!("{} of {}", name(&launch.entry), name(&image.name))
        });
        let launches: Vec<_> = launches.collect();
        let launches = if launches.is_empty() {
            "none".to_owned()
        } else {
            launches.join(", ")
        };
        lines.push(format!("    {:<11} {launches}", "launches"));
    }
    lines.join("\n") + "\n"
}

fn describe_image(image: &Image, found: &InspectedImage) -> String {
    let file = match &found.file {
        Ok((size, _)) => bytes(*size),
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
