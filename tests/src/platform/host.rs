//! The platform Host: callbox with WebAssembly modules.

mod backend;
mod call;
mod engine;
mod healthy;
mod marks;
mod program;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use callbox::Status;
use callbox::policy::{Limits, Traps};

use self::backend::Backend;
pub use self::backend::{Loaded, Wall};
pub use self::engine::{forget_shared, guest, shared as shared_engine};
use self::marks::Marked;
use super::{Bench, Failure, Found, Outcome, Platform, PlatformName, Prepared, ffi_call};
use crate::case::{Case, Expect, Phase, Step, Subject};
use crate::module::ModuleSource;

/// callbox on the CPU. It is always available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Host {
    /// How traps are caught, which overrides a case's policy.
    pub traps: Traps,
    /// What isolates guests from the host.
    pub wall: Wall,
}

impl Platform for Host {
    fn name(&self) -> PlatformName {
        PlatformName::Host
    }

    fn availability(&self) -> Result<(), String> {
        Ok(())
    }

    fn reason_against(&self, case: &Case) -> Option<&'static str> {
        let policy = case
            .policy
            .as_ref()
            .filter(|_| self.wall == Wall::Process)?;
        let most = Limits::default().executable_memory_bytes;
        if policy.limits.executable_memory_bytes != most {
            return Some(
                "behind the second wall each worker's memory is bounded, and not that of all together",
            );
        }
        let grants = std::iter::once(&policy.grants).chain(policy.targets.values());
        let mut grants = grants.filter(|grants| grants.any_wasi());
        grants
            .next()
            .map(|_| "behind the second wall nothing of WASI can be granted")
    }

    /// Worker processes are expensive, and run the same code as this process.
    fn is_stressed(&self) -> bool {
        self.wall == Wall::Wasm
    }

    fn open<'c>(&'c self, case: &'c Case) -> Result<Box<dyn Bench + 'c>> {
        Ok(Box::new(HostBench::new(*self, case)?))
    }
}

/// The environment of a case.
struct HostBench<'c> {
    host: Host,
    case: &'c Case,
    backend: Backend,
    /// Whether other cases use the same engine. Its loaded guests are then cached.
    is_shared: bool,
    /// Modules loaded for this case, by their bytes, so that preparing again compiles nothing.
    modules: Mutex<HashMap<Vec<u8>, Loaded>>,
}

/// A module that each run loads anew.
struct Loading<'c> {
    bench: &'c HostBench<'c>,
    module: &'c ModuleSource,
}

impl<'c> HostBench<'c> {
    /// Uses the shared engine, or a new one for a case with other settings.
    fn new(host: Host, case: &'c Case) -> Result<Self> {
        let expects_log = |step: &Step| matches!(step.expect, Expect::Results(_, Some(_)));
        let is_shared = case.policy.is_none() && !case.steps.iter().any(expects_log);
        // Discards messages that dropped instances of earlier cases logged on this thread.
        drop(engine::take_log());
        let backend = if is_shared {
            engine::shared_by(host)
        } else {
            engine::own(host, case)?
        };
        Ok(Self {
            host,
            case,
            backend,
            is_shared,
            modules: Mutex::default(),
        })
    }

    /// Loads a module. A failure to load is an outcome; a guest that was not built is an error.
    fn load(&self, source: &ModuleSource) -> Result<Result<Loaded, Failure>> {
        if let (true, Some(name)) = (self.is_shared, source.guest()) {
            return Ok(engine::guest_by(self.host, name)?
                .map_err(|status| Failure::new(Phase::Load, status)));
        }
        let bytes = source.bytes()?;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(&bytes) {
            return Ok(Ok(module.clone()));
        }
        Ok(match self.backend.load(&bytes) {
            Ok(module) => {
                modules.insert(bytes, module.clone());
                Ok(module)
            }
            Err(status) => Err(Failure::new(Phase::Load, status)),
        })
    }

    fn load_anew(&self, source: &ModuleSource) -> Result<Result<Loaded, Failure>> {
        let bytes = source.bytes()?;
        Ok(self
            .backend
            .load(&bytes)
            .map_err(|status| Failure::new(Phase::Load, status)))
    }
}

impl Bench for HostBench<'_> {
    fn prepare(&self) -> Result<Result<Box<dyn Prepared + '_>, Failure>> {
        let prepared = self.prepare_subject()?;
        Ok(prepared.map(|prepared| Box::new(Marked(prepared)) as _))
    }

    fn run_healthy(&self) -> Result<()> {
        healthy::run(&self.backend)
    }
}

impl HostBench<'_> {
    fn prepare_subject(&self) -> Result<Result<Box<dyn Prepared + '_>, Failure>> {
        // Discards messages that dropped instances of earlier runs logged on this thread.
        drop(engine::take_log());
        match &self.case.subject {
            Subject::Load { module } => Ok(Ok(Box::new(Loading {
                bench: self,
                module,
            }))),
            Subject::Call { module, site } => call::prepare(self, module, site),
            Subject::FfiCall(call) => match self.load(&call.module)? {
                Ok(module) => ffi_call::prepare(
                    module.target_module(),
                    call,
                    &self.case.steps,
                    engine::take_log,
                ),
                Err(failure) => Ok(Err(failure)),
            },
            Subject::Program { text, targets } => program::prepare(self, text, targets),
        }
    }
}

impl Prepared for Loading<'_> {
    fn run(&self, _: &Step) -> Result<Outcome> {
        Ok(self.bench.load_anew(self.module)?.map(|module| {
            let targets = &module.info().targets;
            Found::Targets(targets.iter().map(|target| target.name.clone()).collect())
        }))
    }
}

/// Wraps a failed preparation as an outcome.
fn failed<T>(phase: Phase, status: Status) -> Result<Result<T, Failure>> {
    Ok(Err(Failure::new(phase, status)))
}
