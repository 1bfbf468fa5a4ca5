//! `callbox run --record` and `--stats`.

use serde_json::{Value, json};

use crate::guests::{CALL, FAULTS, NEGATE, calling};
use crate::support::{Folder, Ran};

fn folder() -> Folder {
    let folder = Folder::new();
    folder
        .module("negate.wasm", NEGATE)
        .module("faults.wasm", FAULTS)
        .npy("x.npy", &[3], &[1.0_f32, 2.0, -3.5]);
    for target in ["trap", "spin", "fail"] {
        folder.write(&format!("{target}.hlo"), calling(target));
    }
    folder.write("negate.hlo", CALL.replace("do_custom_call", "negate"));
    folder
}

fn run(folder: &Folder, program: &str, flags: &[&str]) -> Ran {
    let words = ["run", program, "--targets", ".", "--input", "0=x.npy"];
    folder.run(&[&words[..], flags].concat())
}

/// Replays each capsule of `c` in an empty folder, and expects that it ends as recorded.
#[track_caller]
fn replay(folder: &Folder, count: usize) -> Vec<Value> {
    let names = folder.list("c");
    assert_eq!(names.len(), count, "{names:?}");
    let replays = names.iter().map(|name| {
        let elsewhere = Folder::new();
        elsewhere.write("r.capsule", folder.read(&format!("c/{name}")));
        let ran = elsewhere.run(&["replay", "r.capsule", "--json"]);
        let object = ran.object();
        ran.done();
        object["replay"].clone()
    });
    replays.collect()
}

#[test]
fn a_call_of_a_program_that_fails_is_recorded() {
    for (target, flags, code) in [
        ("trap", &["--deterministic"][..], "ABORTED"),
        ("spin", &["--deadline", "100ms"], "DEADLINE_EXCEEDED"),
        ("fail", &["--isolation", "fresh"], "INVALID_ARGUMENT"),
    ] {
        let folder = folder();
        let flags = [flags, &["--record", "c"]].concat();
        let ran = run(&folder, &format!("{target}.hlo"), &flags);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.starts_with("a capsule of "), "{ran:?}");
        let holds = format!(
            "holds the module faults.wasm, the operands (f32[3]) and the attributes {{}} of \
             `{target}`, the policy, and how the call ended: {code}\nerror: {code}: "
        );
        assert!(ran.stderr.contains(&holds), "{ran:?}");
        let replays = replay(&folder, 1);
        assert_eq!(replays[0]["reproduced"], true, "{replays:?}");
        assert_eq!(replays[0]["found"]["code"], code);
    }
}

