//! `--shadow`, on the stand-in driver, which is not a GPU.

use serde_json::{Value, json};

use crate::guests::NEGATE;
use crate::packages::HEADER;
use crate::support::{Folder, Ran};
use crate::twins::{lie, softmax, with_driver};

/// A package whose twin says what it should, and one whose twin lies.
fn folder() -> Folder {
    let folder = softmax();
    folder.run(&["pack", "k", "-o", "good.wasm"]).done();
    lie(&folder);
    // Where there is a device, `pack` would find out.
    let mut pack = folder.command(&["pack", "k", "-o", "evil.wasm"]);
    pack.env("CUDA_VISIBLE_DEVICES", "-1");
    Ran::new(&pack.output().unwrap()).done();
    folder.npy("x.npy", &[2, 2], &[3.0_f32, 3.0, 0.0, 1.0]);
    // Two calls, of which the second overwrites its operand.
    let call = "custom_call_target=\"softmax\", api_version=API_VERSION_TYPED_FFI";
    let alias = "output_to_operand_aliasing={{}: (0, {})}";
    let program = format!(
        "HloModule m\nENTRY e {{\n  x = f32[2,2] parameter(0)\n  y = f32[2,2] custom-call(x), {call}\n  \
         ROOT z = f32[2,2] custom-call(y), {call}, {alias}\n}}\n"
    );
    folder.write("p.hlo", program);
    folder
}

fn run(folder: &Folder, package: &str, flags: &[&str]) -> Ran {
    let words = ["run", "p.hlo", "--platform", "CUDA", "--native", package];
    let input = ["--input", "0=x.npy", "--output", "z.npy"];
    with_driver(folder, &[&words[..], &input, flags].concat())
}

fn call(folder: &Folder, package: &str, flags: &[&str]) -> Ran {
    let words = ["call", "--platform", "CUDA", package, "softmax"];
    let rest = ["--operand", "x.npy", "--result", "f32[2,2]"];
    with_driver(folder, &[&words[..], &rest, flags].concat())
}

fn counts(folder: &Folder, file: &str) -> Value {
    let counted: Value = serde_json::from_slice(&folder.read(file)).unwrap();
    assert_eq!(counted.as_array().unwrap().len(), 1, "{counted}");
    counted[0].clone()
}

