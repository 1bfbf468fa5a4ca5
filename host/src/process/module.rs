//! Modules behind the second wall.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::calls::{ProcessCall, Sites};
use super::child::{Asking, Process, START};
use super::message::Request;
use super::pool::Pool;
use super::sandbox::Shared;
use crate::call::{CallSite, CancelToken, Platform, PreparedCalls, Signature, TargetModule};
use crate::policy::Grants;
use crate::values::{Result, Status};
use crate::wasm::{ModuleInfo, inspect};

/// A guest's module that runs in processes of its own.
pub struct ProcessModule {
    pub(super) shared: Arc<Shared>,
    grants: Arc<Grants>,
    wasm: Vec<u8>,
    info: ModuleInfo,
    identity: String,
    /// Workers that have compiled the module and serve no executable yet.
    loaded: Arc<Pool>,
}

impl ProcessModule {
    pub(super) fn new(shared: &Arc<Shared>, wasm: &[u8], grants: &Grants) -> Result<Self> {
        check_grants(grants)?;
        let limits = &shared.policy.limits;
        let info = inspect(wasm, limits)?;
        info.check(limits, grants)?;
        let new = Self {
            identity: format!("{} of sandbox {} with {grants:?}", info.sha256, shared.id),
            shared: Arc::clone(shared),
            grants: Arc::new(grants.clone()),
            wasm: wasm.to_vec(),
            info,
            loaded: Arc::default(),
        };
        shared.add_pool(&new.loaded);
        new.loaded.put(new.compile(None)?);
        Ok(new)
    }

    /// What can be said of the module without running it.
    #[must_use]
    pub fn info(&self) -> &ModuleInfo {
        &self.info
    }

    /// Prepares one call site of one of the module's targets: for calls outside a program.
    ///
    /// # Errors
    /// As for [`TargetModule::prepare`], and INVALID_ARGUMENT if the call site refers to functions: there is no program to call back.
    pub fn prepare_call(self: &Arc<Self>, site: CallSite) -> Result<ProcessCall> {
        if !site.functions.is_empty() {
            return Err(Status::invalid_argument(format!(
                "{}: expected no functions to call back, for there is no program, found {}",
                site.name,
                site.functions.len()
            )));
        }
        Ok(ProcessCall::new(Sites::new(
            Arc::clone(self),
            vec![site],
            true,
        )?))
    }

    /// A worker that has compiled the module and serves no executable yet.
    pub(super) fn worker(&self, cancel: Option<&CancelToken>) -> Result<Process> {
        let loaded = self.loaded.take();
        loaded.map_or_else(|| self.compile(cancel), Ok)
    }

    fn compile(&self, cancel: Option<&CancelToken>) -> Result<Process> {
        let mut process = Process::start(&self.shared, &self.grants, cancel)?;
        let limit = self.shared.policy.limits.compile_time;
        let until = limit.and_then(|limit| Instant::now().checked_add(limit.saturating_add(START)));
        let request = Request::Load(self.wasm.clone());
        let asking = Asking {
            cancel,
            ..Asking::plain("the module's compilation", until)
        };
        process.ask(&request, asking)?;
        Ok(process)
    }
}

/// Directories would have to be opened here and handed over, and clocks and randomness are more than the worker's filter lets through.
fn check_grants(grants: &Grants) -> Result<()> {
    match grants.any_wasi() {
        false => Ok(()),
        true => Err(Status::unimplemented(
            "expected no grants but log messages for a module in a process of its own, found directories, a clock or randomness",
        )),
    }
}

impl TargetModule for ProcessModule {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn platform(&self) -> Platform {
        Platform::Host
    }

    fn targets(&self) -> &[Signature] {
        &self.info.targets
    }

    fn prepare(self: Arc<Self>, sites: Vec<CallSite>) -> Result<Box<dyn PreparedCalls>> {
        Ok(Box::new(Sites::new(self, sites, false)?))
    }
}

impl fmt::Debug for ProcessModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessModule")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}
