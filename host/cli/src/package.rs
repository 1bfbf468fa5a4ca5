//! Packages: read from files and folders, and checked.

pub(super) mod folder;
pub(super) mod report;
#[cfg_attr(not(feature = "cuda"), path = "package/twin_left_out.rs")]
pub(super) mod twin;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use callbox::call::Signature;
use callbox::{Blame, ElementType, Result, Status, StatusCode};
use callbox_core::untrusted_text::clean_line;
use callbox_package::{CASES, Limits, Package};

use super::case::{Arrays, Case, Tolerance};
use super::failure::{Failure, Outcome};
use super::files::tensors::Tensors;
use super::files::{ReadError, tensors};
use super::regular_file;
use super::text::name;

/// The beginning of the names of tensors that are packages.
pub(super) const PREFIX: &str = "callbox.";

/// The most packages beside the weights of a file.
const MOST_BESIDE: usize = 256;

/// Reads the bytes of a module that may be a package: of a file, or of `FILE.safetensors#TENSOR`.
pub(super) fn read_file(path: &Path) -> Outcome<Vec<u8>> {
    read_module(path, Limits::default().package_bytes)
}

/// The same for a module of at most `most` bytes.
pub(super) fn read_module(path: &Path, most: usize) -> Outcome<Vec<u8>> {
    match tensor_in(path) {
        Some((file, tensor)) => read_tensor(&file, tensor, most),
        None => regular_file::read(path, most).map_err(|failure| match failure.status() {
            // The file is too long: it is wrong, not the path.
            status
                if (status.code(), status.blame())
                    == (StatusCode::ResourceExhausted, Blame::Caller) =>
            {
                let message = status.message().to_owned();
                Status::new(status.code(), Blame::Guest, message).into()
            }
            _ => failure,
        }),
    }
}

/// The file and the name of a path that ends with `.safetensors#NAME`, unless it is a file itself.
pub(super) fn tensor_in(path: &Path) -> Option<(PathBuf, &str)> {
    let (file, tensor) = path.to_str()?.split_once(".safetensors#")?;
    let is_tensor = !path.exists();
    is_tensor.then(|| (format!("{file}.safetensors").into(), tensor))
}

/// Calls a function with each package beside the weights of a `.safetensors` file: its path, for
/// [`read_file`], and its bytes. The header is read once.
///
/// # Errors
/// NOT_FOUND if there is none, RESOURCE_EXHAUSTED for more than 256, and those of reading the file
/// and of the function.
pub(super) fn beside_weights(
    path: &Path,
    mut each: impl FnMut(PathBuf, &[u8]) -> Outcome<()>,
) -> Outcome<()> {
    let cannot = |error| self::cannot(path, error);
    let most = Limits::default().package_bytes;
    let mut file = Tensors::open(regular_file::open(path)?).map_err(cannot)?;
    let packages = file.names_of(ElementType::U8);
    let packages = Vec::from_iter(packages.filter(|(name, _)| name.starts_with(PREFIX)));
    if packages.is_empty() {
        let message = format!("the file has no package: a U8 tensor `{PREFIX}NAME` is one");
        let status = Status::new(StatusCode::NotFound, Blame::Caller, message);
        return Err(status.context(path.display()).into());
    }
    if packages.len() > MOST_BESIDE {
        let found = packages.len();
        let message = format!("expected at most {MOST_BESIDE} packages, found {found}");
        let status = Status::new(StatusCode::ResourceExhausted, Blame::Guest, message);
        return Err(status.context(path.display()).into());
    }
    for (name, size) in packages {
        check_size(size, most).map_err(|status| status.context(path.display()))?;
        let read = file.read(&name, Some(ElementType::U8)).map_err(cannot)?;
        each(in_tensor(path, &name), read.bytes().unwrap_or_default())?;
    }
    Ok(())
}

fn check_size(size: usize, most: usize) -> Result<()> {
    if size <= most {
        return Ok(());
    }
    let message = format!("expected a module of at most {most} bytes, found {size}");
    Err(Status::new(
        StatusCode::ResourceExhausted,
        Blame::Guest,
        message,
    ))
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
        check_size(tensor.range.len(), most).map_err(in_file)?;
    }
    let read = tensors::read(&mut file, name, Some(ElementType::U8)).map_err(cannot)?;
    Ok(read.bytes().unwrap_or_default().to_vec())
}

/// The objects that all cases of a package may have together: an attribute keeps up to 4 KiB for
/// each.
const MOST_OBJECTS: usize = 1 << 15;

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
    check_derivatives(package, targets)?;
    let twin = twin::read(package, targets)?;
    let cases = cases(package, targets).collect::<Result<Vec<_>>>()?;
    if cases.is_empty() {
        return Err(no_cases());
    }
    Ok(Checked { twin, cases })
}

/// The widest tolerance of each target's cases, of which one at a time is kept.
///
/// # Errors
/// As of [`check`].
pub(super) fn tolerances(
    package: &Package<'_>,
    targets: &[Signature],
) -> Result<BTreeMap<String, Tolerance>> {
    check_derivatives(package, targets)?;
    twin::read(package, targets)?;
    let none = |target: &Signature| (target.name.clone(), Tolerance::default());
    let mut widest: BTreeMap<_, _> = targets.iter().map(none).collect();
    let mut is_empty = true;
    for case in cases(package, targets) {
        let case = case?;
        is_empty = false;
        let known = widest.get_mut(case.target());
        if let Some((known, one)) = known.zip(case.tolerance()) {
            *known = Tolerance::widest([*known, one].into_iter());
        }
    }
    if is_empty {
        Err(no_cases())
    } else {
        Ok(widest)
    }
}

fn check_derivatives(package: &Package<'_>, targets: &[Signature]) -> Result<()> {
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
    Ok(())
}

/// The cases of a package, in the order of their paths, each read when it is asked for.
fn cases<'a>(
    package: &'a Package<'_>,
    targets: &'a [Signature],
) -> impl Iterator<Item = Result<Case>> + 'a {
    let mut arrays = Arrays::new(package);
    let mut objects = MOST_OBJECTS;
    let files = package.files();
    let files = files.filter(|(path, _)| path.starts_with(CASES) && path.ends_with(".json"));
    files.map(move |(path, bytes)| {
        let mut read = || {
            let found = bytes.iter().filter(|&&byte| byte == b'{').count();
            objects = objects.checked_sub(found).ok_or_else(|| {
                let message = format!("expected cases of at most {MOST_OBJECTS} objects in all");
                Status::new(StatusCode::ResourceExhausted, Blame::Guest, message)
            })?;
            let case = Case::read(path, bytes, &mut arrays)?;
            if targets.iter().any(|target| target.name == case.target()) {
                return Ok(case);
            }
            Err(wrong(format!(
                "\"{}\" is not a target of the module; {}",
                name(case.target()),
                known(targets)
            )))
        };
        read().map_err(|status| status.context(path))
    })
}

fn no_cases() -> Status {
    Status::new(
        StatusCode::NotFound,
        Blame::Guest,
        format!("the package has no cases: `{CASES}NAME.json` has one"),
    )
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
