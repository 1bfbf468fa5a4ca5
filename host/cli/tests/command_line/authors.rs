//! What authors of kernels use: `callbox annotate`, `call --time`, and attributes with types.

use crate::guests::{NEGATE, WRITERS};
use crate::support::Folder;

const TARGETS: &str = r#"[{
  "name": "negate",
  "doc": "Negates.",
  "operands": [{"name": "x", "element_types": ["f32"], "dimensions": [".."]}],
  "results": [{"name": "y", "element_types": ["f32"], "dimensions": [".."]}],
  "attributes": []
}]"#;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.module("k.wasm", NEGATE).write("t.json", TARGETS);
    folder.npy("x.npy", &[2], &[1.0_f32, -2.0]);
    folder
}

#[test]
fn declarations_are_written_and_checked_at_calls() {
    let folder = folder();
    let annotated = folder.run(&["annotate", "k.wasm", "t.json", "-o", "new.wasm"]);
    assert_eq!(annotated.done(), "new.wasm\n  negate\n");
    let call = |module, operand| {
        let call = ["call", module, "negate", "--operand", operand];
        [&call[..], &["--result", "f32[2]"]].concat()
    };
    let shown = folder.run(&call("new.wasm", "x.npy")).done();
    assert!(shown.contains("-1"), "{shown}");
    // The module without declarations does not know the type of its operand.
    let message = "Wrong buffer dtype: expected F32 but got S32";
    folder.refuse(
        &call("new.wasm", "[1,2]:s32"),
        1,
        "INVALID_ARGUMENT",
        message,
    );
    folder.run(&call("k.wasm", "[1,2]:s32")).done();

    // The file itself is replaced, and so are its earlier declarations.
    let size = || std::fs::metadata(folder.path("new.wasm")).unwrap().len();
    let before = size();
    folder.run(&["annotate", "new.wasm", "t.json"]).done();
    assert_eq!(size(), before);
}

