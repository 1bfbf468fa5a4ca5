//! `callbox inspect`.

use std::fs;

use serde_json::json;

use crate::guests::{DECLARED, NEGATE};
use crate::support::Folder;

#[test]
fn a_person_sees_what_a_module_declares() {
    let folder = Folder::new();
    folder.module("m.wasm", DECLARED);
    let size = fs::metadata(folder.path("m.wasm")).unwrap().len();
    let shown = folder.run(&["inspect", "m.wasm"]).done();
    let (before, after) = shown.split_once("  sha256    ").unwrap();
    assert_eq!(before, format!("m.wasm\n  size      {size} bytes\n"));
    let (sha256, rest) = after.split_once('\n').unwrap();
    assert!(
        sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_hexdigit()),
        "{sha256}"
    );
    let expected = "  loads     yes
  memory    131072 bytes (128 KiB) at first, 1048576 bytes (1 MiB) at most
  features  sign-extension
  imports   callbox:ffi/api@1.0.0 version () -> i32
  exports   scale (i32) -> i32
            helper\\u{1b}[2J ()

targets, as the module declares them
  scale (pure)
    | Scales.
    | \u{fffd}[31mRed\u{fffd}1m \u{fffd}.
    convention  API_VERSION_TYPED_FFI
    stages      execute
    operands    x: f32|f64[?,?], any: any type[...]
    results     y: f32[.., n, 4]
    attributes  n: f32 scalar, optional, mode: string
";
    assert_eq!(rest, expected);
}

#[test]
fn a_program_sees_one_object() {
    let folder = Folder::new();
    folder
        .module("m.wasm", DECLARED)
        .module("plain.wasm", NEGATE);
    let stdout = folder.run(&["inspect", "m.wasm", "--json"]).done();
    // Nothing in the output controls a terminal.
    assert!(
        stdout
            .trim_end()
            .chars()
            .all(|c| !c.is_control() && c != '\u{202e}')
    );
    let object: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let keys: Vec<_> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["status", "module"]);
    assert_eq!(object["status"]["code"], "OK");
    let module = &object["module"];
    assert_eq!(
        module["memory"],
        json!({"initial": 131_072, "maximum": 1_048_576})
    );
    assert_eq!(
        module["loads"],
        json!({"code": "OK", "number": 0, "message": "", "recoverable": false, "blame": null})
    );
    assert_eq!(module["features"], json!(["sign-extension"]));
    assert_eq!(
        module["imports"],
        json!([{"module": "callbox:ffi/api@1.0.0", "name": "version", "type": "() -> i32"}])
    );
    assert_eq!(
        module["exports"][1],
        json!({"name": "helper\\u{1b}[2J", "type": "()"})
    );
    assert_eq!(module["has_metadata"], true);
    let target = json!({
        "name": "scale",
        "api_versions": ["API_VERSION_TYPED_FFI"],
        "stages": ["execute"],
        "operands": [
            {"name": "x", "element_types": ["f32", "f64"], "rank": 2, "dimensions": null, "optional": false},
            {"name": "any", "element_types": [], "rank": null, "dimensions": null, "optional": false},
        ],
        "remaining_operands": false,
        "results": [{"name": "y", "element_types": ["f32"], "rank": null, "dimensions": ["..", "n", 4], "optional": false}],
        "remaining_results": false,
        "attributes": [
            {"name": "n", "kind": "scalar", "element_type": "f32", "optional": true},
            {"name": "mode", "kind": "string", "element_type": null, "optional": false},
        ],
        "traits": ["pure"],
        "derivative_of": null,
        "derivative_mode": null,
        "documentation": "Scales.\n\u{fffd}[31mRed\u{fffd}1m \u{fffd}.",
    });
    assert_eq!(module["targets"], json!([target]));

    let plain = folder.run(&["inspect", "plain.wasm", "--json"]).object();
    assert_eq!(plain["module"]["has_metadata"], false);
    assert_eq!(plain["module"]["targets"][0]["name"], "negate");
    assert_eq!(plain["module"]["targets"][0]["operands"], json!(null));
    assert_eq!(plain["module"]["memory"]["maximum"], json!(null));
}

