//! Lent mathematics: the functions of `callbox:ffi/maths`, which compute on arrays in the guest's
//! memory.
//!
//! The contract is `wit/maths/callbox-maths.wit`, and the crate `callbox-maths` computes. This
//! module checks each range once, and separates results from operands. The computation borrows the
//! memory, which no guest can change meanwhile, and asks between two pieces whether the call was
//! stopped.
//!
//! Elements are no claims: the host computes with them and decides nothing by them.
//!
//! Without the feature `maths`, a module that imports a function is refused.

#[cfg(feature = "maths")]
mod convert;
#[cfg(feature = "maths")]
mod functions;
#[cfg(feature = "maths")]
mod norm;
#[cfg(feature = "maths")]
mod product;
#[cfg(feature = "maths")]
mod rows;
#[cfg(feature = "maths")]
mod sort;
#[cfg(feature = "maths")]
mod transform;

use callbox_core::policy::Grants;
use callbox_core::values::{Result, Status};
#[cfg(feature = "maths")]
use wasmtime::Linker;

use crate::failure::status;
use crate::frame::abi::{MATHS_MODULE, MATHS_VERSION};
#[cfg(feature = "maths")]
use crate::import::define_computation;
use crate::sections::ImportedItem;
#[cfg(feature = "maths")]
use crate::state::GuestState;

/// The functions, and their parameters as the canonical ABI flattens them. A record of more than 16
/// numbers is a pointer.
const FUNCTIONS: [(&str, &str); 16] = [
    ("map", "(i32, i32, i32, i32, i32)"),
    ("map-f64", "(i32, i32, i32, i32, i32)"),
    ("convert", "(i32, i32, i32, i32, i32, i32)"),
    ("softmax-rows", "(i32, i32, i32, i32, i32)"),
    ("reduce-rows", "(i32, i32, i32, i32, i32)"),
    ("dot-rows", "(i32, i32, i32, i32, i32, i32)"),
    ("softmax-rows-f64", "(i32, i32, i32, i32, i32)"),
    ("reduce-rows-f64", "(i32, i32, i32, i32, i32)"),
    ("dot-rows-f64", "(i32, i32, i32, i32, i32, i32)"),
    ("rms-norm-rows", "(i32, i32, i32, i32, i32, i32, f32)"),
    (
        "rms-norm-rows-gradient",
        "(i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, f32)",
    ),
    ("argsort-rows", "(i32, i32, i32, i32, i32, i32)"),
    ("argsort-rows-f64", "(i32, i32, i32, i32, i32, i32)"),
    ("fft-rows", "(i32, i32, i32, i32, i32, i32)"),
    ("fft-rows-f64", "(i32, i32, i32, i32, i32, i32)"),
    ("gemm", "(i32)"),
];

/// Defines the functions.
///
/// # Errors
/// wasmtime's, if the linker has an import of one of the names.
#[cfg(feature = "maths")]
pub(crate) fn define(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    let module = &format!("{MATHS_MODULE}{MATHS_VERSION}");
    define_computation(linker, module, "map", functions::map::<f32>)?;
    define_computation(linker, module, "map-f64", functions::map::<f64>)?;
    define_computation(linker, module, "convert", convert::convert)?;
    rows::define(linker, module)?;
    norm::define(linker, module)?;
    sort::define(linker, module)?;
    transform::define(linker, module)?;
    define_computation(linker, module, "gemm", product::gemm)
}

/// Checks the grant, the version and the type of an import of mathematics. Returns `None` for other
/// imports. Messages call the import `name`.
///
/// # Errors
/// PERMISSION_DENIED, UNIMPLEMENTED or INVALID_ARGUMENT, blamed on the guest.
pub(crate) fn check_import(
    import: &ImportedItem,
    name: &str,
    grants: &Grants,
) -> Option<Result<()>> {
    let version = import.module.strip_prefix(MATHS_MODULE)?;
    Some(check(import, name, version, grants))
}

fn check(import: &ImportedItem, name: &str, version: &str, grants: &Grants) -> Result<()> {
    if !grants.maths {
        return Err(denied(
            name,
            "the policy withholds mathematics; it takes \"maths\": true",
        ));
    }
    if cfg!(not(feature = "maths")) {
        return Err(denied(name, "this build has no mathematics"));
    }
    if version != MATHS_VERSION {
        return Err(status!(
            Unimplemented,
            Guest,
            "the import {name} is of another version of mathematics: this host has {MATHS_VERSION}"
        ));
    }
    match FUNCTIONS.iter().find(|(known, _)| *known == import.name) {
        Some((_, ty)) => import.check_type(name, ty),
        None => Err(denied(name, "mathematics has no such function")),
    }
}

fn denied(name: &str, why: &str) -> Status {
    status!(
        PermissionDenied,
        Guest,
        "the import {name} is not granted: {why}"
    )
}

/// Defines nothing: this build has no mathematics.
#[cfg(not(feature = "maths"))]
pub(crate) fn define<T>(_: &mut wasmtime::Linker<T>) -> wasmtime::Result<()> {
    Ok(())
}
