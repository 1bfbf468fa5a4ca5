//! `callbox run`: programs, functions, targets, limits.

use crate::cost::limited;
use crate::guests::{ADD, CALL, FAULTS, NEGATE, SEED, calling};
use crate::support::Folder;

pub(crate) fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("add.hlo", ADD).write("call.hlo", CALL);
    folder.npy("x.npy", &[3], &[1.0_f32, 2.0, -3.5]);
    folder.npy("y.npy", &[3], &[0.5_f32, 0.25, 0.5]);
    folder
        .module("negate.wasm", NEGATE)
        .module("faults.wasm", FAULTS);
    folder
}

const ADD_XY: [&str; 6] = ["run", "add.hlo", "--input", "0=x.npy", "--input", "1=y.npy"];

#[test]
fn a_person_sees_each_result() {
    let folder = folder();
    let shown = folder.run(&ADD_XY).done();
    let expected = "result 0: f32[3]{0}\n  1.5, 2.25, -3.0\n  min -3.0, max 2.25, mean 0.25\n";
    assert_eq!(shown, expected);
    let shown = folder
        .run(&[&ADD_XY[..], &["--output-dir", "out"]].concat())
        .done();
    assert_eq!(shown, format!("{expected}  written to out/0.npy\n"));
    assert_eq!(
        folder.read_npy::<f32>("out/0.npy"),
        (vec![3], vec![1.5, 2.25, -3.0])
    );
}

#[test]
fn a_program_sees_one_object() {
    let folder = folder();
    let status =
        r#""status":{"code":"OK","number":0,"message":"","recoverable":false,"blame":null}"#;
    let shown = folder.run(&[&ADD_XY[..], &["--json"]].concat()).done();
    let results = r#""results":[{"shape":"f32[3]{0}","file":null}]"#;
    assert_eq!(shown, format!("{{{status},{results}}}\n"));
    let shown = folder
        .run(&[&ADD_XY[..], &["--json", "--output-dir", "out"]].concat())
        .done();
    let results = r#""results":[{"shape":"f32[3]{0}","file":"out/0.npy"}]"#;
    assert_eq!(shown, format!("{{{status},{results}}}\n"));
    let failed = folder.run(&["run", "add.hlo", "--input", "7=x.npy", "--json"]);
    let expected = concat!(
        r#"{"status":{"code":"INVALID_ARGUMENT","number":3,"message":"expected an input of the "#,
        r#"function \"main\", found --input 7; it takes\n  0: f32[3]{0}\n  1: f32[3]{0}","#,
        r#""recoverable":false,"blame":"caller"},"results":[]}"#,
        "\n"
    );
    assert_eq!((failed.code, failed.stdout.as_str()), (1, expected));
}

#[test]
fn targets_are_registered() {
    let folder = folder();
    folder
        .module("kernels/a.wasm", NEGATE)
        .write("kernels/readme.txt", "no module");
    folder.write("own.hlo", calling("negate"));
    for (program, targets) in [
        (
            "call.hlo",
            &["--target", "do_custom_call=negate.wasm#negate"][..],
        ),
        ("own.hlo", &["--target", "negate=negate.wasm"]),
        ("own.hlo", &["--targets", "kernels"]),
        // Three names of one file: the target is the same.
        (
            "own.hlo",
            &[
                "--targets",
                "kernels",
                "--targets",
                "./kernels",
                "--target",
                "negate=kernels/a.wasm",
            ],
        ),
        // Another file with the same bytes has the same targets, too.
        (
            "own.hlo",
            &["--targets", "kernels", "--target", "negate=negate.wasm"],
        ),
        ("own.hlo", &["--targets", "kernels", "--platform", "Host"]),
        ("own.hlo", &["--targets", "kernels", "--platform", "cpu"]),
        (
            "own.hlo",
            &[
                "--targets",
                "kernels",
                "--deadline",
                "10s",
                "--memory-limit",
                "1MiB",
            ],
        ),
    ] {
        let arguments = [&["run", program, "--input", "0=x.npy"], targets].concat();
        let shown = folder.run(&arguments).done();
        assert!(shown.contains("\n  -1.0, -2.0, 3.5\n"), "{shown}");
    }
}

#[test]
fn targets_find_user_data_by_name() {
    let folder = folder();
    folder
        .module("seed.wasm", SEED)
        .write("own.hlo", calling("negate"))
        .write(
            "seed.bin",
            [1.0_f32, 2.0, -3.5].map(f32::to_le_bytes).concat(),
        );
    let run = [
        "run",
        "own.hlo",
        "--input",
        "0=x.npy",
        "--target",
        "negate=seed.wasm",
    ];
    let shown = folder
        .run(&[&run[..], &["--user-data", "seed=seed.bin"]].concat())
        .done();
    assert!(shown.contains("\n  1.0, 2.0, -3.5\n"), "{shown}");
    let without = folder.run(&[&run[..], &["--user-data", "seeds=seed.bin"]].concat());
    assert_eq!(without.code, 1, "{without:?}");
    let twice = ["--user-data", "seed=seed.bin", "--user-data", "seed=x.npy"];
    let twice = folder.run(&[&run[..], &twice].concat());
    assert_eq!(twice.code, 2, "{twice:?}");
    assert!(
        twice
            .stderr
            .contains("expected --user-data seed once, found it again"),
        "{twice:?}"
    );
}

