//! The functions of WASI preview 1 by name: their types, and the grant that each needs.

use callbox_core::policy::Grants;
use callbox_core::values::Result;

use crate::failure::status;
use crate::sections::ImportedItem;

/// The module from which a guest imports them.
pub(super) const MODULE: &str = "wasi_snapshot_preview1";

/// The grant that a function needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Any grant suffices: the start of C and Rust programs calls it, or it gives nothing.
    Anything,
    /// A directory.
    Directory,
    /// The clock.
    Clock,
    /// Random bytes.
    Randomness,
}

impl Need {
    pub(super) fn is_met(self, grants: &Grants) -> bool {
        match self {
            Self::Anything => grants.any_wasi(),
            Self::Directory => !grants.directories.is_empty(),
            Self::Clock => grants.clock,
            Self::Randomness => grants.randomness.is_some(),
        }
    }

    /// What the author can do instead.
    fn cure(self) -> &'static str {
        match self {
            Self::Anything => {
                ", or a kernel in C with callbox_wasi.h, or in Rust for wasm32-unknown-unknown"
            }
            Self::Directory | Self::Clock => "",
            Self::Randomness => ", or a kernel with a seed",
        }
    }

    /// The sufficient grants, by their names in a policy.
    fn described(self) -> &'static str {
        match self {
            Self::Anything => "a grant of directories, clock or randomness",
            Self::Directory => "a grant of directories",
            Self::Clock => "the grant clock",
            Self::Randomness => "the grant randomness",
        }
    }
}

/// Calls a macro with all functions that can be granted: the grant, how the function is served, and
/// its name and parameters.
///
/// `now` and `later` are served by wasmtime-wasi, directly or by a future; `vectored` by a future
/// whose second and third parameters are a list of buffers; `own` by this crate. `guarded` futures
/// refuse paths to files that block, and `opening` ones also count the files that they open.
macro_rules! each_function {
    ($then:ident) => {
        $then! {
            Anything now args_get(a: i32, b: i32) -> i32;
            Anything now args_sizes_get(a: i32, b: i32) -> i32;
            Anything now environ_get(a: i32, b: i32) -> i32;
            Anything now environ_sizes_get(a: i32, b: i32) -> i32;
            Anything now fd_prestat_dir_name(a: i32, b: i32, c: i32) -> i32;
            Anything now fd_prestat_get(a: i32, b: i32) -> i32;
            Anything now sched_yield() -> i32;
            Anything later fd_fdstat_get(a: i32, b: i32) -> i32;
            Anything later fd_seek(a: i32, b: i64, c: i32, d: i32) -> i32;
            Anything own fd_close(a: i32) -> i32;
            Anything own fd_write(a: i32, b: i32, c: i32, d: i32) -> i32;
            Anything own proc_exit(a: i32);
            Clock now clock_res_get(a: i32, b: i32) -> i32;
            Clock now clock_time_get(a: i32, b: i64, c: i32) -> i32;
            Randomness own random_get(a: i32, b: i32) -> i32;
            Directory now fd_allocate(a: i32, b: i64, c: i64) -> i32;
            Directory now fd_fdstat_set_flags(a: i32, b: i32) -> i32;
            Directory now fd_fdstat_set_rights(a: i32, b: i64, c: i64) -> i32;
            Directory now fd_tell(a: i32, b: i32) -> i32;
            Directory later fd_advise(a: i32, b: i64, c: i64, d: i32) -> i32;
            Directory later fd_datasync(a: i32) -> i32;
            Directory later fd_filestat_get(a: i32, b: i32) -> i32;
            Directory later fd_filestat_set_size(a: i32, b: i64) -> i32;
            Directory later fd_filestat_set_times(a: i32, b: i64, c: i64, d: i32) -> i32;
            Directory own fd_readdir(a: i32, b: i32, c: i32, d: i64, e: i32) -> i32;
            Directory later fd_sync(a: i32) -> i32;
            Directory later path_create_directory(a: i32, b: i32, c: i32) -> i32;
            Directory later path_filestat_get(a: i32, b: i32, c: i32, d: i32, e: i32) -> i32;
            Directory guarded path_filestat_set_times(a: i32, b: i32, c: i32, d: i32, e: i64, f: i64, g: i32) -> i32;
            Directory later path_link(a: i32, b: i32, c: i32, d: i32, e: i32, f: i32, g: i32) -> i32;
            Directory later path_readlink(a: i32, b: i32, c: i32, d: i32, e: i32, f: i32) -> i32;
            Directory later path_remove_directory(a: i32, b: i32, c: i32) -> i32;
            Directory later path_rename(a: i32, b: i32, c: i32, d: i32, e: i32, f: i32) -> i32;
            Directory later path_symlink(a: i32, b: i32, c: i32, d: i32, e: i32) -> i32;
            Directory later path_unlink_file(a: i32, b: i32, c: i32) -> i32;
            Directory vectored fd_pread(a: i32, b: i32, c: i32, d: i64, e: i32) -> i32;
            Directory own fd_pwrite(a: i32, b: i32, c: i32, d: i64, e: i32) -> i32;
            Directory own fd_read(a: i32, b: i32, c: i32, d: i32) -> i32;
            Directory own fd_renumber(a: i32, b: i32) -> i32;
            Directory opening path_open(a: i32, b: i32, c: i32, d: i32, e: i32, f: i64, g: i64, h: i32, i: i32) -> i32;
        }
    };
}
#[cfg(feature = "capabilities")]
pub(super) use each_function;

