//! Packages: read from files and folders, and checked.

pub(super) mod folder;
pub(super) mod report;
#[cfg_attr(not(feature = "cuda"), path = "package/twin_left_out.rs")]
pub(super) mod twin;

use std::path::{Path, PathBuf};

use callbox::call::Signature;
use callbox::{Blame, ElementType, Result, Status, StatusCode};
use callbox_core::untrusted_text::clean_line;
use callbox_package::{CASES, Limits, Package};

use super::case::{Case, MOST_ARRAYS};
use super::failure::{Failure, Outcome};
use super::files::{ReadError, tensors};
use super::regular_file;
use super::text::name;

/// The beginning of the names of tensors that are packages.
pub(super) const PREFIX: &str = "callbox.";

/// Reads the bytes of a module that may be a package: of a file, or of `FILE.safetensors#TENSOR`.
pub(super) fn read_file(path: &Path) -> Outcome<Vec<u8>> {
    read_module(path, Limits::default().package_bytes)
}

/// The same for a module of at most `most` bytes.
pub(super) fn read_module(path: &Path, most: usize) -> Outcome<Vec<u8>> {
    match tensor_in(path) {
        Some((file, tensor)) => read_tensor(&file, tensor, most),
        None => regular_file::read(path, most),
    }
}

/// The file and the name of a path that ends with `.safetensors#NAME`, unless it is a file itself.
pub(super) fn tensor_in(path: &Path) -> Option<(PathBuf, &str)> {
    let (file, tensor) = path.to_str()?.split_once(".safetensors#")?;
    let is_tensor = !path.exists();
    is_tensor.then(|| (format!("{file}.safetensors").into(), tensor))
}

/// The paths of the packages beside the weights of a `.safetensors` file, for [`read_file`].
///
/// # Errors
/// NOT_FOUND if there is none, and those of reading the header.
pub(super) fn beside_weights(path: &Path) -> Outcome<Vec<PathBuf>> {
    let mut file = regular_file::open(path)?;
    let entries = tensors::entries(&mut file).map_err(|error| cannot(path, error))?;
    let tensors = entries.tensors.iter();
    let packages = tensors.filter(|tensor| tensor.name.starts_with(PREFIX) && tensor.is_bytes);
    let packages = Vec::from_iter(packages.map(|tensor| in_tensor(path, &tensor.name)));
    if packages.is_empty() {
        let message = format!("the file has no package: a U8 tensor `{PREFIX}NAME` is one");
        let status = Status::new(StatusCode::NotFound, Blame::Caller, message);
        return Err(status.context(path.display()).into());
    }
    Ok(packages)
}

/// `FILE#TENSOR`.
pub(super) fn in_tensor(file: &Path, tensor: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push("#");
    path.push(tensor);
    path.into()
}

fn cannot(path: &Path, error: ReadError) -> Failure {
    match error {
        ReadError::Io(error) => regular_file::cannot(path, &error),
        ReadError::Status(status) => status.context(path.display()).into(),
    }
}

fn read_tensor(path: &Path, name: &str, most: usize) -> Outcome<Vec<u8>> {
    let cannot = |error| self::cannot(path, error);
    let mut file = regular_file::open(path)?;
    let entries = tensors::entries(&mut file).map_err(cannot)?;
    // Of a tensor that is not there, the reader tells which ones are.
    let mut tensors = entries.tensors.iter();
    if let Some(tensor) = tensors.find(|tensor| tensor.name == name) {
        let in_file = |status: Status| status.context(path.display());
        if !tensor.is_bytes {
            let message = format!("expected a tensor of U8, found {}", tensor.dtype);
            return Err(in_file(wrong(message)).into());
        }
        let size = tensor.range.len();
        if size > most {
            let message = format!("expected a module of at most {most} bytes, found {size}");
            let status = Status::new(StatusCode::ResourceExhausted, Blame::Guest, message);
            return Err(in_file(status).into());
        }
    }
    let read = tensors::read(&mut file, name, Some(ElementType::U8)).map_err(cannot)?;
    Ok(read.bytes().unwrap_or_default().to_vec())
}

/// The contents of a package that were checked without running anything.
pub(super) struct Checked {
    /// The native twin.
    pub(super) twin: Option<twin::Twin>,
    /// The cases, in the order of their paths.
    pub(super) cases: Vec<Case>,
}

/// Checks that the parts of a package agree with its module, which has these targets.
///
/// # Errors
/// INVALID_ARGUMENT if a derivative, the twin or a case is wrong or names another target, and
/// NOT_FOUND if there are no cases.
pub(super) fn check(package: &Package<'_>, targets: &[Signature]) -> Result<Checked> {
    let has = |target: &str| targets.iter().any(|known| known.name == target);
    for (target, derivative) in &package.header().derivatives {
        for target in [target, derivative] {
            if !has(target) {
                return Err(wrong(format!(
                    "`derivatives` names \"{}\", which is not a target of the module; {}",
                    name(target),
                    known(targets)
                )));
            }
        }
    }
    let twin = twin::read(package, targets)?;
    let mut cases = Vec::new();
    let mut left = MOST_ARRAYS;
    for (path, bytes) in package.files() {
        if path.starts_with(CASES) && path.ends_with(".json") {
            let case = Case::read(path, bytes, package, &mut left).and_then(|case| {
                if has(case.target()) {
                    return Ok(case);
                }
                Err(wrong(format!(
                    "\"{}\" is not a target of the module; {}",
                    name(case.target()),
                    known(targets)
                )))
            });
            cases.push(case.map_err(|status| status.context(path))?);
        }
    }
    if cases.is_empty() {
        return Err(Status::new(
            StatusCode::NotFound,
            Blame::Guest,
            format!("the package has no cases: `{CASES}NAME.json` has one"),
        ));
    }
    Ok(Checked { twin, cases })
}

/// The targets of a module, for a message.
pub(super) fn known(targets: &[Signature]) -> String {
    let names = targets.iter().take(16).map(|target| name(&target.name));
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return "it has none".to_owned();
    }
    let more = if targets.len() > names.len() {
        ", ..."
    } else {
        ""
    };
    format!("it has {}{more}", names.join(", "))
}

/// The most bytes of a message about a mistake, which may quote a part of the package.
const MOST_MESSAGE: usize = 4096;

/// A mistake in a package.
pub(super) fn wrong(message: String) -> Status {
    let status = Status::new(StatusCode::InvalidArgument, Blame::Guest, message);
    clean_line(status, MOST_MESSAGE)
}
