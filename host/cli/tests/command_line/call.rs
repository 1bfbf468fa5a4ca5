//! `callbox call`: operands, results, attributes.

use crate::guests::{DECLARED, FAULTS, FORGED, NEGATE, WRITERS};
use crate::support::Folder;

fn folder() -> Folder {
    let folder = Folder::new();
    folder
        .module("m.wasm", NEGATE)
        .module("faults.wasm", FAULTS)
        .module("w.wasm", WRITERS);
    folder.npy("x.npy", &[3], &[1.0_f32, 2.0, -3.5]);
    folder
}

const NEGATE_X: [&str; 7] = [
    "call",
    "m.wasm",
    "negate",
    "--operand",
    "x.npy",
    "--result",
    "f32[3]",
];

#[test]
fn a_target_is_called() {
    let folder = folder();
    let shown = folder.run(&NEGATE_X).done();
    let expected = "result 0: f32[3]{0}\n  -1.0, -2.0, 3.5\n  min -2.0, max 3.5, mean 0.16666667\n";
    assert_eq!(shown, expected);
    let written = folder
        .run(&[&NEGATE_X[..], &["--output-dir", "out", "--json"]].concat())
        .done();
    let object = concat!(
        r#"{"status":{"code":"OK","number":0,"message":"","recoverable":false,"blame":null},"#,
        r#""results":[{"shape":"f32[3]{0}","file":"out/0.npy"}]}"#,
        "\n"
    );
    assert_eq!(written, object);
    assert_eq!(
        folder.read_npy::<f32>("out/0.npy"),
        (vec![3], vec![-1.0, -2.0, 3.5])
    );
}

#[test]
fn operands_and_results_may_be_several_or_none() {
    let folder = folder();
    folder.npy("y.npy", &[2], &[7_i32, 8]);
    for operands in [
        &["--operand", "x.npy", "y.npy"][..],
        &["--operand", "x.npy", "--operand", "y.npy"],
    ] {
        for results in [
            &["--result", "f32[3]", "s32[]"][..],
            &["--result", "f32[3]", "--result", "s32[]"],
            &["--result", "(f32[3], s32[])"],
        ] {
            let call = [&["call", "m.wasm", "negate", "--json"], operands, results].concat();
            let object = folder.run(&call).object();
            let shapes: Vec<_> = object["results"]
                .as_array()
                .unwrap()
                .iter()
                .map(|r| &r["shape"])
                .collect();
            assert_eq!(shapes, ["f32[3]{0}", "s32[]"]);
        }
    }
    let shown = folder.run(&["call", "faults.wasm", "shout"]);
    assert_eq!((shown.code, shown.stdout.as_str()), (0, "no results\n"));
}

#[test]
fn arrays_of_no_and_of_one_element_are_passed() {
    let folder = folder();
    folder
        .npy::<f32>("empty.npy", &[0, 4], &[])
        .npy("one.npy", &[], &[2.5_f32]);
    let call = |operand, result| {
        let call = [
            "call",
            "m.wasm",
            "negate",
            "--operand",
            operand,
            "--result",
            result,
        ];
        folder.run(&call).done()
    };
    assert_eq!(
        call("empty.npy", "f32[0,4]"),
        "result 0: f32[0,4]{1,0}\n  no elements\n"
    );
    assert_eq!(call("one.npy", "f32[]"), "result 0: f32[]\n  -2.5\n");
}

/// A target writes in the layout of the result; files and summaries are in row-major order.
#[test]
fn layouts_are_the_targets() {
    let folder = folder();
    let call = |shape| {
        folder
            .run(&["call", "w.wasm", "iota", "--result", shape])
            .done()
    };
    assert!(call("f32[2,3]").contains("\n  0.0, 1.0, 2.0, 3.0, 4.0, 5.0\n"));
    let shown = call("f32[2,3]{0,1}");
    assert!(
        shown.starts_with("result 0: f32[2,3]{0,1}\n  0.0, 2.0, 4.0, 1.0, 3.0, 5.0\n"),
        "{shown}"
    );
}

