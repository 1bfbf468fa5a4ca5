//! Runs a case on a platform and judges its outcome.

mod problem;
mod stress;
#[cfg(test)]
mod tests;
mod verdict;

use std::time::{Duration, Instant};

pub use self::problem::{Difference, Problem};
pub use self::stress::{RUNS, Stressed, THREADS};
use crate::case::{Case, Expect, MarkKind, Step};
pub use crate::platform::host::{guest, shared_engine};
use crate::platform::{Bench, Outcome, Platform, Prepared};

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The outcome was as expected.
    Passed,
    /// The case failed, as it is marked, for this reason.
    FailedAsExpected(String),
    /// callbox reported UNIMPLEMENTED, as the case is marked, for this reason.
    Unsupported(String),
    /// The case was not run, for this reason.
    NotRun(String),
    /// The outcome was not as expected.
    Failed(Problem),
}

/// The result of a case on a platform.
#[derive(Clone, Debug)]
pub struct Ran {
    /// How the case ended.
    pub verdict: Verdict,
    /// The concurrent runs, if there were any.
    pub stressed: Option<Stressed>,
    /// The total duration.
    pub time: Duration,
}

impl Ran {
    /// Makes the result of a case that was not run.
    #[must_use]
    pub fn not_run(reason: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::NotRun(reason.into()),
            stressed: None,
            time: Duration::ZERO,
        }
    }

    /// Makes the result of a case that failed before it could run.
    #[must_use]
    pub fn failed(problem: Problem) -> Self {
        Self {
            verdict: Verdict::Failed(problem),
            stressed: None,
            time: Duration::ZERO,
        }
    }
}

/// Runs a case on a platform, first alone and then concurrently, and judges it.
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

/// Prepares a case, runs it once and judges it. The caller has checked that the platform is
/// available and that the case is for it.
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

/// Runs the steps in order.
fn steps(case: &Case, bench: &dyn Bench, prepared: &dyn Prepared) -> Result<Vec<Outcome>, Problem> {
    let step = |step| {
        let outcome = prepared.run(step)?;
        after_step(case, bench)?;
        Ok(outcome)
    };
    case.steps.iter().map(step).collect()
}

/// Runs a healthy guest after a step of a hostile case.
fn after_step(case: &Case, bench: &dyn Bench) -> Result<(), Problem> {
    if case.is_hostile {
        Ok(bench.run_healthy()?)
    } else {
        Ok(())
    }
}

/// Judges the outcomes of a case's steps by its expectation and its marks.
///
/// # Errors
/// The differences from the expectation.
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
                "expected the case to fail ({reason}), and it passed: remove the mark"
            ))),
        },
        MarkKind::Unsupported => {
            verdict::check_unsupported(reason, outcomes)?;
            // An expected status says what the message must contain.
            let expects_status = |step: &Step| matches!(step.expect, Expect::Status(_));
            if case.steps.iter().all(expects_status) {
                verdict::check(case, outcomes)?;
            }
            Ok(Verdict::Unsupported(reason.clone()))
        }
    }
}
