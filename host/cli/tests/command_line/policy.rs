//! The policy: its flags, its files, and `callbox policy`, which shows it.

use serde_json::Value;

use crate::guests::FAULTS;
use crate::support::Folder;

/// A target that returns how often its instance was called before. Offsets in frames are those of
/// `wit/callbox-ffi.wit`.
const COUNTER: &str = r#"(module
  (memory (export "memory") 1)
  (global $calls (mut i32) (i32.const 0))
  (func (export "count") (param $frame i32) (result i32)
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (global.get $calls))
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (i32.const 0)))"#;

const TWICE: &str = "HloModule m
ENTRY main {
  a = s32[] custom-call(), custom_call_target=\"count\", api_version=API_VERSION_TYPED_FFI
  b = s32[] custom-call(), custom_call_target=\"count\", api_version=API_VERSION_TYPED_FFI
  ROOT all = (s32[], s32[]) tuple(a, b)
}
";

#[test]
fn an_instance_serves_a_program_or_one_call() {
    let folder = Folder::new();
    folder.module("count.wasm", COUNTER);
    folder.write("p.hlo", TWICE);
    folder.write("fresh.json", r#"{"isolation": "fresh"}"#);
    let mut run = vec!["run", "p.hlo", "--target", "count=count.wasm"];
    run.extend(["--output-dir", "out"]);
    for (flags, calls) in [
        (&[][..], [0, 1]),
        (&["--isolation", "executable"], [0, 1]),
        (&["--isolation", "fresh"], [0, 0]),
        (&["--policy", "fresh.json"], [0, 0]),
        // Flags override the file.
        (
            &["--policy", "fresh.json", "--isolation", "executable"],
            [0, 1],
        ),
    ] {
        folder.run(&[&run[..], flags].concat()).done();
        let mut found = [0, 1].map(|i| folder.read_npy::<i32>(&format!("out/{i}.npy")).1[0]);
        // The two messages come in any order.
        found.sort_unstable();
        assert_eq!(found, calls, "{flags:?}");
    }
}

#[test]
fn a_deterministic_call_is_bounded_by_fuel() {
    let folder = Folder::new();
    folder.module("faults.wasm", FAULTS);
    folder.write(
        "policy.json",
        r#"{"limits": {"fuel": 100000, "deadline_ms": 200}}"#,
    );
    let mut call = vec!["call", "faults.wasm", "spin", "--result", "f32[]"];
    call.extend(["--policy", "policy.json"]);
    let deadline = "target \"spin\" ran past its deadline of 200ms";
    folder.refuse(&call, 1, "DEADLINE_EXCEEDED", deadline);
    call.push("--deterministic");
    let fuel = "target \"spin\" ran past its fuel of 100000 units";
    folder.refuse(&call, 1, "DEADLINE_EXCEEDED", fuel);
}

/// A target that declares itself pure and returns random bytes.
const RANDOM: &str = r#"(module
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "f") (param $frame i32) (result i32)
    (call $random (i32.load (i32.load offset=16 (local.get $frame))) (i32.const 16)))
  (@custom "callbox.targets" "{\"name\": \"f\", \"traits\": [\"pure\"]}"))"#;