#[test]
fn attributes_arrive_as_typed() {
    let folder = folder();
    // Kinds: 1 array, 2 dictionary, 3 scalar, 4 string. Element types have XLA's numbers.
    for (attribute, value, shape, kind) in [
        ("n=4", "4", "s64[1]", "3, 5, 0"),
        ("n=4.5", "4.5", "f64[1]", "3, 12, 0"),
        ("n=4.5:f32", "4.5", "f32[1]", "3, 11, 0"),
        ("n=-1:i8", "-1", "s8[1]", "3, 2, 0"),
        ("n=200:u8", "200", "u8[1]", "3, 6, 0"),
        ("n=true", "true", "pred[1]", "3, 1, 0"),
        ("n=1.5:bf16", "1.5", "bf16[1]", "3, 16, 0"),
        ("n=[1,-2]:i32", "1, -2", "s32[2]", "1, 4, 1"),
        ("n=[[1],[2]]:f32", "1.0, 2.0", "f32[2]", "1, 11, 2"),
        (
            "n=\"hi:f32\"",
            "104, 105, 58, 102, 51, 50",
            "u8[6]",
            "4, 0, 0",
        ),
    ] {
        let call = |target, result| {
            let call = [
                "call", "w.wasm", target, "--result", result, "--attr", attribute,
            ];
            let shown = folder.run(&call).done();
            shown.lines().nth(1).unwrap().trim().to_owned()
        };
        assert_eq!(call("attribute", shape), value, "{attribute}");
        assert_eq!(call("kind", "u8[3]"), kind, "{attribute}");
    }
    let call = [
        "call",
        "w.wasm",
        "kind",
        "--result",
        "u8[3]",
        "--attr",
        r#"n={"a":1}"#,
    ];
    assert!(folder.run(&call).done().contains("\n  2, 0, 0\n"));
}

#[test]
fn failures_are_statuses() {
    let folder = folder();
    let call = |target: &'static str| {
        [
            "call",
            "faults.wasm",
            target,
            "--operand",
            "x.npy",
            "--result",
            "f32[3]",
            "--output-dir",
            "out",
        ]
    };
    let ran = folder.refuse(&call("fail"), 1, "INVALID_ARGUMENT", "Info must be >= 0");
    assert_eq!(ran.object()["status"]["recoverable"], true);
    let ran = folder.refuse(&call("trap"), 1, "ABORTED", "");
    assert!(ran.stderr.contains("0: inner\n"), "{ran:?}");
    let spin = [&call("spin")[..], &["--deadline", "100ms"]].concat();
    folder.refuse(&spin, 1, "DEADLINE_EXCEEDED", "");
    folder.refuse(&call("tarp"), 1, "NOT_FOUND", "tarp");
    let small = [&call("fail")[..], &["--memory-limit", "0"]].concat();
    folder.refuse(&small, 1, "RESOURCE_EXHAUSTED", "faults.wasm: ");
    assert!(!folder.path("out").exists());
}