/// A function that can be granted.
struct Function {
    name: &'static str,
    ty: &'static str,
    need: Need,
}

macro_rules! table {
    ($($need:ident $how:ident $name:ident($($arg:ident: $ty:ident),*) $(-> $result:ident)?;)*) => {
        &[$(Function {
            name: stringify!($name),
            ty: concat!("(", stringify!($($ty),*), ")" $(, " -> ", stringify!($result))?),
            need: Need::$need,
        }),*]
    };
}

const FUNCTIONS: &[Function] = each_function!(table);

/// Functions that no grant allows, and why.
const NEVER: &[(&str, &str)] = &[
    (
        "poll_oneoff",
        "a call that waits in the host cannot be stopped",
    ),
    ("proc_raise", "a guest has no signals"),
    ("sock_accept", SOCKETS),
    ("sock_recv", SOCKETS),
    ("sock_send", SOCKETS),
    ("sock_shutdown", SOCKETS),
];

const SOCKETS: &str = "a guest has no network";

/// Checks the grant and the type of an import of WASI preview 1. Returns `None` for other imports.
/// Messages call the import `name`.
///
/// # Errors
/// PERMISSION_DENIED or INVALID_ARGUMENT, blamed on the guest.
pub(crate) fn check_import(
    import: &ImportedItem,
    name: &str,
    grants: &Grants,
) -> Option<Result<()>> {
    (import.module == MODULE).then(|| check(import, name, grants))
}

fn check(import: &ImportedItem, name: &str, grants: &Grants) -> Result<()> {
    let denied = |why: String| {
        Err(status!(
            PermissionDenied,
            Guest,
            "the import {name} is not granted: {why}"
        ))
    };
    if let Some((_, why)) = NEVER.iter().find(|(never, _)| *never == import.name) {
        return denied(format!("nothing grants it, for {why}"));
    }
    let mut functions = FUNCTIONS.iter();
    let Some(function) = functions.find(|function| function.name == import.name) else {
        return denied("WASI preview 1 has no such function".to_owned());
    };
    let need = function.need.described();
    if cfg!(not(feature = "capabilities")) {
        return denied(format!(
            "it takes {need}, and this build has no capabilities"
        ));
    }
    if !function.need.is_met(grants) {
        return denied(format!("it takes {need}{}", function.need.cure()));
    }
    import.check_type(name, function.ty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_like_those_of_imports() {
        let ty = |name| FUNCTIONS.iter().find(|f| f.name == name).map(|f| f.ty);
        assert_eq!(ty("sched_yield"), Some("() -> i32"));
        assert_eq!(ty("proc_exit"), Some("(i32)"));
        assert_eq!(
            ty("path_open"),
            Some("(i32, i32, i32, i32, i32, i64, i64, i32, i32) -> i32")
        );
    }

    #[test]
    fn every_function_of_preview_1_is_here_once() {
        let names = FUNCTIONS.iter().map(|function| function.name);
        let mut names: Vec<_> = names.chain(NEVER.iter().map(|(name, _)| *name)).collect();
        names.sort_unstable();
        names.dedup();
        // The number in the specification, wasi_snapshot_preview1.witx.
        assert_eq!(names.len(), 46);
        assert_eq!(FUNCTIONS.len() + NEVER.len(), 46);
    }
}
