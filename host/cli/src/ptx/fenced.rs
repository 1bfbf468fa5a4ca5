//! The launches that a manifest plans for kernels of a file.

use std::path::Path;

use callbox::cuda::manifest::{FencedLaunch, Manifest};
use callbox::policy::Gpu;
use callbox::{CallSite, Shape, Status};

use super::{Arguments, Located, operands};
use crate::call::{check_unique, dictionary};
use crate::failure::{Failure, Outcome};
use crate::text::name;

/// `OPERANDS -> RESULTS`.
#[derive(Clone, Debug)]
pub(super) struct Shapes {
    operands: Vec<Shape>,
    result: Shape,
}

impl Shapes {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some((operands_text, result)) = text.split_once("->") else {
            return Err("expected OPERANDS -> RESULTS, found no `->`".to_owned());
        };
        let shape = |text: &str| {
            let parsed = text.trim().parse::<Shape>();
            parsed.map_err(|status| status.message().to_owned())
        };
        Ok(Self {
            operands: operands(shape(operands_text)?),
            result: shape(result)?,
        })
    }
}

/// A launch, and the target that it belongs to.
pub(crate) struct TargetLaunch {
    pub(super) target: String,
    pub(super) launch: FencedLaunch,
}

/// The launches of the file's kernels: those of one call if there are shapes, otherwise those of
/// all targets, as far as they are known.
pub(super) fn launches(
    arguments: &Arguments,
    located: &Located,
    gpu: &Gpu,
) -> Outcome<Vec<TargetLaunch>> {
    let Located { path, manifest } = located;
    let usage =
        |message: String| Failure::usage(Status::invalid_argument(message).context(path.display()));
    let images = images(manifest, path, &arguments.file);
    if images.is_empty() {
        let known: Vec<_> = manifest
            .images
            .iter()
            .map(|image| name(&image.file))
            .collect();
        return Err(usage(format!(
            "expected a manifest with the image {}, found {}",
            arguments.file.display(),
            known.join(", ")
        )));
    }
    let is_meant = |number: usize| {
        let target = &manifest.targets[number];
        let mut launches = target.launches.iter();
        let is_named = |named: &String| target.signature.name == *named;
        arguments.target.as_ref().is_none_or(is_named)
            && launches.any(|launch| images.contains(&launch.image))
    };
    let targets: Vec<usize> = (0..manifest.targets.len())
        .filter(|&n| is_meant(n))
        .collect();
    let known = |numbers: &[usize]| {
        let names = numbers
            .iter()
            .map(|&number| name(&manifest.targets[number].signature.name));
        names.collect::<Vec<_>>().join(", ")
    };
    let launches: Vec<_> = match (&arguments.shapes, targets.as_slice()) {
        (_, []) => {
            let all: Vec<usize> = (0..manifest.targets.len()).collect();
            return Err(usage(format!(
                "expected a target that launches kernels of {}, found {}",
                arguments.file.display(),
                known(&all)
            )));
        }
        (None, _) => known_launches(manifest, gpu, is_meant).collect(),
        (Some(shapes), &[number]) => {
            let site = site(arguments, shapes, manifest, number)?;
            let planned = manifest.fenced_launches(number, &site, gpu);
            let planned = planned.map_err(|status| status.context(&site.target))?;
            of_target(manifest, number, planned).collect()
        }
        (Some(_), several) => {
            return Err(usage(format!(
                "the targets {} launch kernels of the file: name one with --target",
                known(several)
            )));
        }
    };
    let is_in_file = |one: &TargetLaunch| images.contains(&one.launch.image);
    Ok(launches.into_iter().filter(is_in_file).collect())
}

/// The launches of all targets, as far as they are known without a call.
pub(crate) fn all_launches(manifest: &Manifest) -> Vec<TargetLaunch> {
    known_launches(manifest, &Gpu::default(), |_| true).collect()
}

/// The launches of targets, as far as they are known without a call.
fn known_launches(
    manifest: &Manifest,
    gpu: &Gpu,
    is_meant: impl Fn(usize) -> bool,
) -> impl Iterator<Item = TargetLaunch> {
    let targets = (0..manifest.targets.len()).filter(move |&number| is_meant(number));
    targets.flat_map(|number| of_target(manifest, number, manifest.open_launches(number, gpu)))
}

fn of_target(
    manifest: &Manifest,
    number: usize,
    launches: Vec<FencedLaunch>,
) -> impl Iterator<Item = TargetLaunch> {
    let target = manifest.targets[number].signature.name.clone();
    launches.into_iter().map(move |launch| TargetLaunch {
        target: target.clone(),
        launch,
    })
}

/// The images that are this file.
fn images(manifest: &Manifest, path: &Path, file: &Path) -> Vec<usize> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let Ok(file) = file.canonicalize() else {
        return Vec::new();
    };
    let is_file = |image: &str| {
        folder
            .join(image)
            .canonicalize()
            .is_ok_and(|path| path == file)
    };
    let images = manifest.images.iter().enumerate();
    images
        .filter(|(_, image)| is_file(&image.file))
        .map(|(number, _)| number)
        .collect()
}

fn site(
    arguments: &Arguments,
    shapes: &Shapes,
    manifest: &Manifest,
    number: usize,
) -> Outcome<CallSite> {
    check_unique(&arguments.attributes)?;
    let signature = &manifest.targets[number].signature;
    let attributes = dictionary(&arguments.attributes, Some(signature))?;
    let site = CallSite::new(
        &signature.name,
        shapes.operands.clone(),
        shapes.result.clone(),
    );
    let mut site = site.with_attributes(attributes);
    if let Some(&version) = signature.api_versions.first() {
        site.api_version = version;
    }
    Ok(site)
}
