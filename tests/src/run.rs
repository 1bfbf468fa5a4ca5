//! Runs a case on a platform, and judges what came of it.

mod problem;
mod stress;
#[cfg(test)]
mod tests;
mod verdict;

use std::time::{Duration, Instant};

pub use self::problem::{Difference, Problem};
pub use self::stress::{RUNS, Stressed, THREADS};
use crate::case::{Case, MarkKind};
pub use crate::platform::host::{guest, shared_engine};
use crate::platform::{Bench, Outcome, Platform, Prepared};

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it expects.
    Passed,
    /// It did not, and is marked so for this reason.
    FailedAsExpected(String),
    /// callbox said that it does not do this, and the case is marked so for this reason.
    Unsupported(String),
    /// It was not run, for this reason.
    NotRun(String),
    /// It did not do what it expects.
    Failed(Problem),
}

/// What came of a case on a platform.
#[derive(Clone, Debug)]
pub struct Ran {
    /// How it ended.
    pub verdict: Verdict,
    /// What was done to it in many threads at once, if it was.
    pub stressed: Option<Stressed>,
    /// How long it took, all in all.
    pub time: Duration,
}

impl Ran {
    /// A case that was not run.
    #[must_use]
    pub fn not_run(reason: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::NotRun(reason.into()),
            stressed: None,
            time: Duration::ZERO,
        }
    }

    /// A case that failed before it could be run.
    #[must_use]
    pub fn failed(problem: Problem) -> Self {
        Self {
            verdict: Verdict::Failed(problem),
            stressed: None,
            time: Duration::ZERO,
        }
    }
}

/// Runs a case on a platform and judges it, alone and then in many threads at once.
pub fn run(case: &Case, platform: &dyn Platform) -> Ran {
    if let Some(reason) = case.platforms.reason_against(platform.name()) {
        return Ran::not_run(reason);
    }
    if let Err(reason) = platform.availability() {
        return Ran::not_run(reason);
    }
    if let Some(reason) = platform.reason_against(case) {
        return Ran::not_run(reason);
    }
    let begun = Instant::now();
    let (verdict, stressed) = match verdict(case, platform) {
        Ok((verdict, stressed)) => (verdict, stressed),
        Err(problem) => (Verdict::Failed(problem), None),
    };
    Ran {
        verdict,
        stressed,
        time: begun.elapsed(),
    }
}

/// Runs a case once, prepared anew, and judges it. That the platform is there and the case is for it is the caller's to see to.
pub fn once(case: &Case, platform: &dyn Platform) -> Verdict {
    let judged = || {
        let bench = platform.open(case)?;
        let outcomes = match bench.prepare()? {
            Ok(prepared) => steps(case, &*bench, &*prepared)?,
            Err(failure) => {
                after_step(case, &*bench)?;
                vec![Err(failure)]
            }
        };
        judge(case, platform, &outcomes)
    };
    judged().unwrap_or_else(Verdict::Failed)
}

fn verdict(case: &Case, platform: &dyn Platform) -> Result<(Verdict, Option<Stressed>), Problem> {
    let bench = platform.open(case)?;
    let prepared = bench.prepare()?;
    let prepared = prepared.as_deref();
    let outcomes = match prepared {
        Ok(prepared) => steps(case, &*bench, prepared)?,
        Err(failure) => {
            after_step(case, &*bench)?;
            vec![Err(failure.clone())]
        }
    };
    let verdict = judge(case, platform, &outcomes)?;
    if !platform.is_stressed() {
        return Ok((verdict, None));
    }
    let again = |outcomes: &[Outcome]| judge(case, platform, outcomes).map(drop);
    let stressed = stress::run(case, &*bench, prepared.ok(), &outcomes, &again)?;
    after_step(case, &*bench)?;
    Ok((verdict, Some(stressed)))
}

/// Runs the steps, one after the other.
fn steps(case: &Case, bench: &dyn Bench, prepared: &dyn Prepared) -> Result<Vec<Outcome>, Problem> {
    let step = |step| {
        let outcome = prepared.run(step)?;
        after_step(case, bench)?;
        Ok(outcome)
    };
    case.steps.iter().map(step).collect()
}

/// After a hostile guest ran, a healthy one does.
fn after_step(case: &Case, bench: &dyn Bench) -> Result<(), Problem> {
    match case.is_hostile {
        true => Ok(bench.run_healthy()?),
        false => Ok(()),
    }
}

/// Holds what came of a case's steps against what it expects, and against what it says of its own failure.
///
/// # Errors
/// What is not as expected.
pub fn judge(
    case: &Case,
    platform: &dyn Platform,
    outcomes: &[Outcome],
) -> Result<Verdict, Problem> {
    let Some(mark) = case.mark(platform.name()) else {
        return verdict::check(case, outcomes).map(|()| Verdict::Passed);
    };
    let reason = &mark.reason;
    match mark.kind {
        MarkKind::ExpectedFailure => match verdict::check(case, outcomes) {
            Err(_) => Ok(Verdict::FailedAsExpected(reason.clone())),
            Ok(()) => Err(Problem::new(format!(
                "expected the case to fail ({reason}), and it passed: take the mark away"
            ))),
        },
        MarkKind::Unsupported => verdict::check_unsupported(reason, outcomes)
            .map(|()| Verdict::Unsupported(reason.clone())),
    }
}
