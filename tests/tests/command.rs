//! The exit codes and reports of the command `callbox-conformance`, on cases without guests.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Command, Output};

fn conformance(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callbox-conformance"));
    // Hide the GPU, if the machine has one.
    command.env("CUDA_VISIBLE_DEVICES", "-1");
    command.args(arguments).output().unwrap()
}

#[track_caller]
fn check(output: &Output, code: i32, part: &str) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(part), "expected {part:?}, found {text}");
}

/// Returns the path of a file for this test process.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("callbox-{}-{name}", std::process::id()))
}

#[test]
fn cases_that_pass_are_a_success() {
    let output = conformance(&["--filter", "programs/rank_0/"]);
    check(&output, 0, "5 of 5 cases, 0 failed");
}

#[test]
fn nothing_that_was_not_run_is_a_success() {
    for (arguments, part) in [
        (
            ["--filter", "no such case", "--platform", "Host"],
            "expected cases with \"no such case\" in their names, found none",
        ),
        (
            ["--filter", "programs/rank_0/", "--platform", "CUDA"],
            "not run: CUDA is unavailable: expected ",
        ),
        (
            ["--filter", "programs/rank_0/", "--platform", "XLA"],
            "not run: no Python with JAX was named by --python",
        ),
        (
            ["--filter", "programs/syntax/", "--platform", "XLA"],
            "error: no case was run",
        ),
    ] {
        check(&conformance(&arguments), 2, part);
    }
}

#[test]
fn all_platforms_are_those_that_are_there() {
    let arguments = ["--filter", "programs/rank_0/", "--platform", "all"];
    let arguments = [&arguments[..], &["--no-python", "it is Sunday"]].concat();
    check(&conformance(&arguments), 0, "not run: it is Sunday");
}

#[test]
fn what_stands_in_for_a_gpu_is_called_so() {
    let path = file("stand-in.json");
    let arguments = ["--filter", "programs/rank_0/", "--platform", "CUDA"];
    let report = ["--stand-in", "--report", path.to_str().unwrap()];
    let output = conformance(&[&arguments[..], &report].concat());
    check(&output, 0, "CUDA (stand-in) ");
    let report = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["platforms"][0]["name"], "CUDA (stand-in)");
    assert_eq!(
        report["cases"][0]["results"][0]["platform"],
        "CUDA (stand-in)"
    );
    assert_eq!(report["cases"][0]["results"][0]["ending"], "passed");
}

#[test]
fn reports_are_written_by_their_names() {
    let (json, html) = (file("report.json"), file("report.html"));
    let paths = [json.to_str().unwrap(), html.to_str().unwrap()];
    let arguments = [
        "--filter",
        "rank_0/slice",
        "--report",
        paths[0],
        "--report",
        paths[1],
    ];
    check(&conformance(&arguments), 0, "wrote ");
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(report["cases"][0]["name"], "programs/rank_0/slice");
    assert_eq!(report["cases"][0]["results"][0]["ending"], "passed");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("programs/rank_0/slice"));
    for path in [json, html] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn other_arguments_are_refused() {
    check(
        &conformance(&["--report", "report.txt"]),
        2,
        "expected a name that ends with .json or .html",
    );
    check(
        &conformance(&["--platform", "TPU"]),
        2,
        "possible values: Host, CUDA, XLA, all",
    );
}