#[test]
fn what_is_declared_pure_can_be_checked() {
    let folder = Folder::new();
    folder.module("random.wasm", RANDOM);
    folder.write("policy.json", r#"{"grants": {"randomness": "system"}}"#);
    let mut call = vec!["call", "random.wasm", "f", "--result", "u8[16]"];
    call.extend(["--policy", "policy.json"]);
    folder.run(&call).done();
    call.push("--check-pure");
    let message = "expected a target that is declared pure to give the same twice";
    folder.refuse(&call, 1, "INTERNAL", message);
}

#[test]
fn what_is_wrong_in_a_file_is_said() {
    let folder = Folder::new();
    folder.module("count.wasm", COUNTER);
    let call = |file| {
        let call = ["call", "count.wasm", "count", "--result", "s32[]"];
        [&call[..], &["--policy", file]].concat()
    };
    for (text, message) in [
        (
            r#"{"limit": {}}"#,
            "p.json: expected a policy: unknown field `limit`",
        ),
        (
            r#"{"limits": {"memory": 1}}"#,
            "p.json: expected a policy: unknown field `memory`",
        ),
        (r#"{"isolation": "none"}"#, "unknown variant `none`"),
        (
            "[]",
            "expected a policy: invalid type: sequence, expected an object",
        ),
        (
            r#"{"targets": {"f": {"clock": true}, "f": {}}}"#,
            "`f` occurs twice",
        ),
        ("{", "EOF"),
    ] {
        folder.write("p.json", text);
        folder.refuse(&call("p.json"), 1, "INVALID_ARGUMENT", message);
        let shown = folder.run(&["policy", "p.json"]);
        assert_eq!((shown.code, shown.stdout.as_str()), (1, ""), "{shown:?}");
        assert!(shown.stderr.starts_with("error: "), "{shown:?}");
        assert!(shown.stderr.contains(message), "{shown:?}");
    }
    folder.refuse(&call("none.json"), 2, "NOT_FOUND", "none.json");
    let shown = folder.run(&["policy", "none.json"]);
    assert_eq!((shown.code, shown.stdout.as_str()), (2, ""), "{shown:?}");
    assert!(shown.stderr.contains("none.json"), "{shown:?}");
}

#[test]
fn a_policy_is_shown_whole() {
    let folder = Folder::new();
    folder.module("count.wasm", COUNTER);
    let show = |arguments: &[&str]| folder.run(&[&["policy"], arguments].concat()).done();
    let text = show(&[]);
    let policy: Value = serde_json::from_str(&text).unwrap();
    for (pointer, value) in [
        ("/limits/memory_bytes", Value::from(1_u64 << 30)),
        ("/limits/deadline_ms", Value::from(10_000)),
        ("/isolation", Value::from("executable")),
        ("/traps", Value::from("signals")),
        ("/deterministic", Value::from(false)),
        ("/grants/directories", Value::Array(Vec::new())),
        ("/grants/log", Value::Null),
    ] {
        assert_eq!(policy.pointer(pointer), Some(&value), "{pointer}");
    }
    // The output is valid as a policy.
    folder.write("default.json", &text);
    assert_eq!(show(&["default.json"]), text);
    let call = ["call", "count.wasm", "count", "--result", "s32[]"];
    let default = folder.run(&call).done();
    let same = folder.run(&[&call[..], &["--policy", "default.json"]].concat());
    assert_eq!(same.done(), default);

    folder.write(
        "short.json",
        r#"{"limits": {"fuel": 7}, "traps": "explicit"}"#,
    );
    let expected = text
        .replace("\"fuel\": 20000000000", "\"fuel\": 7")
        .replace("\"signals\"", "\"explicit\"");
    assert_eq!(show(&["short.json"]), expected);
}

#[test]
fn limits_of_64_bits_are_taken_or_refused() {
    let folder = Folder::new();
    folder.module("count.wasm", COUNTER);
    let text = folder.run(&["policy"]).done();
    let policy: Value = serde_json::from_str(&text).unwrap();
    for name in policy["limits"].as_object().unwrap().keys() {
        for value in [u64::MAX, u64::MAX / 2 + 1] {
            let limits = format!(r#"{{"limits": {{"{name}": {value}}}}}"#);
            folder.write("large.json", limits);
            let ran = folder.run(&[
                "call",
                "count.wasm",
                "count",
                "--result",
                "s32[]",
                "--policy",
                "large.json",
                "--json",
            ]);
            let status = &ran.object()["status"]["code"];
            // The latter where the limit has fewer bits, or the machine has less.
            let expected = ["OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"];
            assert!(
                expected.iter().any(|code| status == code),
                "{name}: {ran:?}"
            );
        }
    }
}
