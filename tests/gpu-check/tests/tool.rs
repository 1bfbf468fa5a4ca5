//! Runs the program without a GPU and on the stand-in, and checks its output and report.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// The keys of a report, as documented in `benches/record/README.md`.
const KEYS: [&str; 9] = [
    "format",
    "callbox",
    "commit",
    "date",
    "quick",
    "device",
    "why_no_device",
    "seconds",
    "sections",
];

const SECTIONS: [&str; 9] = [
    "environment",
    "conformance",
    "faults",
    "launch cost",
    "bandwidth",
    "loading",
    "fence",
    "fence cost",
    "random kernels",
];

fn gpu_check(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-check"));
    // Hide the GPU and NVRTC, if the machine has them.
    command.env("CUDA_VISIBLE_DEVICES", "-1");
    command.env("CALLBOX_NVRTC", "/nowhere");
    command
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn report(folder: &Path, output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let text = fs::read_to_string(folder.join("gpu-report.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    assert_eq!(keys, KEYS);
    let names: Vec<&Value> = sections(&report)
        .iter()
        .map(|section| &section["name"])
        .collect();
    assert_eq!(names, SECTIONS);
    for section in sections(&report) {
        let keys: Vec<&String> = section.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["name", "outcome", "why", "numbers"]);
    }
    report
}

fn sections(report: &Value) -> &[Value] {
    report["sections"].as_array().unwrap()
}

fn outcomes(report: &Value) -> Vec<&str> {
    let outcomes = sections(report).iter().map(|section| &section["outcome"]);
    outcomes.map(|outcome| outcome.as_str().unwrap()).collect()
}

#[test]
fn without_a_gpu_it_succeeds_and_says_why_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let output = gpu_check(folder.path(), &[]);
    let report = report(folder.path(), &output, 0);
    assert_eq!(report["device"], Value::Null);
    let why = report["why_no_device"].as_str().unwrap();
    assert!(why.starts_with("CUDA is unavailable: expected "), "{why}");
    let skipped = ["skipped"; 8];
    assert_eq!(outcomes(&report), [&["ok"][..], &skipped].concat());
    let page = fs::read_to_string(folder.path().join("gpu-report.md")).unwrap();
    assert!(page.contains(&format!("- device: none: {why}")), "{page}");
}

#[test]
fn on_the_stand_in_every_section_runs_and_no_time_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = gpu_check(folder.path(), &["--stand-in", "--cases", "xla/"]);
    let report = report(folder.path(), &output, 0);
    assert_eq!(report["device"]["name"], "callbox stand-in (not a GPU)");
    assert_eq!(report["device"]["is_stand_in"], true);
    assert_eq!(outcomes(&report), ["ok"; 9]);
    let numbers: Vec<&Value> = sections(&report)
        .iter()
        .map(|section| &section["numbers"])
        .collect();
    assert!(
        numbers[1]["counts"]["passed"].as_u64().unwrap() > 0,
        "{}",
        numbers[1]
    );
    assert_eq!(numbers[1]["failures"], Value::Array(Vec::new()));
    // CUDA's documentation assigns these error numbers.
    let faults = numbers[2].as_array().unwrap();
    for (fault, error) in std::iter::zip(faults, ["(700)", "(700)", "(715)", "(716)"]) {
        assert_eq!(fault["status"]["code"], "INTERNAL");
        assert_eq!(fault["after"]["code"], "UNAVAILABLE");
        for said in [&fault["status"]["message"], &fault["after"]["message"]] {
            assert!(said.as_str().unwrap().contains(error), "{fault}");
        }
    }
    assert_eq!(faults.len(), 5);
    for timed in [3, 4, 5, 7] {
        assert_eq!(numbers[timed], &Value::Null, "{}", SECTIONS[timed]);
    }
    assert_eq!(numbers[6]["wrong"], Value::Array(Vec::new()));
    assert!(numbers[6]["hostile_kernels"].as_u64().unwrap() > 100);
    for kind in numbers[8].as_array().unwrap() {
        assert!(kind["ran"].as_u64().unwrap() > 0, "{kind}");
        assert_eq!(kind["finds"], Value::Array(Vec::new()), "{kind}");
    }
    let page = fs::read_to_string(folder.path().join("gpu-report.md")).unwrap();
    assert!(page.contains("times here are meaningless"), "{page}");
}

#[test]
fn codes_on_the_stand_in_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--record-stand-in",
        "codes.json",
        "--cases",
        "faults/fail/05_not_found",
    ];
    let output = gpu_check(folder.path(), &arguments);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(folder.path().join("codes.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["made_on"], "callbox stand-in (not a GPU)");
    // The case has two steps, and expects this code for both.
    let expected = serde_json::json!({"faults/fail/05_not_found": ["NOT_FOUND", "NOT_FOUND"]});
    assert_eq!(record["codes"], expected);
}

#[test]
fn a_section_that_fails_fails_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let output = gpu_check(folder.path(), &["--stand-in", "--cases", "no such case"]);
    let report = report(folder.path(), &output, 1);
    assert_eq!(outcomes(&report)[1], "failed");
    let why = sections(&report)[1]["why"].as_str().unwrap();
    assert!(
        why.contains("expected cases with \"no such case\" in their names"),
        "{why}"
    );
}
