//! One case in every manner of handing buffers to targets of the C ABI. All must give the same.

use anyhow::{Context, Result, bail};

use super::Manner;
use crate::case::Step;
use crate::platform::{Failure, Outcome, Prepared, describe, is_same};

struct Variants<'c>(Vec<(Manner, Box<dyn Prepared + 'c>)>);

/// Prepares a case in each manner.
///
/// # Errors
/// How one manner differs from another.
pub(super) fn prepare<'c>(
    prepare: impl Fn(Manner) -> Result<Result<Box<dyn Prepared + 'c>, Failure>>,
) -> Result<Result<Box<dyn Prepared + 'c>, Failure>> {
    let mut ready = Vec::new();
    let mut failures: Vec<(Manner, Failure)> = Vec::new();
    for manner in Manner::ALL {
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

/// # Errors
/// How outcomes differ that ought to be the same.
fn differ((first, a): (Manner, &Outcome), (second, b): (Manner, &Outcome)) -> Result<()> {
    if is_same(a, b) {
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
