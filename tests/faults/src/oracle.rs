//! Checks an altered run against the requirements 2 to 5 in the crate's documentation.

use callbox::wasm::faults::{Altered, Kind, Record};
use callbox::{ArrayShape, Blame, StatusCode};
use callbox_tests::case::Stress;
use callbox_tests::platform::{Failure, Found, Outcome};

use crate::subject::Trial;

/// The longest allowed failure text, which may nest several messages.
const LONGEST: usize = 64 << 10;

/// Checks an altered run.
///
/// # Errors
/// The violated requirement.
pub fn check(subject: &Trial<'_>, outcomes: &[Outcome], record: &Record) -> Result<(), String> {
    for (i, outcome) in outcomes.iter().enumerate() {
        let baseline = subject.baseline.get(i);
        let checked = match outcome {
            Err(failure) => check_failure(failure),
            Ok(found) => check_found(subject, found, baseline, record),
        };
        checked.map_err(|problem| format!("step {i}: {problem}"))?;
    }
    check_codes(subject, outcomes, record)
}

fn check_failure(failure: &Failure) -> Result<(), String> {
    let status = &failure.status;
    let problem = if failure.wrote_results {
        "a failed call wrote to its results"
    } else if status.code() == StatusCode::Internal && status.blame() == Blame::Host {
        "a failure of the host itself"
    } else if status.message().len() > LONGEST {
        "a long message"
    } else if status.message().chars().any(is_unfit) {
        "a message with control characters"
    } else {
        return Ok(());
    };
    Err(format!("{problem}: {status} (blame {})", status.blame()))
}

fn is_unfit(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

fn check_found(
    subject: &Trial<'_>,
    found: &Found,
    baseline: Option<&Outcome>,
    record: &Record,
) -> Result<(), String> {
    let bears = record
        .altered
        .iter()
        .any(|altered| bears_on_results(subject, altered));
    match (found, baseline) {
        (Found::Results(found, _), Some(Ok(Found::Results(expected, _)))) => {
            if found.iter().map(shape_of).ne(expected.iter().map(shape_of)) {
                return Err("results of other shapes".to_owned());
            }
            check_sizes(found)?;
            let repeats = matches!(subject.case.stress, Stress::Shared | Stress::Separate(_));
            if bears || !repeats || found == expected {
                Ok(())
            } else {
                Err("other results, which follow from nothing that was altered".to_owned())
            }
        }
        // A failing case may succeed when the guest's values change.
        (Found::Results(found, _), Some(Err(_)) | None) if !is_text_only(record) => {
            check_sizes(found)
        }
        (Found::Targets(found), Some(Ok(Found::Targets(expected)))) if found == expected => Ok(()),
        _ => Err("success, which follows from nothing that was altered".to_owned()),
    }
}

/// Returns whether only texts were altered. No failure depends on texts.
fn is_text_only(record: &Record) -> bool {
    let is_text = |altered: &Altered| {
        let text = ["log's message", "set-failure's message"];
        altered.seen.kind == Kind::Memory && text.contains(&altered.seen.what.as_str())
    };
    record.altered.iter().all(is_text)
}

fn shape_of((shape, _): &(ArrayShape, Vec<u8>)) -> &ArrayShape {
    shape
}

fn check_sizes(found: &[(ArrayShape, Vec<u8>)]) -> Result<(), String> {
    match found
        .iter()
        .find(|(shape, bytes)| bytes.len() != shape.byte_size())
    {
        Some((shape, bytes)) => Err(format!("{} bytes for {shape}", bytes.len())),
        None => Ok(()),
    }
}

/// Returns whether results depend on a value. They do, unless it is a log message, or the text of a
/// failure that no guest handles.
fn bears_on_results(subject: &Trial<'_>, altered: &Altered) -> bool {
    let Altered { seen, .. } = altered;
    match (seen.kind, seen.what.as_str()) {
        (Kind::Parameter, "log") | (Kind::Memory, "log's message") => false,
        (Kind::Parameter, "set-failure") | (Kind::Memory, "set-failure's message") => {
            calls_back(subject)
        }
        _ => true,
    }
}

/// Returns whether a guest of the case calls a function of the program, whose failure it may
/// handle.
fn calls_back(subject: &Trial<'_>) -> bool {
    subject.seen.iter().any(|seen| seen.what == "call-function")
}

/// Checks that a return code altered to a failure makes a call fail.
fn check_codes(subject: &Trial<'_>, outcomes: &[Outcome], record: &Record) -> Result<(), String> {
    let says_so = |altered: &Altered| {
        altered.seen.kind == Kind::Returned
            && altered.seen.what.starts_with("target ")
            && altered.to.iter().any(|&byte| byte != 0)
    };
    let heard = calls_back(subject) || outcomes.iter().any(Result::is_err);
    match record.altered.iter().find(|altered| says_so(altered)) {
        Some(altered) if !heard => Err(format!("success despite {altered:?}")),
        _ => Ok(()),
    }
}
