//! What was granted to a module, and what an instance has of it.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use wasmtime::{InstancePre, Linker};
use wasmtime_wasi::filesystem::WasiFilesystemCtx;
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder, WasiView};

use super::super::shared::Shared;
use super::super::state::GuestState;
use super::files::Files;
use super::link;
use super::output::Output;
use super::random::Source;
use crate::policy::{Access, Directory, Grants, Policy, Randomness};
use crate::values::{Blame, Result, Status, StatusCode};

/// What is granted to a module. Its directories are open, so that they stay the same ones whatever becomes of their paths.
pub(in crate::wasm) struct Granted {
    grants: Grants,
    directories: WasiFilesystemCtx,
}

/// What an instance has of its module's grants.
pub(in crate::wasm) struct OfInstance {
    pub(super) wasi: WasiP1Ctx,
    pub(super) files: Files,
    pub(super) output: Output,
    pub(super) random: Option<Source>,
}

impl Granted {
    /// Opens what the grants name.
    ///
    /// # Errors
    /// The caller's doing: INVALID_ARGUMENT for grants that contradict the policy or name a directory twice; NOT_FOUND,
    /// PERMISSION_DENIED or FAILED_PRECONDITION for a directory that cannot be opened.
    pub(in crate::wasm) fn open(policy: &Policy, grants: &Grants) -> Result<Self> {
        check_determinism(policy, grants)?;
        check_names(&grants.directories)?;
        let mut builder = builder();
        for directory in &grants.directories {
            let permissions = match directory.access {
                Access::Read => FsPerms::ReadOnly,
                Access::ReadWrite => FsPerms::ReadWrite,
            };
            builder
                .preopened_dir(&directory.path, &directory.name, permissions)
                .map_err(|error| not_opened(directory, &error))?;
        }
        Ok(Self {
            grants: grants.clone(),
            directories: builder.build().filesystem().clone(),
        })
    }

    /// Links a module with the API table, which `linker` has, and what is granted.
    ///
    /// # Errors
    /// wasmtime's, if the module imports anything else.
    pub(in crate::wasm) fn link(
        &self,
        linker: &Linker<GuestState>,
        module: &wasmtime::Module,
    ) -> wasmtime::Result<InstancePre<GuestState>> {
        if !self.grants.any_wasi() {
            return linker.instantiate_pre(module);
        }
        let mut linker = linker.clone();
        link::define(&mut linker, &self.grants)?;
        linker.instantiate_pre(module)
    }

    /// What a new instance has of it.
    pub(in crate::wasm) fn for_instance(&self, shared: &Arc<Shared>) -> Option<Box<OfInstance>> {
        if !self.grants.any_wasi() {
            return None;
        }
        let mut wasi = builder().build_p1();
        // The directories that are open already.
        wasi.ctx().ctx.filesystem().clone_from(&self.directories);
        Some(Box::new(OfInstance {
            wasi,
            files: Files::new(shared, self.grants.directories.len()),
            output: Output::default(),
            random: self.grants.randomness.map(Source::new),
        }))
    }
}

/// A builder of contexts that grant nothing, and whose functions run on the thread that calls them.
fn builder() -> WasiCtxBuilder {
    let mut builder = WasiCtxBuilder::new();
    builder.allow_blocking_current_thread(true);
    builder
}

fn check_determinism(policy: &Policy, grants: &Grants) -> Result<()> {
    let what = match grants.randomness {
        Some(Randomness::System) => "random bytes of the system; a seed would do",
        _ if grants.clock => "a clock",
        _ => return Ok(()),
    };
    match policy.deterministic {
        true => Err(Status::invalid_argument(format!(
            "expected a deterministic policy to grant nothing that differs from run to run, found {what}"
        ))),
        false => Ok(()),
    }
}

/// Checks the names by which the guest knows its directories.
fn check_names(directories: &[Directory]) -> Result<()> {
    let mut names = HashSet::new();
    for directory in directories {
        let name = &directory.name;
        if name.is_empty() || name.contains('\0') {
            return Err(Status::invalid_argument(format!(
                "expected a name for the directory {:?} that a guest can use, found {name:?}",
                directory.path
            )));
        }
        if !names.insert(name) {
            return Err(Status::invalid_argument(format!(
                "expected directories of different names to be granted, found {name:?} twice"
            )));
        }
    }
    Ok(())
}

fn not_opened(directory: &Directory, error: &wasmtime::Error) -> Status {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    let code = match kind {
        Some(io::ErrorKind::NotFound) => StatusCode::NotFound,
        Some(io::ErrorKind::PermissionDenied) => StatusCode::PermissionDenied,
        Some(io::ErrorKind::NotADirectory) => StatusCode::InvalidArgument,
        _ => StatusCode::FailedPrecondition,
    };
    let message = format!(
        "expected the granted {:?} to be a directory that can be opened: {error:#}",
        directory.path
    );
    Status::new(code, Blame::Caller, message)
}

impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Granted").field(&self.grants).finish()
    }
}

impl fmt::Debug for OfInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfInstance")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