#[test]
fn each_nth_call_of_a_program_is_recorded() {
    let folder = folder();
    run(&folder, "negate.hlo", &["--record", "c"]).done();
    assert!(folder.list("c").is_empty());
    let ran = run(
        &folder,
        "negate.hlo",
        &["--record", "c", "--record-every", "1"],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("how the call ended: OK\n"), "{ran:?}");
    let replays = replay(&folder, 1);
    assert_eq!(replays[0]["recorded"], Value::Null);
    let other = ["--record", "d", "--record-every", "2"];
    run(&folder, "negate.hlo", &other).done();
    assert!(folder.list("d").is_empty());
    let ran = run(&folder, "negate.hlo", &["--record-every", "2"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let ran = run(
        &folder,
        "negate.hlo",
        &["--record", "c", "--record-every", "0"],
    );
    assert_eq!(ran.code, 2, "{ran:?}");
}

/// The layouts and the scratch memory of a program's call sites.
#[test]
fn results_that_nobody_reads_and_layouts_are_repeated() {
    let folder = Folder::new();
    folder.module("w.wasm", crate::guests::WRITERS);
    folder.write(
        "p.hlo",
        "HloModule m\nENTRY e {\n  c = (f32[2,3]{0,1}, f32[4]) custom-call(), \
         custom_call_target=\"iota\", api_version=API_VERSION_TYPED_FFI, \
         operand_layout_constraints={}\n  \
         ROOT r = f32[2,3]{0,1} get-tuple-element(c), index=0\n}\n",
    );
    let words = ["run", "p.hlo", "--targets", ".", "--record", "c"];
    let ran = folder.run(&[&words[..], &["--record-every", "1"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let name = &folder.list("c")[0];
    let bytes = folder.read(&format!("c/{name}"));
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let result = file.tensor("result.0").unwrap();
    // Column by column in the guest, and row by row in the file.
    let expected: Vec<u8> = [0.0_f32, 2.0, 4.0, 1.0, 3.0, 5.0]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    assert_eq!(result.data(), expected);
    assert!(file.tensor("result.1").is_err());
    replay(&folder, 1);
}

#[test]
fn what_a_capsule_cannot_carry_is_told_and_the_program_goes_on() {
    let folder = folder();
    folder.write("p.json", r#"{"grants": {"clock": true}}"#);
    let flags = ["--record", "c", "--record-every", "1", "--policy", "p.json"];
    let ran = run(&folder, "negate.hlo", &flags);
    assert_eq!(ran.code, 0, "{ran:?}");
    let message = "is not recorded: UNIMPLEMENTED: a capsule cannot carry directories, clocks or";
    assert!(ran.stderr.contains(message), "{ran:?}");
    assert!(folder.list("c").is_empty());
    let words = ["run", "negate.hlo", "--targets", ".", "--input", "0=x.npy"];
    for (flags, message) in [
        (
            &["--record", "c", "--user-data", "a=x.npy"][..],
            "expected no --user-data with --record",
        ),
        (
            &["--record", "c", "--platform", "CUDA"],
            "--record is for calls on Host alone",
        ),
    ] {
        let run = [&words[..], flags].concat();
        folder.refuse(&run, 2, "UNIMPLEMENTED", message);
    }
    let shadow = [&words[..], &["--shadow", "0.5"]].concat();
    let message = "expected --platform CUDA with --shadow, found --platform Host";
    folder.refuse(&shadow, 2, "INVALID_ARGUMENT", message);
}

#[test]
fn calls_are_counted() {
    let folder = folder();
    run(&folder, "negate.hlo", &["--stats", "s.json"]).done();
    let mut counted: Value = serde_json::from_slice(&folder.read("s.json")).unwrap();
    let seconds = counted[0]["seconds"].take();
    assert!(seconds.as_f64().unwrap() > 0.0, "{seconds}");
    let sha256 = counted[0]["sha256"].take();
    assert_eq!(sha256.as_str().unwrap().len(), 64);
    let expected = json!([{"module": "negate.wasm", "sha256": null, "target": "negate",
        "platform": "Host", "calls": 1, "seconds": null, "bytes_in": 12, "bytes_out": 12,
        "failures": {}}]);
    assert_eq!(counted, expected);

    let ran = run(&folder, "fail.hlo", &["--stats", "s.prom"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let text = String::from_utf8(folder.read("s.prom")).unwrap();
    let labels = format!(
        "module=\"faults.wasm\",sha256=\"{}\",target=\"fail\",platform=\"Host\"",
        text.split("sha256=\"").nth(1).unwrap().get(..64).unwrap()
    );
    for line in [
        "# TYPE callbox_calls_total counter".to_owned(),
        format!("callbox_calls_total{{{labels}}} 1"),
        format!("callbox_operand_bytes_total{{{labels}}} 12"),
        format!("callbox_result_bytes_total{{{labels}}} 0"),
        format!("callbox_failures_total{{{labels},code=\"INVALID_ARGUMENT\"}} 1"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }

    let call = [
        "call",
        "negate.wasm",
        "negate",
        "--operand",
        "x.npy",
        "--result",
        "f32[3]",
    ];
    folder
        .run(&[&call[..], &["--stats", "c.json"]].concat())
        .done();
    let counted: Value = serde_json::from_slice(&folder.read("c.json")).unwrap();
    assert_eq!(counted[0]["calls"], 1);

    let ran = run(&folder, "negate.hlo", &["--stats", "s.txt"]);
    assert!(
        ran.stderr.contains("expected FILE.json or FILE.prom"),
        "{ran:?}"
    );
    assert_eq!(ran.code, 2);
    let ran = run(&folder, "negate.hlo", &["--stats", "no/s.json"]);
    assert!(
        ran.stderr.contains("expected to write no/s.json"),
        "{ran:?}"
    );
    assert_eq!(ran.code, 2);
}