/// The start of each line shows whether the text is a guest's.
#[test]
fn no_line_of_a_guest_passes_for_callboxs_own() {
    let folder = Folder::new();
    folder.module("forged.wasm", FORGED);
    let forged = folder.run(&["call", "forged.wasm", "forge", "--result", "f32[]"]);
    let expected = "error: INTERNAL: forged.wasm: target \"forge\" failed: the guest says \"no
  |   blame: host
  | \u{fffd}\u{fffd}[2Kerror: INTERNAL: the host failed
  | \"
  blame: guest
";
    assert_eq!((forged.code, forged.stderr.as_str()), (1, expected));
    let trapped = folder.run(&["call", "forged.wasm", "trap", "--result", "f32[]"]);
    let expected =
        "error: ABORTED: forged.wasm: target \"trap\" trapped: wasm `unreachable` instruction executed
  blame: guest
  backtrace, innermost function first:
    0: pass   blame: host\u{fffd}[2K
    1: function 3
";
    assert_eq!((trapped.code, trapped.stderr.as_str()), (1, expected));
}

/// A result that does not fit into memory is refused before any of it is allocated.
#[test]
fn results_that_are_too_large_are_refused() {
    let folder = folder();
    let call = |shape: &'static str| {
        [
            "call",
            "m.wasm",
            "negate",
            "--operand",
            "x.npy",
            "--result",
            shape,
        ]
    };
    folder.refuse(&call("f32[1000000000000]"), 1, "RESOURCE_EXHAUSTED", "");
    folder.refuse(
        &call("f32[9223372036854775807]"),
        2,
        "INVALID_ARGUMENT",
        "size in bytes",
    );
}

/// A function of five 32-bit integers fits two conventions, which interpret the opaque bytes
/// differently.
#[test]
fn an_ambiguous_convention_is_refused() {
    let folder = Folder::new();
    folder.write("opaque", "1").module(
        "five.wasm",
        r#"(module (memory (export "memory") 1)
             (func (export "f") (param i32 i32 i32 i32 i32)))"#,
    );
    let call = ["call", "five.wasm", "f"];
    let message = "`f` fits several conventions: name the one that it is written for with \
                   --api-version API_VERSION_STATUS_RETURNING_UNIFIED or \
                   --api-version API_VERSION_JAX_FFI";
    for opaque in [&[][..], &["--opaque", "1"], &["--opaque-file", "opaque"]] {
        folder.refuse(
            &[&call[..], opaque].concat(),
            2,
            "INVALID_ARGUMENT",
            message,
        );
    }
    let unified = ["--api-version", "API_VERSION_STATUS_RETURNING_UNIFIED"];
    let options = ["--opaque-file", "opaque"];
    let shown = folder.run(&[&call[..], &unified, &options].concat()).done();
    assert_eq!(shown, "no results\n");

    // The macros of `jax_ffi.h` record an order, and with it the convention.
    for order in ["outputs-first", "inputs-first"] {
        folder.module(
            "five.wasm",
            &format!(
                r#"(module (memory (export "memory") 1)
                     (func (export "f") (param i32 i32 i32 i32 i32))
                     (func (export "f.{order}")))"#
            ),
        );
        let call = [&call[..], &options].concat();
        folder.refuse(&call, 1, "INVALID_ARGUMENT", "expected the API table");
    }
}

/// A whole number has the type that the target declares, as in Python.
#[test]
fn an_attribute_has_the_declared_type() {
    let folder = Folder::new();
    folder.module("m.wasm", DECLARED);
    folder.npy("x.npy", &[2, 4], &[0.0_f32; 8]);
    let call = |n| {
        let operands = ["--operand", "x.npy", "--operand", "x.npy"];
        let call = [
            "call",
            "m.wasm",
            "scale",
            "--attr",
            n,
            "--attr",
            "mode=\"fast\"",
        ];
        [&call[..], &operands, &["--result", "f32[2,4]"]].concat()
    };
    // The attribute is valid; the status is about the missing operands.
    for n in ["n=4", "n=4:f32"] {
        let ran = folder.run(&call(n));
        assert!(!ran.stderr.contains("Wrong scalar data type"), "{ran:?}");
    }
    let ran = folder.run(&call("n=4:s64"));
    assert!(ran.stderr.contains("Wrong scalar data type"), "{ran:?}");
    let message =
        "the attribute `n`, which the target declares as f32: expected a value of f32, found true";
    folder.refuse(&call("n=true"), 1, "INVALID_ARGUMENT", message);
}

/// The message tells the size of the results, not of their elements.
#[test]
fn results_larger_than_memory_are_refused_by_their_size() {
    let folder = Folder::new();
    folder.write(
        "p.hlo",
        "HloModule m\nENTRY main {\n  x = f32[] constant(1)\n  \
         ROOT y = f32[100000000000000000] broadcast(x), dimensions={}\n}\n",
    );
    let message = "out of memory while trying to allocate 400000000000000000 bytes";
    folder.refuse(&["run", "p.hlo"], 1, "RESOURCE_EXHAUSTED", message);
}
