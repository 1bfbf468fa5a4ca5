//! The conformance suite on CUDA, with the status codes of its cases compared with the stand-in's.

mod recording;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use callbox_tests::discover;
use callbox_tests::platform::Platform;
use callbox_tests::platform::cuda::Cuda;
use callbox_tests::report::{CaseReport, Ending};
use callbox_tests::suite::Suite;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::recording::Recording;
use crate::guests;
use crate::report::{FORMAT, Section};

/// For each case that ran, the code of each step: `OK`, or the status's.
pub(crate) type Codes = BTreeMap<String, Vec<String>>;

/// The file with the stand-in's codes, relative to the root.
pub(crate) const RECORD: &str = "stand-in.json";

/// The stand-in's codes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The format of the file.
    pub(crate) format: u32,
    /// The name of the recording device, which is not a GPU.
    pub(crate) made_on: String,
    /// callbox's version.
    pub(crate) callbox: String,
    /// The commit.
    pub(crate) commit: String,
    /// The codes.
    pub(crate) codes: Codes,
}

/// Runs the cases whose names contain `filter`, also concurrently if `is_stressed`.
///
/// # Errors
/// Cases that cannot be found, and a record that cannot be read.
pub(crate) fn run(
    name: &str,
    root: &Path,
    filter: &str,
    stand_in: bool,
    is_stressed: bool,
) -> Result<Section> {
    let cuda = if stand_in {
        Cuda::on_stand_in()
    } else {
        Cuda::open()
    };
    if let Err(why) = cuda.availability() {
        return Ok(Section::skipped(name, why));
    }
    let mut cases = discover::all()?;
    cases.retain(|case| case.name.contains(filter));
    ensure!(
        !cases.is_empty(),
        "expected cases with {filter:?} in their names, found none"
    );
    let recording = Recording::new(&cuda, is_stressed);
    let codes = Mutex::<Codes>::default();
    let suite = Suite {
        cases: &cases,
        platforms: &[&recording],
        filter,
    };
    let report = suite.run(&|case| {
        let found = recording::take();
        if !found.is_empty() {
            let mut codes = codes.lock().unwrap_or_else(PoisonError::into_inner);
            codes.insert(case.name.clone(), found);
        }
    });
    let codes = codes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failures = failures(&report.cases);
    let differences = if stand_in {
        None
    } else {
        differences(root, &codes)?
    };
    let numbers = json!({
        "counts": report.platforms.first().map(|platform| platform.counts),
        "seconds": report.seconds,
        "stress_runs": report.stress_runs(),
        "failures": failures,
        "compared_with_the_stand_in": differences.as_ref().map(|(compared, _)| compared),
        "differences": differences.as_ref().map(|(_, differences)| differences),
        "codes": codes,
    });
    let differing = differences.map_or(0, |(_, differences)| differences.len());
    Ok(match (failures.len(), differing) {
        (0, 0) => Section::ok(name, numbers),
        (failed, differing) => Section::failed(
            name,
            format!(
                "{failed} cases failed, and {differing} ended with other codes than on the stand-in"
            ),
            numbers,
        ),
    })
}

/// Returns the failed cases with their problems.
fn failures(cases: &[CaseReport]) -> Vec<Value> {
    let results = cases
        .iter()
        .flat_map(|case| case.results.iter().map(move |result| (case, result)));
    let failed = results.filter(|(_, result)| result.ending == Ending::Failed);
    let failed = failed.map(|(case, result)| {
        let problem = result.problem.as_ref().map(ToString::to_string);
        json!({"case": case.name, "problem": problem})
    });
    failed.collect()
}

/// Returns the number of compared cases, and the differences. `None` without a record.
fn differences(root: &Path, codes: &Codes) -> Result<Option<(usize, Vec<Value>)>> {
    let path = root.join(RECORD);
    if !path.is_file() {
        return Ok(None);
    }
    let record: Record = serde_json::from_str(&guests::read(&path)?)
        .with_context(|| format!("reading {}", path.display()))?;
    ensure!(
        record.format == FORMAT,
        "{}: expected format {FORMAT}, found {}",
        path.display(),
        record.format
    );
    Ok(Some(compare(&record.codes, codes)))
}

/// Compares codes. A case that the record lacks is a difference; a case that did not run now is
/// not, because a filter may exclude it.
fn compare(expected: &Codes, found: &Codes) -> (usize, Vec<Value>) {
    let names: Vec<&String> = found.keys().collect();
    let differing = names
        .iter()
        .filter(|name| expected.get(**name) != found.get(**name));
    let differing = differing.map(
        |name| json!({"case": name, "stand_in": expected.get(*name), "found": found.get(*name)}),
    );
    (names.len(), differing.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(cases: &[(&str, &[&str])]) -> Codes {
        let case = |(name, codes): &(&str, &[&str])| {
            let codes = codes.iter().map(|code| (*code).to_owned());
            ((*name).to_owned(), codes.collect())
        };
        cases.iter().map(case).collect()
    }

    #[test]
    fn other_codes_are_told_by_case() {
        let expected = codes(&[("a", &["OK"]), ("b", &["OK", "INTERNAL"]), ("d", &["OK"])]);
        let found = codes(&[("a", &["OK"]), ("b", &["OK", "OK"]), ("c", &["OK"])]);
        let (compared, differences) = compare(&expected, &found);
        assert_eq!(compared, 3);
        assert_eq!(
            differences,
            [
                json!({"case": "b", "stand_in": ["OK", "INTERNAL"], "found": ["OK", "OK"]}),
                json!({"case": "c", "stand_in": null, "found": ["OK"]}),
            ]
        );
    }
}