#[test]
fn functions_are_chosen_by_name_or_number() {
    let folder = folder();
    let program = "HloModule m, frontend_attributes={callbox.exports=\"main,twice\"}
twice {
  a = f32[3] parameter(0)
  ROOT b = f32[3] add(a, a)
}
ENTRY main {
  x = f32[3] parameter(0)
  ROOT y = f32[3] negate(x)
}
";
    folder.write("two.hlo", program);
    let run = ["run", "two.hlo", "--input", "0=x.npy"];
    for (function, values) in [
        (&[][..], "-1.0, -2.0, 3.5"),
        (&["--function", "0"], "-1.0, -2.0, 3.5"),
        (&["--function", "main"], "-1.0, -2.0, 3.5"),
        (&["--function", "twice"], "2.0, 4.0, -7.0"),
        (&["--function", "1"], "2.0, 4.0, -7.0"),
    ] {
        let shown = folder.run(&[&run[..], function].concat()).done();
        assert!(shown.contains(values), "{shown}");
    }
    for unknown in ["2", "thrice", ""] {
        let message =
            format!("expected an exported function: main (0), twice (1), found {unknown:?}");
        let arguments = [&run[..], &["--function", unknown]].concat();
        folder.refuse(&arguments, 1, "NOT_FOUND", &message);
    }
}