/// A C kernel that is linked without `--stack-first` returns wrong results when its stack
/// overflows.
#[test]
fn a_stack_that_overwrites_data_is_warned_of() {
    let folder = Folder::new();
    let module = |stack: u32| {
        format!(
            r#"(module (memory (export "memory") 2)
                 (global $__stack_pointer (mut i32) (i32.const {stack}))
                 (data (i32.const 1024) "tables"))"#
        )
    };
    folder
        .module("above.wasm", &module(66576))
        .module("below.wasm", &module(1024));
    let warning = "  warning   the stack lies above the data and overwrites it on overflow: link with -Wl,--stack-first\n";
    for (file, above) in [("above.wasm", true), ("below.wasm", false)] {
        let shown = folder.run(&["inspect", file]).done();
        assert_eq!(shown.contains(warning), above, "{shown}");
        let object = folder.run(&["inspect", file, "--json"]).object();
        assert_eq!(object["module"]["stack_above_data"], above);
    }
}

/// Imports that are not granted, and a start function that does not end, are only shown.
#[test]
fn nothing_is_run_or_refused_for_what_it_imports() {
    let folder = Folder::new();
    folder.module(
        "m.wasm",
        r#"(module (import "env" "system" (func (param i32)))
             (func $start (loop $again (br $again))) (start $start))"#,
    );
    let shown = folder.run(&["inspect", "m.wasm"]).done();
    assert!(
        shown.contains("\n  imports   env system (i32)\n"),
        "{shown}"
    );
    assert!(
        shown.contains("\n  memory    none exported as \"memory\"\n"),
        "{shown}"
    );
    assert!(shown.ends_with("\nno targets\n"), "{shown}");
    let problem = "the import \"env\" \"system\" is not granted";
    assert!(
        shown.contains(&format!("\n  loads     no: PERMISSION_DENIED: {problem}")),
        "{shown}"
    );
    let object = folder.run(&["inspect", "m.wasm", "--json"]).object();
    assert_eq!(object["status"]["code"], "OK");
    let loads = &object["module"]["loads"];
    assert_eq!(
        (&loads["code"], &loads["number"]),
        (&json!("PERMISSION_DENIED"), &json!(7))
    );
    assert_eq!(loads["blame"], "guest");
    assert!(loads["message"].as_str().unwrap().starts_with(problem));
}

#[test]
fn what_is_no_module_is_refused() {
    let folder = Folder::new();
    folder
        .write("text.wasm", "hello")
        .module("component.wasm", "(component)");
    for (file, message) in [
        ("text.wasm", "\"hello\""),
        ("component.wasm", "found a component"),
    ] {
        let ran = folder.run(&["inspect", file, "--json"]);
        let object = ran.object();
        assert_eq!((ran.code, &object["module"]), (1, &json!(null)));
        assert_eq!(object["status"]["code"], "INVALID_ARGUMENT");
        assert!(
            object["status"]["message"]
                .as_str()
                .unwrap()
                .contains(message)
        );
        let ran = folder.run(&["inspect", file]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
        assert!(
            ran.stderr
                .starts_with(&format!("error: INVALID_ARGUMENT: {file}: ")),
            "{ran:?}"
        );
    }
}

/// An array is recognised, and is not reported as an invalid module.
#[test]
fn other_files_are_the_callers_mistake() {
    let folder = Folder::new();
    folder.npy("x.npy", &[1], &[1.0_f32]).write("empty", "");
    for (file, found) in [
        ("x.npy", "found an array in a .npy file"),
        ("empty", "found an empty file"),
    ] {
        let object = folder.run(&["inspect", file, "--json"]).object();
        assert_eq!(object["status"]["code"], "INVALID_ARGUMENT");
        assert_eq!(object["status"]["blame"], "caller");
        let message = object["status"]["message"].as_str().unwrap();
        assert!(message.ends_with(found), "{message}");
    }
}

#[test]
fn loops_without_vectors_are_warned_of() {
    let folder = Folder::new();
    let module =
        |body: &str| format!("(module (memory (export \"memory\") 1) (func (local i32) {body}))");
    let copy = "local.get 0 local.get 0 f32.load f32.store";
    folder.module("slow.wasm", &module(&format!("loop {copy} end")));
    folder.module("straight.wasm", &module(copy));
    for (file, is_slow) in [("slow.wasm", true), ("straight.wasm", false)] {
        let shown = folder.run(&["inspect", file]).done();
        assert_eq!(
            shown.contains("-msimd128 (C) turns them on"),
            is_slow,
            "{shown}"
        );
        let object = folder.run(&["inspect", file, "--json"]).object();
        assert_eq!(object["module"]["scalar_loops"], is_slow);
    }
}
