use std::path::Path;

use super::*;
use crate::platform::PlatformName;
use crate::platform::cuda::Cuda;
use crate::platform::host::Host;

/// A target that adds 1 to an s32, traps at 0, and for a negative number fails with its code.
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

/// Runs a call of the target with `x`, an expectation, and additional keys.
fn ran(x: i32, expect: &str, keys: &str) -> Ran {
    let text = format!(
        r#"{{"origin": "x", "call": {{"module": {MODULE}, "target": "f", "results": ["s32[]"]}}, "operands": {}, "expect": {expect} {keys}}}"#,
        operand(x)
    );
    run(
        &Case::parse(&text, Path::new(".")).unwrap(),
        &Host::default(),
    )
}

fn verdict(x: i32, expect: &str, keys: &str) -> Verdict {
    ran(x, expect, keys).verdict
}

fn result(y: i32) -> String {
    format!(r#"{{"results": {}}}"#, operand(y))
}

fn problem(x: i32, expect: &str, keys: &str) -> String {
    failure(ran(x, expect, keys).verdict).to_string()
}

#[track_caller]
fn failure(verdict: Verdict) -> Problem {
    match verdict {
        Verdict::Failed(problem) => problem,
        verdict => panic!("expected the case to fail, found {verdict:?}"),
    }
}

#[test]
fn cases_that_do_what_they_expect_pass() {
    assert_eq!(verdict(4, &result(5), ""), Verdict::Passed);
    let trap = r#"{"status": {"code": "ABORTED", "contains": ["trapped", "unreachable"], "blame": "guest", "phase": "execute", "recoverable": false}}"#;
    assert_eq!(verdict(0, trap, ""), Verdict::Passed);
    let then = format!(
        r#", "then": [{{"operands": {}, "expect": {}}}]"#,
        operand(1),
        result(2)
    );
    assert_eq!(verdict(0, trap, &then), Verdict::Passed);
}

#[test]
fn cases_that_do_otherwise_fail_and_say_how() {
    assert_eq!(
        problem(4, &result(6), ""),
        "result 0: expected s32[] within 0 ULPs, found 1 of 1 elements outside; the farthest is not comparable in ULPs\n\
         result 0 at []: expected 6, found 5; not comparable in ULPs"
    );
    for (x, expect, part) in [
        (0, result(1), "outcome: expected success, found ABORTED"),
        (
            4,
            r#"{"status": {"code": "ABORTED"}}"#.into(),
            "outcome: expected ABORTED, found success with 1 results",
        ),
        (
            -9,
            r#"{"status": {"code": "ABORTED"}}"#.into(),
            "code: expected ABORTED, found FAILED_PRECONDITION",
        ),
        (
            -9,
            r#"{"status": {"code": "FAILED_PRECONDITION", "message": "x"}}"#.into(),
            "message: expected \"x\", found \"target",
        ),
        (
            -9,
            r#"{"status": {"code": "FAILED_PRECONDITION", "contains": "x y"}}"#.into(),
            "message: expected a message that contains [\"x y\"], found \"target",
        ),
        (
            -9,
            r#"{"status": {"code": "FAILED_PRECONDITION", "blame": "host"}}"#.into(),
            "blame: expected host, found guest",
        ),
        (
            -9,
            r#"{"status": {"code": "FAILED_PRECONDITION", "phase": "load"}}"#.into(),
            "phase: expected Load, found Execute",
        ),
        (
            -9,
            r#"{"status": {"code": "FAILED_PRECONDITION", "recoverable": true}}"#.into(),
            "recoverable bit: expected true, found false",
        ),
        (
            0,
            r#"{"status": {"code": "ABORTED", "backtrace": "g"}}"#.into(),
            "backtrace: expected [\"g\"], found [",
        ),
        (
            4,
            r#"{"results": []}"#.into(),
            "number of results: expected 0, found 1",
        ),
        (
            4,
            r#"{"results": [{"shape": "f32[]", "values": [5]}]}"#.into(),
            "result 0, shape: expected f32[], found s32[]",
        ),
        (
            4,
            format!(
                r#"{{"results": {}, "log": [{{"level": "info", "message": "x"}}]}}"#,
                operand(5)
            ),
            "log: expected [info \"x\"], found []",
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
    assert!(problem(4, &result(5), &then).starts_with("step 1, result 0: "));
    let text = format!(
        r#"{{"origin": "x", "call": {{"module": {MODULE}, "target": "g"}}, "expect": {{"status": {{"code": "NOT_FOUND"}}}},
            "then": [{{"expect": {{"status": {{"code": "NOT_FOUND"}}}}}}]}}"#
    );
    assert_eq!(
        failure(
            run(
                &Case::parse(&text, Path::new(".")).unwrap(),
                &Host::default()
            )
            .verdict
        )
        .to_string(),
        "steps that run: expected 2, found 1; a step failed before it executed"
    );
}

#[test]
fn marks_hold_as_long_as_the_case_does_not_pass() {
    let known = r#", "expected_failure": {"reason": "known"}"#;
    assert_eq!(
        verdict(4, &result(6), known),
        Verdict::FailedAsExpected("known".into())
    );
    assert!(
        problem(4, &result(5), known).contains("expected the case to fail (known), and it passed")
    );
    let unsupported = r#", "unsupported": {"reason": "later"}"#;
    let unsupported_program = |expect: &str| {
        let text = format!(
            r#"{{"origin": "x", "program": {{"text": ["HloModule m", "ENTRY main {{", "  x = f32[2] parameter(0)",
            "  ROOT y = f32[2] infeed(x)", "}}"]}}, "expect": {expect}{unsupported}}}"#
        );
        let case = Case::parse(&text, Path::new(".")).unwrap();
        run(&case, &Host::default()).verdict
    };
    let named =
        |word: &str| format!(r#"{{"status": {{"code": "UNIMPLEMENTED", "contains": "{word}"}}}}"#);
    for expect in [result(5), named("infeed")] {
        assert_eq!(
            unsupported_program(&expect),
            Verdict::Unsupported("later".into())
        );
    }
    let other_message = failure(unsupported_program(&named("fft"))).to_string();
    assert!(
        other_message.contains("message: expected"),
        "{other_message}"
    );
    // A guest that reports UNIMPLEMENTED does not count as callbox reporting it.
    assert!(problem(-12, &result(5), unsupported).contains("found UNIMPLEMENTED: target"));
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
        let ran = run(
            &Case::parse(&text, Path::new(".")).unwrap(),
            &Host::default(),
        );
        let problem = failure(ran.verdict).to_string();
        assert!(problem.contains("run cargo xtask guests"), "{problem}");
    }
}

