//! Rules about signatures, which hold for everything that a host loads.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use callbox::call::TargetModule;
use callbox::cuda::CudaModule;
use callbox::policy::Gpu;
use callbox::{Blame, Status, StatusCode};
use callbox_cli::packages;
use callbox_package::{Limits, MANIFEST, Trust, names_of_file};
use pyo3::prelude::*;

use crate::exit::argument;
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

/// The same for Python.
#[pyfunction(name = "names_of_file")]
pub(crate) fn names_of_path(#[pyo3(from_py_with = argument)] path: PathBuf) -> Vec<String> {
    names_of_file(&path)
}

/// The bundle of signatures beside a file, if there is one and a rule asks for it.
pub(crate) fn bundle_beside(
    py: Python<'_>,
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
    match py.detach(|| files::read(beside, MOST_BUNDLE)) {
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

/// Checks the signatures of a module.
pub(crate) fn check(
    trust: &Trust,
    names: &[String],
    module: &[u8],
    bundle: Option<&[u8]>,
) -> callbox::Result<()> {
    let mut names = names.iter();
    names.try_for_each(|name| trust.check_with(name, module, bundle))
}

/// The digest of the twin of a package whose signatures were checked, if a rule for one of its
/// names grants the native code that it signs.
pub(crate) fn signed_twin(
    trust: &Trust,
    names: &[String],
    module: &[u8],
) -> callbox::Result<Option<[u8; 32]>> {
    if names.iter().any(|name| trust.grants_native(name)) {
        packages::twin_digest(module)
    } else {
        Ok(None)
    }
}

/// The names of a manifest and of its images for rules.
pub(crate) fn names_of_native(manifest: &Path, native: &CudaModule) -> Vec<String> {
    let images: BTreeSet<&str> = native.image_files().collect();
    let images = images.into_iter();
    let images = images.flat_map(|file| names_of_file(&manifest.with_file_name(file)));
    names_of_file(manifest).into_iter().chain(images).collect()
}

/// Checks native code in files of its own: if a rule is for one of the names of the module or of
/// these files, it must be the twin that the signed package carries.
pub(crate) fn check_native(
    trust: &Trust,
    names: &[String],
    module: &[u8],
    native: &Native,
    gpu: &Gpu,
) -> callbox::Result<()> {
    if names.iter().any(|name| trust.asks_for(name)) {
        check_twin(module, native, gpu)
    } else {
        Ok(())
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
    let carried = match package.file(MANIFEST) {
        Some(_) => Some(packages::load_twin(module, &native.grants, gpu)?),
        None => None,
    };
    match carried {
        Some(carried) if carried.identity() == native.identity() => Ok(()),
        _ => Err(denied(
            "the native code is not the twin that the signed package carries",
        )),
    }
}
