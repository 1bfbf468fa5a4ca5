//! Runs a case on the platform Host, and judges what came of it.

mod call;
mod engine;
mod layout;
mod program;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use callbox::call::CallOptions;
use callbox::wasm::{Engine, Module};
use callbox::{ArrayShape, Deadline, Status};

pub use self::engine::{guest, shared as shared_engine};
use crate::case::{Case, Expect, ExpectedLog, Mark, Phase, Step, Subject};
use crate::module::ModuleSource;

/// What came of one step.
pub type Outcome = Result<Found, Failure>;

/// What a step gave.
#[derive(Debug)]
pub enum Found {
    /// Results, as leaves in preorder, each row-major, and what the guest logged meanwhile.
    Results(Vec<(ArrayShape, Vec<u8>)>, Vec<ExpectedLog>),
    /// A loaded module's targets.
    Targets(Vec<String>),
}

/// How a step failed.
#[derive(Debug)]
pub struct Failure {
    /// What was being done.
    pub phase: Phase,
    /// The status.
    pub status: Status,
    /// Whether the caller's result buffers were written to all the same.
    pub wrote_results: bool,
}

/// How a case ended that is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it expects.
    Passed,
    /// It did not, and is marked so.
    FailedAsExpected,
    /// callbox said that it does not do this, and the case is marked so.
    Unsupported,
}

/// Runs a case and judges it.
///
/// # Errors
/// What differs from the expectation, and a case that cannot be run at all, say for want of a guest.
pub fn run(case: &Case) -> Result<Verdict> {
    let outcomes = outcomes(case)?;
    match &case.mark {
        None => verdict::check(case, &outcomes).map(|()| Verdict::Passed),
        Some(Mark::ExpectedFailure(reason)) => match verdict::check(case, &outcomes) {
            Err(_) => Ok(Verdict::FailedAsExpected),
            Ok(()) => anyhow::bail!(
                "expected the case to fail ({reason}), and it passed: take the mark away"
            ),
        },
        Some(Mark::Unsupported(reason)) => {
            verdict::check_unsupported(reason, &outcomes).map(|()| Verdict::Unsupported)
        }
    }
}

/// Runs a case's steps. One that fails before it executes is the last.
fn outcomes(case: &Case) -> Result<Vec<Outcome>> {
    let bench = Bench::new(case)?;
    match &case.subject {
        Subject::Load { module } => Ok(vec![bench.load(module)?.map(|module| {
            let targets = &module.info().targets;
            Found::Targets(targets.iter().map(|target| target.name.clone()).collect())
        })]),
        Subject::Call { module, site } => call::run(&bench, module, site, &case.steps),
        Subject::Program { text, targets } => program::run(&bench, text, targets, &case.steps),
    }
}

/// The engine that a case runs on, and what guests log on it.
struct Bench {
    engine: Engine,
    /// Whether other cases run on it too. Modules that were loaded into it are kept.
    is_shared: bool,
    log: Arc<Mutex<Vec<ExpectedLog>>>,
}

impl Bench {
    /// The shared engine, or one of its own for a case that needs other settings.
    fn new(case: &Case) -> Result<Self> {
        let log = Arc::default();
        let expects_log = |step: &Step| matches!(step.expect, Expect::Results(_, Some(_)));
        let is_shared = !case.has_own_limits
            && case.isolation == callbox::wasm::Isolation::default()
            && !case.steps.iter().any(expects_log);
        let engine = match is_shared {
            true => engine::shared().clone(),
            false => engine::own(case, &log)?,
        };
        Ok(Self {
            engine,
            is_shared,
            log,
        })
    }

    /// Loads a module. A failure is an outcome, a guest that was not built is an error.
    fn load(&self, source: &ModuleSource) -> Result<Result<Arc<Module>, Failure>> {
        if let (true, Some(name)) = (self.is_shared, source.guest()) {
            return Ok(engine::guest(name)?.map_err(|status| Failure::new(Phase::Load, status)));
        }
        let bytes = source.bytes()?;
        Ok(self
            .engine
            .load(&bytes)
            .map_err(|status| Failure::new(Phase::Load, status)))
    }

    /// What was logged since the last time.
    fn take_log(&self) -> Vec<ExpectedLog> {
        std::mem::take(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Failure {
    fn new(phase: Phase, status: Status) -> Self {
        Self {
            phase,
            status,
            wrote_results: false,
        }
    }
}

fn options(step: &Step) -> CallOptions {
    CallOptions {
        deadline: step.deadline.map(Deadline::After),
        cancel: None,
    }
}
