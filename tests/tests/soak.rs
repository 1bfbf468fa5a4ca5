//! A short soak: every kind of call from a few threads at once, each with the result or the status that it must have, and no descriptors or threads
//! that stay. In a process of its own, for what a process has is what is measured. Memory takes longer to say something: `cargo xtask soak`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Runs `callbox-soak`, and gives what it says and its report.
fn soak(name: &str, arguments: &[&str]) -> (Output, Value) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("soak-{name}"));
    let output = Command::new(env!("CARGO_BIN_EXE_callbox-soak"))
        .args(arguments)
        .arg("--output")
        .arg(&folder)
        .output()
        .unwrap();
    let file: PathBuf = folder.join(name).with_extension("json");
    let text = std::fs::read_to_string(&file);
    assert!(
        text.is_ok(),
        "expected a report, found {text:?} and {output:?}"
    );
    (output, serde_json::from_str(&text.unwrap()).unwrap())
}

fn count(report: &Value, outcome: &str) -> u64 {
    let outcomes = report["outcomes"].as_array().unwrap().iter();
    let mut found = outcomes.filter(|found| found["name"] == outcome);
    found.next().unwrap()["count"].as_u64().unwrap()
}

fn verdict<'r>(report: &'r Value, measure: &str) -> &'r Value {
    let measures = report["measures"].as_array().unwrap().iter();
    let mut found = measures.filter(|found| found["name"] == measure);
    &found.next().unwrap()["verdict"]
}

fn check_what_stays(report: &Value) {
    for measure in ["threads", "descriptors"] {
        let expected = match cfg!(target_os = "linux") {
            true => "flat",
            false => "not available",
        };
        assert_eq!(
            verdict(report, measure),
            expected,
            "{measure} in {report:#}"
        );
    }
}

#[test]
fn ten_seconds_of_everything() {
    let arguments = ["--seconds", "10", "--threads", "3", "--seed", "5"];
    let (output, report) = soak("soak", &arguments);
    assert_eq!(report["problems"], serde_json::json!([]), "{output:?}");
    check_what_stays(&report);
    for outcome in [
        "healthy",
        "called back",
        "failed",
        "trapped",
        "deadline",
        "cancelled",
        "hostile cases",
        "healthy cases",
        "executables made",
        "engines made",
    ] {
        assert!(
            count(&report, outcome) > 0,
            "expected {outcome} in {report:#}"
        );
    }
    // Whether memory grew is not judged after ten seconds; all else is.
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{output:?}"
    );
}

#[test]
fn traps_and_reuse() {
    let (output, report) = soak("trap-cycles", &["--trap-cycles", "2000", "--seed", "5"]);
    assert_eq!(report["problems"], serde_json::json!([]), "{output:?}");
    assert_eq!(count(&report, "trapped"), 2000);
    assert_eq!(count(&report, "healthy"), 2000);
}