#[test]
fn declarations_that_do_not_fit_change_nothing() {
    let folder = folder();
    let before = std::fs::read(folder.path("k.wasm")).unwrap();
    for (targets, message) in [
        (
            "[]",
            "t.json: expected an object for each target, found none",
        ),
        (
            "{} 4",
            "t.json: expected an object for each target, found 4",
        ),
        ("{", "t.json: expected JSON: "),
        (r#"{"name": "absent"}"#, "absent"),
        (
            r#"{"name": "negate", "operands": [{"dimensions": ["n", ".."]}]}"#,
            "negate",
        ),
    ] {
        folder.write("t.json", targets);
        let ran = folder.run(&["annotate", "k.wasm", "t.json"]);
        assert_eq!(ran.code, 1, "{targets}: {ran:?}");
        assert!(
            ran.stderr.starts_with("error: INVALID_ARGUMENT: "),
            "{ran:?}"
        );
        assert!(ran.stderr.contains(message), "{targets}: {ran:?}");
        assert_eq!(std::fs::read(folder.path("k.wasm")).unwrap(), before);
    }
    folder.write("t.json", TARGETS).write("k.wasm", "text");
    let ran = folder.run(&["annotate", "k.wasm", "t.json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stderr.contains("expected a WebAssembly module"),
        "{ran:?}"
    );
    assert_eq!(folder.run(&["annotate", "no.wasm", "t.json"]).code, 2);
}

#[test]
fn attributes_have_types_inside_dictionaries_and_come_from_files() {
    let folder = Folder::new();
    folder.module("w.wasm", WRITERS);
    folder.npy("a.npy", &[2], &[1.5_f32, -2.0]);
    let call = |value: &str| {
        let attribute = format!("a={value}");
        let call = ["call", "w.wasm", "attribute", "--result", "f32[2]"];
        folder.run(&[&call[..], &["--attr", &attribute]].concat())
    };
    let from_file = call("@a.npy").done();
    assert_eq!(from_file, call("[1.5,-2.0]:f32").done());
    assert_eq!(from_file, call("array<f32: 1.5, -2.0>").done());
    let ran = call("@b.npy");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr
            .contains("the attribute `a`: expected to read b.npy"),
        "{ran:?}"
    );
    let ran = call("@f");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains("only a program has functions"),
        "{ran:?}"
    );
    // A module has no functions to refer to, in a dictionary neither.
    assert_eq!(call("{g = @f}").code, 1);
    // The guest writes the attribute's kind, element type and rank.
    let kind = |attribute: &str| {
        let call = [
            "call", "w.wasm", "kind", "--result", "u8[3]", "--attr", attribute,
        ];
        folder.run(&call).done()
    };
    let typed = kind("a={lo = -8.0 : f32}");
    assert_eq!(typed, kind(r#"a={"lo":1}"#));
    assert_ne!(typed, kind("a=\"lo\""));
}

#[test]
fn declared_fields_type_the_values_of_a_dictionary() {
    let folder = Folder::new();
    folder.module("w.wasm", WRITERS);
    folder.write(
        "t.json",
        r#"{"name": "kind", "operands": [],
            "results": [{"name": "y", "element_types": ["u8"], "dimensions": [3]}],
            "attributes": [{"name": "range", "kind": "dictionary", "fields": [
                {"name": "lo", "kind": "scalar", "element_type": "f32"},
                {"name": "hi", "kind": "scalar", "element_type": "f32", "optional": true}]}]}"#,
    );
    folder.run(&["annotate", "w.wasm", "t.json"]).done();
    let call = |range: &str| format!("range={range}");
    let kind = |attribute: &str| {
        let given = call(attribute);
        folder.run(&[
            "call", "w.wasm", "kind", "--result", "u8[3]", "--attr", &given,
        ])
    };
    assert!(kind(r#"{"lo":-8.0}"#).done().contains("\n  2, 0, 0\n"));
    for (range, message) in [
        (
            r#"{"lo":"-8.0"}"#,
            "the attribute `range.lo`, which the target declares as f32: expected a value of f32, \
             found \"-8.0\"",
        ),
        (
            r#"{"low":-8.0}"#,
            "the attribute `range`: expected the fields `lo`, `hi`, found another `low`",
        ),
    ] {
        let ran = kind(range);
        let line = format!("error: INVALID_ARGUMENT: {message}");
        assert!(ran.code == 1 && ran.stderr.contains(&line), "{ran:?}");
    }
    let shown = folder.run(&["inspect", "w.wasm"]).done();
    let line = "range: dictionary {lo: f32 scalar, hi: f32 scalar, optional}";
    assert!(shown.contains(line), "{shown}");
    let object = folder.run(&["inspect", "w.wasm", "--json"]).object();
    let fields = &object["module"]["targets"][0]["attributes"][0]["fields"];
    assert_eq!(fields[0]["element_type"], "f32", "{object}");
    assert_eq!(fields[1]["optional"], true, "{object}");
}

#[test]
fn times_go_to_standard_error() {
    let folder = folder();
    let call = [
        "call",
        "k.wasm",
        "negate",
        "--operand",
        "x.npy",
        "--result",
        "f32[2]",
    ];
    let plain = folder.run(&call);
    let timed = folder.run(&[&call[..], &["--time", "--repeat", "20"]].concat());
    assert_eq!((timed.code, &timed.stdout), (0, &plain.stdout));
    let line = timed
        .stderr
        .lines()
        .find(|line| line.starts_with("time: prepared in "));
    assert!(
        line.is_some_and(|line| line.contains("; 20 calls: least ")),
        "{timed:?}"
    );
    let ran = folder.run(&[&call[..], &["--repeat", "20"]].concat());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(
        folder
            .run(&[&call[..], &["--time", "--repeat", "0"]].concat())
            .code,
        2
    );
}
