//! The platform Host: callbox, with WebAssembly modules for targets.

mod call;
mod engine;
mod ffi_call;
mod layout;
mod program;

use std::sync::Arc;

use anyhow::Result;
use callbox::call::CallOptions;
use callbox::policy::Traps;
use callbox::wasm::{Engine, Module};
use callbox::{Deadline, Status};

pub use self::engine::{guest, shared as shared_engine};
use super::{Bench, Failure, Found, Outcome, Platform, PlatformName, Prepared};
use crate::case::{Case, Expect, Phase, Step, Subject};
use crate::module::ModuleSource;

/// callbox on the CPU. It is always there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// How traps are caught, also where a case has a policy of its own.
    pub traps: Traps,
}

impl Platform for Host {
    fn name(&self) -> PlatformName {
        PlatformName::Host
    }

    fn availability(&self) -> Result<(), String> {
        Ok(())
    }

    fn open<'c>(&'c self, case: &'c Case) -> Result<Box<dyn Bench + 'c>> {
        Ok(Box::new(HostBench::new(*self, case)?))
    }
}

/// The engine that a case runs on.
struct HostBench<'c> {
    host: Host,
    case: &'c Case,
    engine: Engine,
    /// Whether other cases run on it too. Modules that were loaded into it are kept.
    is_shared: bool,
}

/// A module that is loaded, each time anew.
struct Loading<'c> {
    bench: &'c HostBench<'c>,
    module: &'c ModuleSource,
}

impl<'c> HostBench<'c> {
    /// The shared engine, or one of its own for a case that needs other settings.
    fn new(host: Host, case: &'c Case) -> Result<Self> {
        let expects_log = |step: &Step| matches!(step.expect, Expect::Results(_, Some(_)));
        let is_shared = case.policy.is_none() && !case.steps.iter().any(expects_log);
        // What instances of the case before said when they went is not this one's.
        drop(engine::take_log());
        let engine = match is_shared {
            true => engine::shared_by(host).clone(),
            false => engine::own(host, case)?,
        };
        Ok(Self {
            host,
            case,
            engine,
            is_shared,
        })
    }

    /// Loads a module. A failure is an outcome, a guest that was not built is an error.
    fn load(&self, source: &ModuleSource) -> Result<Result<Arc<Module>, Failure>> {
        if let (true, Some(name)) = (self.is_shared, source.guest()) {
            return Ok(engine::guest_by(self.host, name)?
                .map_err(|status| Failure::new(Phase::Load, status)));
        }
        self.load_anew(source)
    }

    fn load_anew(&self, source: &ModuleSource) -> Result<Result<Arc<Module>, Failure>> {
        let bytes = source.bytes()?;
        Ok(self
            .engine
            .load(&bytes)
            .map_err(|status| Failure::new(Phase::Load, status)))
    }
}

impl Bench for HostBench<'_> {
    fn prepare(&self) -> Result<Result<Box<dyn Prepared + '_>, Failure>> {
        match &self.case.subject {
            Subject::Load { module } => Ok(Ok(Box::new(Loading {
                bench: self,
                module,
            }))),
            Subject::Call { module, site } => call::prepare(self, module, site),
            Subject::FfiCall(call) => ffi_call::prepare(self, call),
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

/// A failure on the way to something that runs, as an outcome of its preparation.
fn failed<T>(phase: Phase, status: Status) -> Result<Result<T, Failure>> {
    Ok(Err(Failure::new(phase, status)))
}

fn options(step: &Step) -> CallOptions {
    CallOptions {
        deadline: step.deadline.map(Deadline::After),
        user_data: step.user_data.clone(),
        ..CallOptions::default()
    }
}
