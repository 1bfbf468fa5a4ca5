//! Holds what came of a case against what it expects.

use anyhow::{Context, Result, bail, ensure};
use callbox::{ArrayShape, StatusCode};

use super::{Failure, Found, Outcome};
use crate::case::{Case, Expect, ExpectedLog, ExpectedResult, ExpectedStatus};
use crate::compare::compare;

/// Checks every step.
pub(super) fn check(case: &Case, outcomes: &[Outcome]) -> Result<()> {
    for (i, (step, outcome)) in std::iter::zip(&case.steps, outcomes).enumerate() {
        let checked = check_step(&step.expect, outcome);
        match case.steps.len() {
            1 => checked?,
            _ => checked.with_context(|| format!("step {i}"))?,
        }
    }
    ensure!(
        outcomes.len() == case.steps.len(),
        "expected {} steps to run, found {}: one failed before it executed",
        case.steps.len(),
        outcomes.len()
    );
    Ok(())
}

/// Checks that callbox says that it does not do what a case asks for.
pub(super) fn check_unsupported(reason: &str, outcomes: &[Outcome]) -> Result<()> {
    match outcomes.first() {
        Some(Err(failure)) if failure.status.code() == StatusCode::Unimplemented => Ok(()),
        Some(Err(failure)) => bail!(
            "expected UNIMPLEMENTED ({reason}), found {}",
            failure.status
        ),
        _ => bail!("expected UNIMPLEMENTED ({reason}), found success: take the mark away"),
    }
}

fn check_step(expect: &Expect, outcome: &Outcome) -> Result<()> {
    match (expect, outcome) {
        (Expect::Results(expected, log), Ok(Found::Results(found, logged))) => {
            check_results(expected, found)?;
            log.as_ref().map_or(Ok(()), |log| check_log(log, logged))
        }
        (Expect::Targets(expected), Ok(Found::Targets(found))) => {
            ensure!(
                expected == found,
                "expected the targets {expected:?}, found {found:?}"
            );
            Ok(())
        }
        (Expect::Status(expected), Err(failure)) => check_status(expected, failure),
        (Expect::Status(expected), Ok(found)) => {
            bail!("expected {}, found {}", expected.code, describe(found))
        }
        (_, Err(failure)) => bail!(
            "expected success, found {} ({:?}, blame {})\n{}",
            failure.status,
            failure.phase,
            failure.status.blame(),
            failure
                .status
                .backtrace()
                .map(ToString::to_string)
                .unwrap_or_default()
        ),
        _ => bail!("expected what the case cannot give"),
    }
}

fn describe(found: &Found) -> String {
    match found {
        Found::Results(leaves, _) => format!("success with {} results", leaves.len()),
        Found::Targets(targets) => format!("a module with the targets {targets:?}"),
    }
}

fn check_results(expected: &[ExpectedResult], found: &[(ArrayShape, Vec<u8>)]) -> Result<()> {
    ensure!(
        expected.len() == found.len(),
        "expected {} results, found {}",
        expected.len(),
        found.len()
    );
    let mut problems = Vec::new();
    for (i, (expected, (shape, bytes))) in std::iter::zip(expected, found).enumerate() {
        for leaf in expected.literal.leaves() {
            if let Err(problem) = compare(leaf, (shape, bytes), expected.ulps) {
                problems.push(format!("result {i}: {problem}"));
            }
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

fn check_log(expected: &[ExpectedLog], found: &[ExpectedLog]) -> Result<()> {
    ensure!(
        expected == found,
        "expected the log {expected:#?}, found {found:#?}"
    );
    Ok(())
}

fn check_status(expected: &ExpectedStatus, failure: &Failure) -> Result<()> {
    let status = &failure.status;
    let mut problems = Vec::new();
    let mut check = |what: &str, expected: String, found: String| {
        if expected != found {
            problems.push(format!("expected the {what} {expected}, found {found}"));
        }
    };
    check("code", expected.code.to_string(), status.code().to_string());
    if let Some(message) = &expected.message {
        check(
            "message",
            format!("{message:?}"),
            format!("{:?}", status.message()),
        );
    }
    if let Some(recoverable) = expected.recoverable {
        check(
            "recoverable bit",
            recoverable.to_string(),
            status.recoverable().to_string(),
        );
    }
    if let Some(blame) = expected.blame {
        check("blame", blame.to_string(), status.blame().to_string());
    }
    if let Some(phase) = expected.phase {
        check(
            "phase",
            format!("{phase:?}"),
            format!("{:?}", failure.phase),
        );
    }
    for part in expected
        .contains
        .iter()
        .filter(|part| !status.message().contains(*part))
    {
        problems.push(format!("expected a message that contains {part:?}"));
    }
    check_backtrace(&expected.backtrace, failure, &mut problems);
    if failure.wrote_results {
        problems.push(
            "expected the caller's results untouched by a failed call, found them written to"
                .to_owned(),
        );
    }
    ensure!(
        problems.is_empty(),
        "{}\nthe status is {status} (blame {})",
        problems.join("\n"),
        status.blame()
    );
    Ok(())
}

/// Checks that these names are in the backtrace, in this order.
fn check_backtrace(expected: &[String], failure: &Failure, problems: &mut Vec<String>) {
    let frames = failure
        .status
        .backtrace()
        .map(|b| b.frames())
        .unwrap_or_default();
    let mut frames_left = frames.iter();
    for name in expected {
        if !frames_left.any(|frame| frame.contains(name.as_str())) {
            problems.push(format!(
                "expected {name:?} in the backtrace, found {frames:?}"
            ));
        }
    }
}
