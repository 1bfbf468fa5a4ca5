//! Compares the results of a native target with those of the same target as wasm.
//!
//! The Python package does so for calls of JAX programs, as `--shadow` does on the command line.

use std::collections::BTreeMap;

use callbox::Result;
use callbox::call::Signature;
use callbox_package::Limits;

pub use crate::case::{Tolerance, compare};
use crate::package;

/// The widest tolerances that the cases of a package declare for its targets. A module that is not
/// a package declares none.
///
/// # Errors
/// As for reading the package.
pub fn declared(bytes: &[u8], targets: &[Signature]) -> Result<BTreeMap<String, Tolerance>> {
    if callbox_package::find(bytes, &Limits::default())?.is_none() {
        return Ok(BTreeMap::new());
    }
    let package = callbox_package::read(bytes, &Limits::default())?;
    package::tolerances(&package, targets)
}
