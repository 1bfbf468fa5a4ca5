use std::path::Path;

use super::*;

/// A target that adds 1 to an s32, traps at 0, and fails with the code of a negative number.
const MODULE: &str = r#"{"wat": [
  "(module (memory (export \"memory\") 1) (func (export \"f\") (param $frame i32) (result i32) (local $x i32)",
  "  (local.set $x (i32.load (i32.load (i32.load offset=8 (local.get $frame)))))",
  "  (if (i32.eqz (local.get $x)) (then (unreachable)))",
  "  (if (i32.lt_s (local.get $x) (i32.const 0)) (then (return (i32.sub (i32.const 0) (local.get $x)))))",
  "  (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.add (local.get $x) (i32.const 1)))",
  "  (i32.const 0)))"
]}"#;

fn operand(x: i32) -> String {
    format!(r#"[{{"shape": "s32[]", "values": [{x}]}}]"#)
}

/// Runs a call with `x` that expects this, with these keys besides.
fn verdict(x: i32, expect: &str, keys: &str) -> Result<Verdict> {
    let text = format!(
        r#"{{"origin": "x", "call": {{"module": {MODULE}, "target": "f", "results": ["s32[]"]}}, "operands": {}, "expect": {expect} {keys}}}"#,
        operand(x)
    );
    run(&Case::parse(&text, Path::new(".")).unwrap())
}

fn result(y: i32) -> String {
    format!(r#"{{"results": {}}}"#, operand(y))
}

fn problem(x: i32, expect: &str, keys: &str) -> String {
    format!("{:#}", verdict(x, expect, keys).unwrap_err())
}

#[test]
fn cases_that_do_what_they_expect_pass() {
    assert_eq!(verdict(4, &result(5), "").unwrap(), Verdict::Passed);
    let trap = r#"{"status": {"code": "ABORTED", "contains": ["trapped", "unreachable"], "blame": "guest", "phase": "execute", "recoverable": false}}"#;
    assert_eq!(verdict(0, trap, "").unwrap(), Verdict::Passed);
    let then = format!(
        r#", "then": [{{"operands": {}, "expect": {}}}]"#,
        operand(1),
        result(2)
    );
    assert_eq!(verdict(0, trap, &then).unwrap(), Verdict::Passed);
}

#[test]
fn cases_that_do_otherwise_fail_and_say_how() {
    assert_eq!(
        problem(4, &result(6), ""),
        "result 0: 1 of 1 elements of s32[] differ by more than 0 ULPs; the first at []: expected 6, found 5, \
         not comparable in ULPs; the farthest not comparable in ULPs"
    );
    for (x, expect, part) in [
        (0, result(1), "expected success, found ABORTED"),
        (
            4,
            r#"{"status": {"code": "ABORTED"}}"#.into(),
            "expected ABORTED, found success with 1 results",
        ),
        (
            -9,
            r#"{"status": {"code": "ABORTED"}}"#.into(),
            "expected the code ABORTED, found FAILED_PRECONDITION",
        ),
        (
            -9,
            r#"{"status": {"code": "FAILED_PRECONDITION", "message": "x"}}"#.into(),
            "expected the message \"x\", found \"target",
        ),
        (
            -9,
            r#"{"status": {"code": "FAILED_PRECONDITION", "contains": "x y"}}"#.into(),
            "expected a message that contains \"x y\"",
        ),
        (
            -9,
            r#"{"status": {"code": "FAILED_PRECONDITION", "blame": "host"}}"#.into(),
            "expected the blame host, found guest",
        ),
        (
            -9,
            r#"{"status": {"code": "FAILED_PRECONDITION", "phase": "load"}}"#.into(),
            "expected the phase Load, found Execute",
        ),
        (
            -9,
            r#"{"status": {"code": "FAILED_PRECONDITION", "recoverable": true}}"#.into(),
            "expected the recoverable bit true",
        ),
        (
            0,
            r#"{"status": {"code": "ABORTED", "backtrace": "g"}}"#.into(),
            "expected \"g\" in the backtrace",
        ),
        (
            4,
            r#"{"results": []}"#.into(),
            "expected 0 results, found 1",
        ),
        (
            4,
            r#"{"results": [{"shape": "f32[]", "values": [5]}]}"#.into(),
            "expected the shape f32[], found s32[]",
        ),
        (
            4,
            format!(
                r#"{{"results": {}, "log": [{{"level": "info", "message": "x"}}]}}"#,
                operand(5)
            ),
            "expected the log",
        ),
    ] {
        let problem = problem(x, &expect, "");
        assert!(
            problem.contains(part),
            "expected {part:?}, found {problem:?}"
        );
    }
}

#[test]
fn every_step_counts() {
    let then = format!(
        r#", "then": [{{"operands": {}, "expect": {}}}]"#,
        operand(1),
        result(3)
    );
    assert!(problem(4, &result(5), &then).starts_with("step 1: result 0: "));
    let text = format!(
        r#"{{"origin": "x", "call": {{"module": {MODULE}, "target": "g"}}, "expect": {{"status": {{"code": "NOT_FOUND"}}}},
            "then": [{{"expect": {{"status": {{"code": "NOT_FOUND"}}}}}}]}}"#
    );
    let problem = run(&Case::parse(&text, Path::new(".")).unwrap()).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "expected 2 steps to run, found 1: one failed before it executed"
    );
}

#[test]
fn marks_hold_as_long_as_the_case_does_not_pass() {
    let failure = r#", "expected_failure": {"reason": "known"}"#;
    assert_eq!(
        verdict(4, &result(6), failure).unwrap(),
        Verdict::FailedAsExpected
    );
    assert!(
        problem(4, &result(5), failure)
            .contains("expected the case to fail (known), and it passed")
    );
    let unsupported = r#", "unsupported": {"reason": "later"}"#;
    assert_eq!(
        verdict(-12, &result(5), unsupported).unwrap(),
        Verdict::Unsupported
    );
    assert!(
        problem(4, &result(5), unsupported)
            .contains("expected UNIMPLEMENTED (later), found success")
    );
    assert!(
        problem(0, &result(5), unsupported)
            .contains("expected UNIMPLEMENTED (later), found ABORTED")
    );
}

#[test]
fn a_case_without_its_guest_fails_whatever_it_expects() {
    for mark in ["", r#", "expected_failure": {"reason": "known"}"#] {
        let text = format!(
            r#"{{"origin": "x", "load": {{"guest": "no_such_guest"}}, "expect": {{"status": {{"code": "ABORTED"}}}} {mark}}}"#
        );
        let problem = run(&Case::parse(&text, Path::new(".")).unwrap()).unwrap_err();
        assert!(format!("{problem:#}").contains("run cargo xtask guests"));
    }
}
