use std::path::Path;

use super::*;
use callbox::policy::Isolation;

/// Parses a case of a negating program, with additional keys.
fn case(keys: &str) -> Result<Case> {
    let text = format!(
        r#"{{
          "origin": "IEEE 754",
          "program": {{"text": ["HloModule m", "ENTRY main {{ x = f32[] parameter(0) ROOT y = f32[] negate(x) }}"]}},
          {keys}
        }}"#
    );
    Case::parse(&text, Path::new("."))
}

const OPERANDS: &str = r#""operands": [{"shape": "f32[]", "values": [1.5]}]"#;
const EXPECT: &str = r#""expect": {"results": [{"shape": "f32[]", "values": [-1.5]}]}"#;

#[test]
fn a_case_is_read_whole() {
    let case = case(&format!(
        r#"{OPERANDS}, "function": "main", "deadline_ms": 20, "policy": {{"limits": {{"memory_bytes": 65536}}, "isolation": "fresh"}},
           "targets": {{"f": "add_n.wasm#add_n", "g": "g.wasm"}},
           "expect": {{"results": [{{"tuple": [{{"shape": "f32[]", "values": [1]}}, {{"shape": "s8[]", "values": [2]}}]}}], "ulps": [1, 0]}},
           "then": [{{"function": 1, {EXPECT}}}],
           "expected_failure": {{"reason": "why"}}"#
    ))
    .unwrap();
    assert_eq!(case.steps.len(), 2);
    assert_eq!(case.steps[0].deadline, Some(Duration::from_millis(20)));
    assert!(matches!(&case.steps[0].function, Function::Name(name) if name == "main"));
    assert!(matches!(case.steps[1].function, Function::Ordinal(1)));
    let policy = case.policy.as_ref().unwrap();
    assert_eq!(policy.limits.memory_bytes, 65536);
    assert_eq!(policy.isolation, Isolation::Fresh);
    let Expect::Results(results, None) = &case.steps[0].expect else {
        panic!("{:?}", case.steps[0].expect);
    };
    assert_eq!(results.iter().map(|r| r.ulps).collect::<Vec<_>>(), [1, 0]);
    let Subject::Program { targets, .. } = &case.subject else {
        panic!("{:?}", case.subject);
    };
    let exports: Vec<_> = targets
        .iter()
        .map(|t| (t.name.as_str(), t.export.as_str()))
        .collect();
    assert_eq!(exports, [("f", "add_n"), ("g", "g")]);
    let kind = |platform| case.mark(platform).map(|mark| mark.kind);
    assert_eq!(kind(PlatformName::Host), Some(MarkKind::ExpectedFailure));
    assert_eq!(kind(PlatformName::Xla), None);
}

