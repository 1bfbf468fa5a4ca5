//! Packages: read from files and folders, and checked.

pub(super) mod folder;
pub(super) mod report;
#[cfg_attr(not(feature = "cuda"), path = "package/twin_left_out.rs")]
pub(super) mod twin;

use std::path::Path;

use callbox::call::Signature;
use callbox::{Blame, Result, Status, StatusCode};
use callbox_core::untrusted_text::clean_line;
use callbox_package::{CASES, Limits, Package};

use super::case::{Case, MOST_ARRAYS};
use super::failure::Outcome;
use super::regular_file;
use super::text::name;

/// Reads the bytes of a module that may be a package.
pub(super) fn read_file(path: &Path) -> Outcome<Vec<u8>> {
    regular_file::read(path, Limits::default().package_bytes)
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
