//! A short soak: calls of every kind from a few threads, each with the expected result or status,
//! and no growth in descriptors or threads.
//!
//! It runs in a process of its own, whose resources it measures. Memory needs a longer run: `cargo
//! xtask soak`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Runs `callbox-soak` and returns its output and its report.
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
        let expected = if cfg!(target_os = "linux") {
            "flat"
        } else {
            "not available"
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
    let lacks = lacking("10");
    if !lacks.is_empty() {
        // A busy machine does less in that time.
        let lacks = lacking("60");
        assert!(lacks.is_empty(), "expected {lacks:?} within a minute");
    }
}

/// Checks a soak of some seconds, and returns the outcomes that did not occur.
fn lacking(seconds: &str) -> Vec<&'static str> {
    let arguments = ["--seconds", seconds, "--threads", "3", "--seed", "5"];
    let (output, report) = soak("soak", &arguments);
    assert_eq!(report["problems"], serde_json::json!([]), "{output:?}");
    check_what_stays(&report);
    // The time is too short to judge memory; the other measures are judged.
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{output:?}"
    );
    let outcomes = [
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
    ];
    let lacks = |outcome: &&str| count(&report, outcome) == 0;
    outcomes.into_iter().filter(lacks).collect()
}

#[test]
fn traps_and_reuse() {
    let (output, report) = soak("trap-cycles", &["--trap-cycles", "2000", "--seed", "5"]);
    assert_eq!(report["problems"], serde_json::json!([]), "{output:?}");
    assert_eq!(count(&report, "trapped"), 2000);
    assert_eq!(count(&report, "healthy"), 2000);
}