#[test]
fn what_a_case_says_wrong_is_refused() {
    for (keys, problem) in [
        (OPERANDS.to_owned(), "missing field `expect`"),
        (
            format!(r#"{EXPECT}, "operand": []"#),
            "unknown field `operand`",
        ),
        (format!(r#"{EXPECT}, {EXPECT}"#), "duplicate field `expect`"),
        (
            format!(r#"{EXPECT}, "load": {{"hex": ""}}"#),
            "expected exactly one of program, call, ffi_call and load",
        ),
        (
            format!(r#"{EXPECT}, "function": 1.5"#),
            "did not match any variant",
        ),
        (
            format!(r#"{EXPECT}, "policy": {{"limits": {{"memory": 1}}}}"#),
            "unknown field `memory`",
        ),
        (
            format!(r#"{EXPECT}, "policy": {{"isolation": "none"}}}}"#),
            "unknown variant `none`",
        ),
        (
            format!(r#"{EXPECT}, "unsupported": {{"reason": " "}}"#),
            "expected a reason",
        ),
        (
            format!(r#"{EXPECT}, "unsupported": {{}}"#),
            "missing field `reason`",
        ),
        (
            format!(
                r#"{EXPECT}, "unsupported": {{"reason": "a"}}, "expected_failure": {{"reason": "b"}}"#
            ),
            "expected at most one of unsupported and expected_failure",
        ),
        (
            r#""expect": {}"#.into(),
            "expected exactly one of results, status and targets",
        ),
        (
            r#""expect": {"results": [], "targets": []}"#.into(),
            "expected exactly one of",
        ),
        (
            r#""expect": {"targets": []}"#.into(),
            "expected targets to be expected of load only",
        ),
        (
            r#""expect": {"results": [], "ulps": [1]}"#.into(),
            "expected ulps for each of 0 results, found 1",
        ),
        (
            r#""expect": {"status": {"code": "INVALID"}}"#.into(),
            "expected a status code such as INVALID_ARGUMENT",
        ),
        (
            r#""expect": {"status": {"code": "OK"}}"#.into(),
            "expected a failure's code, found OK",
        ),
        (
            r#""expect": {"status": {"code": "ABORTED"}, "ulps": 1}"#.into(),
            "expected ulps and log with results only",
        ),
        (
            r#""expect": {"status": {"code": "ABORTED", "message": "a", "contains": "b"}}"#.into(),
            "expected at most one of message, contains, pattern and says",
        ),
        (
            r#""expect": {"status": {"code": "ABORTED", "blame": "user"}}"#.into(),
            "expected the blame guest, caller or host",
        ),
        (
            r#""expect": {"status": {"code": "ABORTED", "phase": "run"}}"#.into(),
            "expected a phase (load, parse, register",
        ),
        (
            r#""expect": {"results": [], "ulps": {"f32": 1}}"#.into(),
            "expected ulps for types that results have (), found \"f32\"",
        ),
        (
            format!(r#"{EXPECT}, "platforms": []"#),
            "expected at least one platform",
        ),
        (
            format!(r#"{EXPECT}, "platforms": ["Cpu"]"#),
            "expected a platform (Host, CUDA, XLA), found \"Cpu\"",
        ),
        (
            format!(r#"{EXPECT}, "platforms": ["Host", "Host"]"#),
            "expected Host once, found it twice",
        ),
        (
            format!(r#"{EXPECT}, "platforms": {{"only": ["Host"], "reason": ""}}"#),
            "expected a reason",
        ),
        (
            format!(
                r#"{EXPECT}, "platforms": ["Host"], "unsupported": {{"reason": "a", "platforms": ["XLA"]}}"#
            ),
            "expected platforms that the case is for, found XLA",
        ),
        (
            format!(r#"{EXPECT}, "stress": {{"skip": " "}}"#),
            "expected a reason",
        ),
        (
            format!(r#"{EXPECT}, "stress": {{"never": "x"}}"#),
            "unknown variant `never`",
        ),
        (
            format!(r#"{EXPECT}, "operands": [{{"shape": "f32[]", "values": []}}]"#),
            "operand 0: expected 1 values for f32[], found 0",
        ),
    ] {
        let error = format!("{:#}", case(&keys).expect_err(&keys));
        assert!(
            error.contains(problem),
            "{keys}\nexpected {problem:?}, found {error:?}"
        );
    }
}

#[test]
fn keys_without_effect_are_refused() {
    let read = |text: &str| format!("{:#}", Case::parse(text, Path::new(".")).expect_err(text));
    for (text, problem) in [
        (
            r#"{"origin": "", "load": {"hex": ""}, "expect": {"targets": []}}"#,
            "expected an origin",
        ),
        (
            r#"{"origin": "x", "load": {"hex": ""}, "expect": {"results": []}}"#,
            "expected load to expect targets or a status",
        ),
        (
            r#"{"origin": "x", "load": {"hex": ""}, "deadline_ms": 1, "expect": {"targets": []}}"#,
            "expected neither operands, deadline_ms nor then with load",
        ),
        (
            r#"{"origin": "x", "load": {"hex": ""}, "targets": {"f": "f.wasm"}, "expect": {"targets": []}}"#,
            "expected targets with a program only",
        ),
        (
            r#"{"origin": "x", "call": {"module": "f", "target": "f"}, "function": 1, "expect": {"results": []}}"#,
            "expected function with a program only",
        ),
    ] {
        let error = read(text);
        assert!(
            error.contains(problem),
            "{text}\nexpected {problem:?}, found {error:?}"
        );
    }
}

#[test]
fn call_sites_have_the_shapes_of_their_operands() {
    let text = r#"{
      "origin": "x",
      "call": {
        "module": {"wat": ["(module)"]}, "target": "f", "results": ["f32[2]", "pred[]"], "opaque": "o",
        "attributes": {
          "n": {"type": "f32", "value": 4.0}, "a": {"type": "s8[2]", "value": [1, -1]}, "s": {"type": "string", "value": "t"},
          "d": {"type": "dictionary", "value": {"p": {"type": "pred", "value": true}}}
        },
        "aliasing": [{"result": [0], "operand": 0}]
      },
      "operands": [{"shape": "f32[2]{0}", "values": [1, 2]}],
      "expect": {"status": {"code": "ABORTED"}}
    }"#;
    let Subject::Call { site, .. } = Case::parse(text, Path::new(".")).unwrap().subject else {
        panic!("expected a call");
    };
    assert_eq!(site.operands[0].to_string(), "f32[2]{0}");
    assert_eq!(site.result.to_string(), "(f32[2], pred[])");
    let kinds: Vec<_> = site
        .attributes
        .values()
        .map(callbox::Attribute::kind)
        .collect();
    assert_eq!(kinds, ["array", "dictionary", "scalar", "string"]);
    assert_eq!(
        (site.opaque.as_slice(), site.aliasing.len()),
        (&b"o"[..], 1)
    );
}

/// Returns why a case does not run on each platform.
fn reasons(text: &str) -> [Option<String>; 3] {
    let case = Case::parse(text, Path::new(".")).unwrap();
    PlatformName::ALL.map(|platform| case.platforms.reason_against(platform).map(str::to_owned))
}

#[test]
fn cases_are_for_every_platform_that_can_run_them() {
    let program = |lines: &str, rest: &str| {
        format!(r#"{{"origin": "x", "program": {{"text": ["{lines}"]}}, {rest}}}"#)
    };
    let results = r#""expect": {"results": []}"#;
    assert_eq!(
        reasons(&program("HloModule m", results)),
        [const { None }; 3]
    );
    for (text, on_cuda, on_xla) in [
        (
            program(
                "custom-call(x)",
                &format!(r#""targets": {{"f": "f.wasm"}}, {results}"#),
            ),
            None,
            "the program has custom calls, whose targets XLA does not have",
        ),
        (
            program("HloModule m, is_scheduled=true", results),
            None,
            "the program is XLA's output after optimisation, which XLA does not accept as input",
        ),
        (
            program(
                "HloModule m",
                r#""expect": {"status": {"code": "ABORTED"}}"#,
            ),
            None,
            "the case expects a status or a log of callbox",
        ),
        (
            program("HloModule m", &format!(r#""function": 1, {results}"#)),
            None,
            "a program of XLA has one function only",
        ),
        (
            program(
                "HloModule m",
                &format!(r#""operands": [{{"tuple": []}}], {results}"#),
            ),
            None,
            "an operand is a tuple, and JAX passes arrays only",
        ),
        (
            format!(r#"{{"origin": "x", "call": {{"module": "f", "target": "f"}}, {results}}}"#),
            None,
            "the case is not a program",
        ),
        (
            format!(
                r#"{{"origin": "x", "call": {{"module": {{"wat": ["(module)"]}}, "target": "f"}}, {results}}}"#
            ),
            Some("the case's own module is WebAssembly"),
            "the case is not a program",
        ),
        (
            r#"{"origin": "x", "load": "f", "expect": {"targets": []}}"#.to_owned(),
            Some("the case tests the file of a WebAssembly module"),
            "the case is not a program",
        ),
    ] {
        let expected = [None, on_cuda.map(str::to_owned), Some(on_xla.to_owned())];
        assert_eq!(reasons(&text), expected, "{text}");
    }
    assert_eq!(
        reasons(&program(
            "HloModule m",
            &format!(r#""platforms": ["Host"], {results}"#)
        )),
        [
            None,
            Some("the case is for Host only"),
            Some("the case is for Host only")
        ]
        .map(|reason| reason.map(str::to_owned))
    );
    let impossible = program(
        "custom-call(x)",
        &format!(r#""platforms": ["XLA"], {results}"#),
    );
    let error = format!(
        "{:#}",
        Case::parse(&impossible, Path::new(".")).unwrap_err()
    );
    assert!(
        error.contains("platforms: expected platforms that can run the case, found XLA"),
        "{error}"
    );
}

#[test]
fn tolerances_are_for_all_for_each_or_by_type() {
    let ulps = |ulps: &str| {
        let results = r#"[{"shape": "f32[]", "values": [1]}, {"shape": "s8[]", "values": [2]}, {"shape": "f32[]", "values": [3]}]"#;
        let case = case(&format!(
            r#""expect": {{"results": {results}, "ulps": {ulps}}}"#
        ))
        .unwrap();
        match &case.steps[0].expect {
            Expect::Results(results, None) => results.iter().map(|r| r.ulps).collect::<Vec<_>>(),
            expect => panic!("{expect:?}"),
        }
    };
    assert_eq!(ulps("2"), [2, 2, 2]);
    assert_eq!(ulps("[1, 0, 3]"), [1, 0, 3]);
    assert_eq!(ulps(r#"{"f32": 4}"#), [4, 0, 4]);
}

#[test]
fn stress_has_its_reason() {
    let stress = |keys: &str| case(&format!("{EXPECT} {keys}")).unwrap().stress;
    assert_eq!(stress(""), Stress::Shared);
    assert_eq!(
        stress(r#", "stress": {"separate": "it counts"}"#),
        Stress::Separate("it counts".into())
    );
    assert_eq!(
        stress(r#", "stress": {"judged": "it races"}"#),
        Stress::Judged("it races".into())
    );
    assert_eq!(
        stress(r#", "stress": {"skip": "it is slow"}"#),
        Stress::Skip("it is slow".into())
    );
}