#[test]
fn what_does_not_run_has_its_reason() {
    let case = |keys: &str| {
        let text = format!(
            r#"{{"origin": "x", "program": {{"text": ["HloModule m"]}}, "expect": {{"results": []}}, {keys}}}"#
        );
        Case::parse(&text, Path::new(".")).unwrap()
    };
    let all = case(r#""platforms": ["Host", "CUDA"]"#);
    let absent = run(&all, &Cuda::absent("no GPU here"));
    assert_eq!(absent.verdict, Verdict::NotRun("no GPU here".into()));
    let only = case(r#""platforms": {"only": ["CUDA"], "reason": "it is about grids"}"#);
    let not_run = Verdict::NotRun("it is about grids".into());
    assert_eq!(run(&only, &Host::default()).verdict, not_run);
    // A mark for another platform has no effect here.
    let marked = case(r#""unsupported": {"reason": "later", "platforms": ["CUDA"]}"#);
    assert!(marked.mark(PlatformName::Cuda).is_some());
    failure(run(&marked, &Host::default()).verdict);
}

#[test]
fn cases_are_run_many_times_at_once() {
    let stressed = |keys: &str| ran(4, &result(5), keys).stressed.unwrap();
    let shared = stressed("");
    assert!(
        shared.runs >= 2 * THREADS && shared.runs <= THREADS * RUNS,
        "{shared:?}"
    );
    assert_eq!(shared.reason, "");
    let separate = stressed(r#", "stress": {"separate": "it counts"}"#);
    assert!(separate.runs >= 2 * THREADS, "{separate:?}");
    assert_eq!(separate.reason, "it counts");
    let skipped = stressed(r#", "stress": {"skip": "it is slow"}"#);
    assert_eq!((skipped.runs, skipped.reason.as_str()), (0, "it is slow"));
    assert!(ran(4, &result(6), "").stressed.is_none());
}

/// A target that returns how often its instance was called.
const COUNTER: &str = r#"{"wat": [
  "(module (memory (export \"memory\") 1) (global $n (mut i32) (i32.const 0)) (func (export \"f\") (param $frame i32) (result i32)",
  "  (global.set $n (i32.add (global.get $n) (i32.const 1)))",
  "  (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (global.get $n)) (i32.const 0)))"
]}"#;

#[test]
fn runs_at_once_that_give_something_else_fail() {
    let run_counter = |keys: &str| {
        let expect = r#"{"results": [{"shape": "s32[]", "values": [1]}]}"#;
        let text = format!(
            r#"{{"origin": "x", "call": {{"module": {COUNTER}, "target": "f", "results": ["s32[]"]}}, "expect": {expect} {keys}}}"#
        );
        run(
            &Case::parse(&text, Path::new(".")).unwrap(),
            &Host::default(),
        )
        .verdict
    };
    let problem = failure(run_counter(""));
    assert_eq!(
        problem.differences[0].place,
        "step 0, one of 4 concurrent threads"
    );
    let separate = r#", "stress": {"separate": "an instance counts its calls"}"#;
    assert_eq!(run_counter(separate), Verdict::Passed);
    let judged = r#", "stress": {"judged": "whatever it counts"}"#;
    let problem = failure(run_counter(judged));
    assert_eq!(problem.differences[1].place, "result 0 at []");
}
