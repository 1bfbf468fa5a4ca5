//! Rules about signatures, which hold for everything that a host loads.

use std::io::ErrorKind;
use std::path::Path;

use callbox::call::TargetModule;
use callbox::cuda::CudaModule;
use callbox::cuda::manifest::Manifest;
use callbox::policy::Gpu;
use callbox::{Blame, Status, StatusCode};
use callbox_package::{Limits, MANIFEST, Trust, names_of_file};
use pyo3::prelude::*;

use crate::files;
use crate::native::Native;

/// The largest bundle of signatures.
const MOST_BUNDLE: usize = 16 << 20;

/// The largest trusted root of sigstore.
const MOST_ROOT: usize = 1 << 20;

/// Reads rules, and the trusted root that they name by its path.
pub(crate) fn rules(text: &[u8]) -> callbox::Result<Trust> {
    Trust::from_json_with(text, |path| {
        files::read(path, MOST_ROOT).map_err(|error| {
            let code = match error.kind() {
                ErrorKind::NotFound => StatusCode::NotFound,
                ErrorKind::PermissionDenied => StatusCode::PermissionDenied,
                _ => StatusCode::InvalidArgument,
            };
            Status::new(code, Blame::Caller, error.to_string())
        })
    })
}

/// The names of a file for rules. Bytes without a file have an empty one.
pub(crate) fn names_of(path: Option<&Path>) -> Vec<String> {
    path.map_or_else(|| vec![String::new()], names_of_file)
}

/// The bundle of signatures beside a file, if there is one and a rule asks for it.
pub(crate) fn bundle_beside(
    trust: &Trust,
    names: &[String],
    path: Option<&Path>,
) -> PyResult<Option<Vec<u8>>> {
    let Some(path) = path.filter(|_| names.iter().any(|name| trust.takes_bundles(name))) else {
        return Ok(None);
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".sig");
    let beside = Path::new(&beside);
    match files::read(beside, MOST_BUNDLE) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(files::error(beside, &error)),
    }
}

/// What a caller calls a module: one name or several.
#[derive(FromPyObject)]
pub(crate) enum Names {
    One(String),
    Several(Vec<String>),
}

impl From<Names> for Vec<String> {
    fn from(names: Names) -> Self {
        match names {
            Names::One(name) => vec![name],
            // A rule for everything covers what has no name.
            Names::Several(names) if names.is_empty() => vec![String::new()],
            Names::Several(names) => names,
        }
    }
}

/// Checks the signatures of a module. If a rule is for one of its names, the native code must be
/// the twin that the signed package carries.
pub(crate) fn check(
    trust: &Trust,
    names: &[String],
    module: &[u8],
    bundle: Option<&[u8]>,
    native: Option<&Native>,
    gpu: &Gpu,
) -> callbox::Result<()> {
    for name in names {
        trust.check_with(name, module, bundle)?;
    }
    match native {
        Some(native) if names.iter().any(|name| trust.asks_for(name)) => {
            check_twin(module, native, gpu)
        }
        _ => Ok(()),
    }
}

fn check_twin(module: &[u8], native: &Native, gpu: &Gpu) -> callbox::Result<()> {
    let denied = |message: &str| Status::new(StatusCode::PermissionDenied, Blame::Caller, message);
    let package = callbox_package::find(module, &Limits::default())?;
    let Some(package) = package else {
        return Err(denied(
            "the signature of a module does not cover native code: expected a package with its twin",
        ));
    };
    let text = package
        .file(MANIFEST)
        .and_then(|text| str::from_utf8(text).ok());
    let carried = text.map(|text| {
        let manifest = Manifest::parse(text)?;
        let images = manifest.images.iter();
        let images = images.map(|image| Some(package.file(&image.file)?.to_vec()));
        let images = images.collect::<Option<Vec<_>>>();
        let images = images.ok_or_else(|| denied("the package lacks an image of its twin"))?;
        CudaModule::from_manifest(text, images, &native.grants, gpu)
    });
    match carried.transpose()? {
        Some(carried) if carried.identity() == native.identity() => Ok(()),
        _ => Err(denied(
            "the native code is not the twin that the signed package carries",
        )),
    }
}