#[test]
fn an_honest_twin_agrees_with_the_wasm() {
    let folder = folder();
    let ran = run(
        &folder,
        "good.wasm",
        &["--shadow", "1", "--shadow-fails", "--stats", "s.json"],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr
            .contains("shadow: 2 of 2 calls compared, 0 differ"),
        "{ran:?}"
    );
    let counted = counts(&folder, "s.json");
    assert_eq!(
        (&counted["shadowed"], &counted["differing"]),
        (&json!(2), &json!(0))
    );
    assert_eq!(
        (&counted["calls"], &counted["platform"]),
        (&json!(2), &json!("CUDA"))
    );
    assert_eq!(
        (&counted["bytes_in"], &counted["module"]),
        (&json!(32), &json!("good.wasm"))
    );
    let ran = call(&folder, "good.wasm", &["--shadow", "1", "--shadow-fails"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr
            .contains("shadow: 1 of 1 calls compared, 0 differ"),
        "{ran:?}"
    );
    let ran = run(
        &folder,
        "good.wasm",
        &["--shadow", "0", "--stats", "none.json"],
    );
    assert!(
        ran.stderr
            .contains("shadow: 0 of 2 calls compared, 0 differ"),
        "{ran:?}"
    );
    assert_eq!(counts(&folder, "none.json").get("shadowed"), None);
}

#[test]
fn a_twin_that_lies_is_told_counted_and_if_asked_fails() {
    let folder = folder();
    let ran = run(
        &folder,
        "evil.wasm",
        &["--shadow", "1", "--stats", "s.prom"],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    for message in [
        "the native twin and the wasm differ: result 0: 4 of 4 elements differ, the first at",
        "shadow: 2 of 2 calls compared, 2 differ",
    ] {
        assert!(ran.stderr.contains(message), "{ran:?}");
    }
    let text = String::from_utf8(folder.read("s.prom")).unwrap();
    for (name, count) in [
        ("shadowed_calls", 2),
        ("shadow_differences", 2),
        ("calls", 2),
    ] {
        let name = format!("callbox_{name}_total{{module=\"evil.wasm\"");
        let line = text.lines().find(|line| line.starts_with(&name));
        let line = line.unwrap_or_else(|| panic!("{name}\n{text}"));
        assert!(
            line.contains("platform=\"CUDA\"") && line.ends_with(&format!(" {count}")),
            "{line}"
        );
    }
    // Without it, the lie is not told.
    let ran = run(&folder, "evil.wasm", &["--stats", "plain.json"]);
    assert!(ran.code == 0 && !ran.stderr.contains("differ"), "{ran:?}");
    assert_eq!(counts(&folder, "plain.json").get("shadowed"), None);
    for ran in [
        run(
            &folder,
            "evil.wasm",
            &["--shadow", "1", "--shadow-fails", "--json"],
        ),
        call(
            &folder,
            "evil.wasm",
            &["--shadow", "1", "--shadow-fails", "--json"],
        ),
    ] {
        let status = &ran.object()["status"];
        assert_eq!(
            (ran.code, &status["code"]),
            (1, &json!("INTERNAL")),
            "{ran:?}"
        );
        assert_eq!(status["blame"], "guest");
        let message = status["message"].as_str().unwrap();
        assert!(
            message.contains("the native twin and the wasm differ"),
            "{message}"
        );
    }
}

/// The cases declare how near results must be: here, anything is.
#[test]
fn the_tolerance_is_that_of_the_cases() {
    let folder = folder();
    let case = String::from_utf8(folder.read("k/cases/rows.json")).unwrap();
    folder.write(
        "k/cases/rows.json",
        case.replace("\"rtol\": 1e-6", "\"atol\": 1e30"),
    );
    folder.run(&["pack", "k", "-o", "wide.wasm"]).done();
    let ran = run(&folder, "wide.wasm", &["--shadow", "1", "--shadow-fails"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr.contains("2 of 2 calls compared, 0 differ"),
        "{ran:?}"
    );
}

/// Flags count before the policy, whose tolerances count before those of the cases.
#[test]
fn a_policy_has_a_share_too() {
    let folder = folder();
    let shadowed = |package: &str, policy: &str, flags: &[&str]| {
        folder.write("policy.json", format!("{{\"shadow\": {policy}}}"));
        let flags = [&["--policy", "policy.json", "--json"], flags].concat();
        run(&folder, package, &flags)
    };
    let ran = shadowed("good.wasm", r#"{"share": 1, "fails": true}"#, &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr.contains("2 of 2 calls compared, 0 differ"),
        "{ran:?}"
    );
    let ran = shadowed("evil.wasm", r#"{"share": 1, "fails": true}"#, &[]);
    assert_eq!(ran.object()["status"]["code"], "INTERNAL", "{ran:?}");
    let ran = shadowed("evil.wasm", r#"{"share": 1}"#, &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr.contains("2 of 2 calls compared, 2 differ"),
        "{ran:?}"
    );
    let ran = shadowed(
        "evil.wasm",
        r#"{"share": 1, "atol": 1e30}"#,
        &["--shadow-fails", "--shadow=1"],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = shadowed(
        "evil.wasm",
        r#"{"share": 1, "fails": true}"#,
        &["--shadow=0"],
    );
    assert!(ran.stderr.contains("0 of 2 calls compared"), "{ran:?}");
    let ran = shadowed("good.wasm", r#"{"share": 2}"#, &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let message = ran.object()["status"]["message"].clone();
    let message = message.as_str().unwrap().to_owned();
    assert!(
        message.contains("expected `share` from 0 to 1, found 2"),
        "{message}"
    );
    // On Host there is no native code.
    folder.write("policy.json", r#"{"shadow": {"share": 1, "fails": true}}"#);
    let words = [
        "run",
        "p.hlo",
        "--target",
        "softmax=good.wasm#softmax",
        "--input",
        "0=x.npy",
    ];
    folder
        .run(&[&words[..], &["--policy", "policy.json"]].concat())
        .done();
}

#[test]
fn a_shadow_needs_the_wasm_of_a_pure_target() {
    let folder = folder();
    for (flags, message) in [
        (
            ["--shadow", "2"],
            "expected a share from 0 to 1, found \"2\"",
        ),
        (
            ["--shadow", "nan"],
            "expected a share from 0 to 1, found \"nan\"",
        ),
        (["--shadow", "-1"], "expected a share from 0 to 1"),
    ] {
        let flag = format!("{}={}", flags[0], flags[1]);
        let flag = [flag.as_str(), "--json"];
        let ran = run(&folder, "good.wasm", &flag);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(
            ran.stdout.contains(&message.replace('"', "\\\"")),
            "{ran:?}"
        );
    }
    let ran = run(&folder, "k/callbox.json", &["--shadow", "1", "--json"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let message = "k/callbox.json: --shadow, and `shadow` of the policy, are for packages, which \
                   have their targets as wasm, too";
    assert_eq!(ran.object()["status"]["message"], message);
    let ran = run(&folder, "good.wasm", &["--shadow-fails", "--json"]);
    assert_eq!(ran.code, 2, "{ran:?}");

    // A package whose target does not declare that it is pure.
    let module = NEGATE.replace("\"negate\"", "\"softmax\"");
    let other = softmax();
    other.write(
        "k/callbox-package.json",
        HEADER.replace("negate", "softmax"),
    );
    other.module("k/softmax.wasm", &module);
    other.write(
        "k/cases/rows.json",
        r#"{"call": {"target": "softmax"}, "operands": [{"shape": "f32[1]", "values": [1]}],
            "expect": {"results": [{"shape": "f32[1]", "values": [-1]}]}}"#,
    );
    other.npy("x.npy", &[2, 2], &[3.0_f32, 3.0, 0.0, 1.0]);
    other.run(&["pack", "k", "-o", "k.wasm"]).done();
    let ran = call(&other, "k.wasm", &["--shadow", "1", "--json"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let message = "k.wasm: --shadow, and `shadow` of the policy, are for targets of the trait \
                   `pure`, of which it has none";
    assert_eq!(ran.object()["status"]["message"], message);
}
