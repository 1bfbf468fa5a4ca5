//! Modules behind the second wall.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::ProcessCall;
use super::calls::Sites;
use super::child::{Asking, Process};
use super::message::Request;
use super::pool::Pool;
use super::sandbox::Shared;
use callbox_core::call::{
    CallOptions, CallSite, CancelToken, Mapping, Platform, PreparedCalls, Signature, TargetModule,
};
use callbox_core::policy::Grants;
use callbox_core::values::{Result, Status};
use callbox_wasm::{ModuleFile, ModuleInfo};

/// A guest's module that runs in processes of its own.
pub struct ProcessModule {
    pub(super) shared: Arc<Shared>,
    grants: Arc<Grants>,
    file: ModuleFile,
    identity: String,
    /// Workers that have compiled the module but serve no executable yet.
    loaded: Arc<Pool>,
}

impl ProcessModule {
    /// Loads a file that was read within the sandbox's limits. The worker validates it.
    pub(super) fn new(shared: &Arc<Shared>, file: ModuleFile, grants: &Grants) -> Result<Self> {
        check_grants(grants)?;
        let info = file.info();
        info.check(&shared.policy.limits, grants)?;
        let new = Self {
            identity: format!("{} of sandbox {} with {grants:?}", info.sha256, shared.id),
            shared: Arc::clone(shared),
            grants: Arc::new(grants.clone()),
            file,
            loaded: Arc::default(),
        };
        shared.add_pool(&new.loaded);
        new.loaded.put(new.compile(None)?);
        Ok(new)
    }

    /// The description of the module, read without running it.
    #[must_use]
    pub fn info(&self) -> &ModuleInfo {
        self.file.info()
    }

    /// Prepares a call site of one of the module's targets, for calls outside a program.
    ///
    /// # Errors
    /// As for [`PreparedCall::new`](callbox_core::call::PreparedCall::new).
    pub fn prepare_call(self: &Arc<Self>, site: CallSite) -> Result<ProcessCall> {
        self.prepare_mapped(site, &Mapping::default())
    }

    /// Prepares a call site whose calls are mapped over the caller's arrays.
    ///
    /// # Errors
    /// As for [`PreparedCall::new`](callbox_core::call::PreparedCall::new).
    pub fn prepare_mapped(
        self: &Arc<Self>,
        site: CallSite,
        mapping: &Mapping,
    ) -> Result<ProcessCall> {
        ProcessCall::new(self, site, mapping)
    }

    /// The module's name in messages.
    pub(super) fn label(&self) -> String {
        self.file.label()
    }

    /// Takes or starts a worker that has compiled the module but serves no executable yet.
    pub(super) fn worker(&self, cancel: Option<&CancelToken>) -> Result<Process> {
        let loaded = self.loaded.take();
        loaded.map_or_else(|| self.compile(cancel), Ok)
    }

    fn compile(&self, cancel: Option<&CancelToken>) -> Result<Process> {
        let mut process = Process::start(&self.shared, &self.grants, cancel)?;
        let limit = self.shared.policy.limits.compile_time;
        // As for a compiler, reading the file counts, and the start of the worker does not.
        let left = limit.map(|limit| limit.saturating_sub(self.file.read_in()));
        let until = left.and_then(|left| Instant::now().checked_add(left));
        let request = Request::Load {
            wasm_bytes: self.file.bytes().len() as u64,
            label: self.file.label(),
        };
        let asking = Asking {
            cancel,
            ..Asking::plain("the module's compilation", until)
        };
        process.ask_with(&request, self.file.bytes(), asking)?;
        Ok(process)
    }
}

/// Refuses grants of WASI. This process would have to open directories for the worker, and the
/// worker's filter admits neither clocks nor randomness.
fn check_grants(grants: &Grants) -> Result<()> {
    if !grants.any_wasi() {
        return Ok(());
    }
    Err(Status::unimplemented(
        "expected no grants but log messages for a module in a process of its own, found directories, a clock or randomness",
    ))
}

impl TargetModule for ProcessModule {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn platform(&self) -> Platform {
        Platform::Host
    }

    fn targets(&self) -> &[Signature] {
        &self.file.info().targets
    }

    fn prepare(
        self: Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
    ) -> Result<Box<dyn PreparedCalls>> {
        Ok(Box::new(Sites::new(self, sites, options, false)?))
    }
}

impl fmt::Debug for ProcessModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessModule")
            .field("info", self.file.info())
            .finish_non_exhaustive()
    }
}
