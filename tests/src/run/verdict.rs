//! Compares the outcomes of a case with its expectation.

use callbox::{ArrayShape, Blame, StatusCode};

use super::problem::{Difference, Problem};
use crate::case::{Case, Expect, ExpectedLog, ExpectedMessage, ExpectedResult, ExpectedStatus};
use crate::compare::compare;
use crate::platform::{Failure, Found, Outcome};

/// Checks every step.
pub(super) fn check(case: &Case, outcomes: &[Outcome]) -> Result<(), Problem> {
    for (i, (step, outcome)) in std::iter::zip(&case.steps, outcomes).enumerate() {
        let checked = Problem::of(check_step(&step.expect, outcome));
        match case.steps.len() {
            1 => checked?,
            _ => checked.map_err(|problem| problem.within(&format!("step {i}")))?,
        }
    }
    let (expected, found) = (case.steps.len(), outcomes.len());
    Problem::of(if expected == found {
        Vec::new()
    } else {
        vec![
            Difference::new("steps that run", expected.to_string(), found.to_string())
                .with_note("a step failed before it executed"),
        ]
    })
}

/// Checks that callbox itself reported UNIMPLEMENTED.
pub(super) fn check_unsupported(reason: &str, outcomes: &[Outcome]) -> Result<(), Problem> {
    let found = match outcomes.first() {
        // A guest may return UNIMPLEMENTED itself, which does not count.
        Some(Err(failure))
            if failure.status.code() == StatusCode::Unimplemented
                && failure.status.blame() != Blame::Guest =>
        {
            return Ok(());
        }
        Some(Err(failure)) => failure.status.to_string(),
        _ => "success: remove the mark".to_owned(),
    };
    let expected = format!("UNIMPLEMENTED ({reason})");
    Problem::of(vec![Difference::new("outcome", expected, found)])
}

fn check_step(expect: &Expect, outcome: &Outcome) -> Vec<Difference> {
    match (expect, outcome) {
        (Expect::Results(expected, log), Ok(Found::Results(found, logged))) => {
            let mut differences = check_results(expected, found);
            differences.extend(log.as_ref().and_then(|log| check_log(log, logged)));
            differences
        }
        (Expect::Targets(expected), Ok(Found::Targets(found))) if expected == found => Vec::new(),
        (Expect::Targets(expected), Ok(Found::Targets(found))) => {
            vec![differs("targets", expected, found)]
        }
        (Expect::Status(expected), Err(failure)) => check_status(expected, failure),
        (Expect::Status(expected), Ok(found)) => {
            let expected = expected.code.to_string();
            vec![Difference::new("outcome", expected, describe(found))]
        }
        (_, Err(failure)) => vec![unexpected(failure)],
        _ => vec![Difference::new(
            "outcome",
            "an outcome of the case's kind",
            "an outcome of another kind",
        )],
    }
}

fn describe(found: &Found) -> String {
    match found {
        Found::Results(leaves, _) => format!("success with {} results", leaves.len()),
        Found::Targets(targets) => format!("a module with the targets {targets:?}"),
    }
}

fn unexpected(failure: &Failure) -> Difference {
    let Failure { phase, status, .. } = failure;
    let found = format!("{status} ({phase:?}, blame {})", status.blame());
    let backtrace = status.backtrace().map(ToString::to_string);
    Difference::new("outcome", "success", found).with_note(backtrace.unwrap_or_default())
}

fn differs(place: &str, expected: impl std::fmt::Debug, found: impl std::fmt::Debug) -> Difference {
    Difference::new(place, format!("{expected:?}"), format!("{found:?}"))
}

fn check_results(expected: &[ExpectedResult], found: &[(ArrayShape, Vec<u8>)]) -> Vec<Difference> {
    if expected.len() != found.len() {
        return vec![differs("number of results", expected.len(), found.len())];
    }
    let mut differences = Vec::new();
    for (i, (expected, (shape, bytes))) in std::iter::zip(expected, found).enumerate() {
        for leaf in expected.literal.leaves() {
            if let Err(mismatch) = compare(leaf, (shape, bytes), expected.ulps) {
                differences.extend(Difference::of_array(&format!("result {i}"), mismatch));
            }
        }
    }
    differences
}

fn check_log(expected: &[ExpectedLog], found: &[ExpectedLog]) -> Option<Difference> {
    let lines = |log: &[ExpectedLog]| {
        let line = |message: &ExpectedLog| format!("{} {:?}", message.level, message.message);
        format!("[{}]", log.iter().map(line).collect::<Vec<_>>().join(", "))
    };
    (expected != found).then(|| Difference::new("log", lines(expected), lines(found)))
}

fn check_status(expected: &ExpectedStatus, failure: &Failure) -> Vec<Difference> {
    let status = &failure.status;
    let mut differences = Vec::new();
    let mut check = |place: &str, expected: Option<String>, found: String| {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            differences.push(Difference::new(place, expected, found));
        }
    };
    check(
        "code",
        Some(expected.code.to_string()),
        status.code().to_string(),
    );
    check(
        "recoverable bit",
        expected.recoverable.map(|bit| bit.to_string()),
        status.recoverable().to_string(),
    );
    check(
        "blame",
        expected.blame.map(|blame| blame.to_string()),
        status.blame().to_string(),
    );
    check(
        "phase",
        expected.phase.map(|phase| format!("{phase:?}")),
        format!("{:?}", failure.phase),
    );
    differences.extend(check_message(&expected.message, failure));
    differences.extend(check_backtrace(&expected.backtrace, failure));
    let frames = status.backtrace().map_or(0, |b| b.frames().len());
    if let Some(expected) = expected.frames.filter(|&expected| expected != frames) {
        differences.push(differs("frames of the backtrace", expected, frames));
    }
    if failure.wrote_results {
        differences.push(Difference::new(
            "the caller's results",
            "unchanged by a failed call",
            "changed",
        ));
    }
    if let Some(last) = differences.last_mut() {
        last.note = format!("the status is {status} (blame {})", status.blame());
    }
    differences
}

fn check_message(expected: &ExpectedMessage, failure: &Failure) -> Option<Difference> {
    let status = &failure.status;
    if expected.accepts(status.message(), failure.said.as_deref()) {
        return None;
    }
    let expected = match expected {
        ExpectedMessage::Any => String::new(),
        ExpectedMessage::Whole(whole) => format!("{whole:?}"),
        ExpectedMessage::Contains(parts) => format!("a message that contains {parts:?}"),
        ExpectedMessage::Says(text) => format!("a message in which the guest says {text:?}"),
        ExpectedMessage::Pattern(parts) => format!("a message like {:?}", parts.join("*")),
    };
    Some(Difference::new(
        "message",
        expected,
        format!("{:?}", status.message()),
    ))
}

/// Checks that the backtrace contains these names in order.
fn check_backtrace(expected: &[String], failure: &Failure) -> Option<Difference> {
    let frames = failure
        .status
        .backtrace()
        .map(|b| b.frames())
        .unwrap_or_default();
    let mut left = frames.iter();
    let has = |name: &String| left.any(|frame| frame.contains(name.as_str()));
    let is_there = expected.iter().all(has);
    (!is_there).then(|| differs("backtrace", expected, frames))
}
