//! Runs a case in several manners, of passing buffers to targets of the C ABI or of loading
//! kernels. All outcomes must be the same.

use anyhow::{Context, Result, bail};
use callbox::StatusCode;

use super::Manner;
use crate::case::Step;
use crate::platform::{Failure, Outcome, Prepared, describe, is_same};

struct Variants<'c>(Vec<(Manner, Box<dyn Prepared + 'c>)>);

/// Prepares a case in each of these manners.
///
/// # Errors
/// The difference between two manners.
pub(super) fn prepare<'c>(
    manners: &[Manner],
    prepare: impl Fn(Manner) -> Result<Result<Box<dyn Prepared + 'c>, Failure>>,
) -> Result<Result<Box<dyn Prepared + 'c>, Failure>> {
    let mut ready = Vec::new();
    let mut failures: Vec<(Manner, Failure)> = Vec::new();
    for &manner in manners {
        match prepare(manner).with_context(|| manner.to_string())? {
            Ok(prepared) => ready.push((manner, prepared)),
            Err(failure) => failures.push((manner, failure)),
        }
    }
    let Some((first_manner, first)) = failures.pop() else {
        return Ok(Ok(Box::new(Variants(ready))));
    };
    if let Some((manner, _)) = ready.first() {
        bail!(
            "{manner}: prepared, {first_manner}: {}",
            describe(&Err(first))
        );
    }
    for (manner, failure) in failures {
        differ((first_manner, &Err(first.clone())), (manner, &Err(failure)))?;
    }
    Ok(Err(first))
}

/// Whether a deadline ended both in the same way. Whether a loop or a call in it found that out, of
/// which the message tells, is arbitrary.
fn are_late(a: &Outcome, b: &Outcome) -> bool {
    let facts = |outcome: &Outcome| {
        let failure = outcome.as_ref().err()?;
        let is_late = failure.status.code() == StatusCode::DeadlineExceeded;
        is_late.then(|| (failure.phase, failure.status.blame(), failure.wrote_results))
    };
    facts(a).is_some() && facts(a) == facts(b)
}

/// # Errors
/// The difference between two outcomes.
fn differ((first, a): (Manner, &Outcome), (second, b): (Manner, &Outcome)) -> Result<()> {
    if is_same(a, b) || are_late(a, b) {
        return Ok(());
    }
    bail!(
        "expected the same in every manner\n  {first}: {}\n  {second}: {}",
        describe(a),
        describe(b)
    )
}

impl Prepared for Variants<'_> {
    fn run(&self, step: &Step) -> Result<Outcome> {
        let mut first: Option<(Manner, Outcome)> = None;
        for (manner, prepared) in &self.0 {
            let outcome = prepared.run(step).with_context(|| manner.to_string())?;
            match &first {
                None => first = Some((*manner, outcome)),
                Some((first, expected)) => differ((*first, expected), (*manner, &outcome))?,
            }
        }
        Ok(first.context("expected at least one manner")?.1)
    }
}