#[test]
fn a_program_that_cannot_be_read_is_shown_where() {
    let folder = folder();
    folder
        .write("wrong.hlo", ADD.replace("add(x, y)", "add(x,, y)"))
        .write("bytes.hlo", b"HloModule \xff");
    folder.write("unknown.hlo", ADD.replace("add(", "infeed("));
    let ran = folder.refuse(
        &["run", "wrong.hlo"],
        1,
        "INVALID_ARGUMENT",
        "wrong.hlo: line 5, column ",
    );
    assert!(
        ran.stderr.contains("ROOT sum = f32[3]{0} add(x,, y)\n"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("^\n"), "{ran:?}");
    folder.refuse(&["run", "unknown.hlo"], 1, "UNIMPLEMENTED", "infeed");
    let message = "bytes.hlo: expected HLO text, which is UTF-8, found other bytes at byte 10";
    folder.refuse(&["run", "bytes.hlo"], 1, "INVALID_ARGUMENT", message);
    folder.write("empty.hlo", "");
    folder.refuse(&["run", "empty.hlo"], 1, "INVALID_ARGUMENT", "empty.hlo: ");
}

#[test]
fn failures_of_guests_are_statuses() {
    let folder = folder();
    for target in ["fail", "trap", "spin"] {
        folder.write(&format!("{target}.hlo"), calling(target));
    }
    let x = [
        "--input",
        "0=x.npy",
        "--targets",
        ".",
        "--output-dir",
        "out",
    ];
    let run = |program: &'static str| [&["run", program], &x[..]].concat();
    let ran = folder.refuse(&run("fail.hlo"), 1, "INVALID_ARGUMENT", "Info must be >= 0");
    let status = &ran.object()["status"];
    assert_eq!(
        (&status["recoverable"], &status["blame"]),
        (&true.into(), &"guest".into())
    );
    assert!(
        ran.stderr.contains("\n  blame: guest\n  recoverable: "),
        "{ran:?}"
    );

    let ran = folder.refuse(&run("trap.hlo"), 1, "ABORTED", "");
    assert!(
        ran.stderr
            .contains("backtrace, innermost function first:\n    0: inner\n"),
        "{ran:?}"
    );

    let spin = [&run("spin.hlo")[..], &["--deadline", "100ms"]].concat();
    folder.refuse(&spin, 1, "DEADLINE_EXCEEDED", "");
    assert!(!folder.path("out").exists());
}

#[test]
fn limits_and_platforms_are_the_libraries() {
    let folder = folder();
    let run = [
        "run",
        "call.hlo",
        "--input",
        "0=x.npy",
        "--target",
        "do_custom_call=negate.wasm#negate",
    ];
    let small = [&run[..], &["--memory-limit", "1KiB"]].concat();
    folder.refuse(&small, 1, "RESOURCE_EXHAUSTED", "negate.wasm: ");
    folder.refuse(
        &[&run[..], &["--platform", "CUDA"]].concat(),
        2,
        "INVALID_ARGUMENT",
        "expected --platform Host with --target, found --platform CUDA",
    );
    folder.refuse(&run[..4], 1, "NOT_FOUND", "do_custom_call");
}

/// Each line of a guest's log message is marked, and none is on standard output.
#[test]
fn guests_log_to_standard_error() {
    let folder = folder();
    folder.write("shout.hlo", calling("shout"));
    let quiet = [
        "run",
        "shout.hlo",
        "--input",
        "0=x.npy",
        "--targets",
        ".",
        "--json",
    ];
    for more in [&[][..], &["--log", "error"]] {
        assert_eq!(folder.run(&[&quiet, more].concat()).stderr, "");
    }
    let ran = folder.run(&[&quiet[..], &["--log", "warn"]].concat());
    assert_eq!(ran.code, 0);
    assert_eq!(ran.object()["status"]["code"], "OK");
    assert_eq!(
        ran.stderr,
        "guest warn: loud\nguest warn: error: \u{fffd}[31mfake\n"
    );
}

#[test]
fn tuples_are_counted_through() {
    let folder = folder();
    let program = "HloModule m
ENTRY main {
  p = (f32[3], (s32[], f32[0,2])) parameter(0)
  t = token[] after-all()
  x = f32[3] get-tuple-element(p), index=0
  q = (s32[], f32[0,2]) get-tuple-element(p), index=1
  n = s32[] get-tuple-element(q), index=0
  ROOT r = (s32[], token[], (f32[3], f32[0,2])) tuple(n, t, s)
}
";
    let program = program.replace(
        "  ROOT",
        "  e = f32[0,2] get-tuple-element(q), index=1\n  s = (f32[3], f32[0,2]) tuple(x, e)\n  ROOT",
    );
    folder.write("tuple.hlo", program);
    folder
        .npy("n.npy", &[], &[7_i32])
        .npy::<f32>("e.npy", &[0, 2], &[]);
    let inputs = [
        "--input",
        "0.0=x.npy",
        "--input",
        "0.1.0=n.npy",
        "--input",
        "0.1.1=e.npy",
    ];
    let run = [&["run", "tuple.hlo", "--output-dir", "out"], &inputs[..]].concat();
    let shown = folder.run(&run).done();
    let expected = "result 0: s32[]\n  7\n  written to out/0.npy\nresult 1: token[]\n\
                    result 2: f32[3]{0}\n  1.0, 2.0, -3.5\n  min -3.5, max 2.0, mean -0.16666667\n  \
                    written to out/2.npy\nresult 3: f32[0,2]{1,0}\n  no elements\n  written to out/3.npy\n";
    assert_eq!(shown, expected);
    assert_eq!(folder.list("out"), ["0.npy", "2.npy", "3.npy"]);
    assert_eq!(folder.read_npy::<i32>("out/0.npy"), (vec![], vec![7]));
    assert_eq!(folder.read_npy::<f32>("out/3.npy"), (vec![0, 2], vec![]));
    let object = folder.run(&[&run[..], &["--json"]].concat()).object();
    assert_eq!(
        object["results"][1],
        serde_json::json!({"shape": "token[]", "file": null})
    );

    let missing = &run[..run.len() - 2];
    let message =
        "found no --input 0.1.1; it takes\n  0.0: f32[3]\n  0.1.0: s32[]\n  0.1.1: f32[0,2]";
    folder.refuse(missing, 1, "INVALID_ARGUMENT", message);
    let whole = ["run", "tuple.hlo", "--input", "0=x.npy"];
    folder.refuse(
        &whole,
        1,
        "INVALID_ARGUMENT",
        "found --input 0; it takes\n  0.0: f32[3]\n",
    );
}

/// Standard error has failures and logs only: progress is shown on terminals.
#[test]
fn a_pipe_stays_quiet() {
    let folder = folder();
    let program = "HloModule m
body {
  i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT next = s32[] add(i, one)
}
condition {
  i = s32[] parameter(0)
  end = s32[] constant(200000)
  ROOT less = pred[] compare(i, end), direction=LT
}
ENTRY main {
  zero = s32[] constant(0)
  ROOT end = s32[] while(zero), condition=condition, body=body
}
";
    folder.write("long.hlo", program);
    let shown = folder.run(&["run", "long.hlo"]).done();
    assert_eq!(shown, "result 0: s32[]\n  200000\n");
}

#[test]
fn a_module_in_place_of_a_program_points_to_call() {
    let folder = Folder::new();
    folder.module("m.wasm", NEGATE);
    let message = "m.wasm: expected HLO text, found a WebAssembly module: `callbox call`";
    folder.refuse(&["run", "m.wasm"], 1, "INVALID_ARGUMENT", message);
}

/// The results that a program does not read are scratch memory, and each is looked up among them.
#[test]
fn results_that_are_not_read_take_time_in_proportion() {
    const RESULTS: usize = 700_000;
    let module = r#"(module (memory (export "memory") 256)
        (func (export "f") (param i32) (result i32) i32.const 0))"#;
    let shape = format!("({})", vec!["f32[1]"; RESULTS].join(","));
    let last = RESULTS - 1;
    let program = format!(
        "HloModule m\nENTRY main {{\n  c = {shape} custom-call(), custom_call_target=\"f\", \
         api_version=API_VERSION_TYPED_FFI\n  \
         ROOT r = f32[1] get-tuple-element(c), index={last}\n}}\n"
    );
    let folder = Folder::new();
    folder.module("f.wasm", module).write("p.hlo", program);
    let ran = limited(&folder, 768, &["run", "p.hlo", "--target", "f=f.wasm"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}
