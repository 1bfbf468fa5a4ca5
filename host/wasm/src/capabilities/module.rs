//! The capabilities of a module: its grants, with their directories open.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use wasmtime::Linker;
use wasmtime_wasi::filesystem::WasiFilesystemCtx;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder, WasiView};

use callbox_core::policy::{Access, Directory, Grants, Policy, Randomness};
use callbox_core::values::{Blame, Result, Status, StatusCode};

use super::files::Files;
use super::instance::InstanceCapabilities;
use super::link;
use super::output::Output;
use super::random::RandomSource;
use crate::shared::EngineShared;
use crate::state::GuestState;

/// The capabilities of a module. Its directories are open, so that renaming or replacing a path
/// does not change what the module reaches.
pub(crate) struct ModuleCapabilities {
    grants: Grants,
    directories: WasiFilesystemCtx,
}

impl ModuleCapabilities {
    /// Opens the granted directories.
    ///
    /// # Errors
    /// All blamed on the caller: INVALID_ARGUMENT for grants that contradict the policy or name a
    /// directory twice; NOT_FOUND, PERMISSION_DENIED or FAILED_PRECONDITION for a directory that
    /// cannot be opened.
    pub(crate) fn open(policy: &Policy, grants: &Grants) -> Result<Self> {
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

    /// A linker with the API table, which `linker` has, and the granted functions.
    ///
    /// # Errors
    /// wasmtime's, if the module imports anything else.
    pub(crate) fn linker(
        &self,
        linker: &Arc<Linker<GuestState>>,
    ) -> wasmtime::Result<Arc<Linker<GuestState>>> {
        if !self.grants.any_wasi() {
            return Ok(Arc::clone(linker));
        }
        let mut linker = Linker::clone(linker);
        link::define(&mut linker, &self.grants)?;
        Ok(Arc::new(linker))
    }

    /// The capabilities of a new instance.
    pub(crate) fn for_instance(
        &self,
        shared: &Arc<EngineShared>,
    ) -> Option<Box<InstanceCapabilities>> {
        if !self.grants.any_wasi() {
            return None;
        }
        let mut wasi = builder().build_p1();
        // Shares the directories that are open already.
        wasi.ctx().ctx.filesystem().clone_from(&self.directories);
        Some(Box::new(InstanceCapabilities {
            wasi,
            files: Files::new(shared, self.grants.directories.len()),
            output: Output::default(),
            random: self.grants.randomness.map(RandomSource::new),
        }))
    }
}

/// A builder of contexts without grants, whose functions run on the calling thread.
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
    if policy.deterministic {
        return Err(Status::invalid_argument(format!(
            "expected a deterministic policy to grant nothing that differs from run to run, found {what}"
        )));
    }
    Ok(())
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
    let code = match error.downcast_ref().map(io::Error::kind) {
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

impl fmt::Debug for ModuleCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModuleCapabilities")
            .field(&self.grants)
            .finish()
    }
}
