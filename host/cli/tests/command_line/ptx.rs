//! `callbox ptx`, and `callbox inspect` on PTX.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Folder, Ran, text};

const SOFTMAX: &str = "guests/triton/softmax/softmax.ptx";
const SHAPES: &str = "(f32[4,1000]) -> f32[4,1000]";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Runs `callbox ptx` with this file of the repository.
fn ptx(folder: &Folder, file: &str, flags: &[&str]) -> Ran {
    let file = repository(file);
    folder.run(&[&["ptx", text(&file)], flags].concat())
}

/// The report on a file beside its manifest `callbox.json`.
fn with_manifest(folder: &Folder, file: &str, flags: &[&str]) -> Ran {
    let manifest = repository(file).with_file_name("callbox.json");
    let manifest = ["--manifest", text(&manifest), "--json"];
    ptx(folder, file, &[&manifest, flags].concat())
}

/// Expects a failure whose message has this part. Returns the report.
#[track_caller]
fn refused(ran: &Ran, code: i32, status: &str, part: &str) -> Value {
    let object = ran.object();
    assert_eq!(
        (ran.code, &object["status"]["code"]),
        (code, &json!(status)),
        "{ran:?}"
    );
    let message = object["status"]["message"].as_str().unwrap();
    assert!(message.contains(part), "expected {part:?} in {message:?}");
    assert!(ran.stderr.starts_with("error: "), "{ran:?}");
    object["ptx"].clone()
}

#[test]
fn a_kernel_passes_for_every_launch() {
    let folder = Folder::new();
    let ran = ptx(&folder, SOFTMAX, &["--json"]);
    let object = ran.object();
    ran.done();
    let keys: Vec<_> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["status", "ptx"]);
    assert_eq!(object["status"]["code"], "OK");
    let report = &object["ptx"];
    assert_eq!(
        (&report["grade"], &report["problem"]),
        (&json!("fenced"), &Value::Null)
    );
    assert_eq!(report["architecture"], "sm_80");
    let kernel = &report["kernels"][0];
    assert_eq!(
        (&kernel["name"], &kernel["target"]),
        (&json!("softmax"), &Value::Null)
    );
    // Triton requires the size of a block; nothing else is known.
    let launch = json!({"grid": null, "block": [128, 1, 1], "shared_bytes": null});
    assert_eq!(kernel["launch"], launch);
    let parameters = &kernel["parameters"];
    let parameter = |is_buffer, bytes, reads, writes| json!({"name": null, "bytes": bytes, "is_buffer": is_buffer, "reads": reads, "writes": writes});
    assert_eq!(parameters[0], parameter(true, 8, true, false));
    assert_eq!(parameters[1], parameter(true, 8, false, true));
    assert_eq!(parameters[2], parameter(false, 4, false, false));
    // The lengths of the arrays are not known.
    assert_eq!(kernel["accesses"]["proved"], 0);
    let checked = kernel["not_proved"].as_array().unwrap();
    assert_eq!(kernel["accesses"]["checked"], checked.len());
    assert!(
        checked
            .iter()
            .any(|one| one["space"] == "global" && one["parameter"] == 0)
    );
    assert_eq!(kernel["fenced_instructions"], Value::Null);
    assert_eq!(
        (&kernel["refusals"], &kernel["calls"], &kernel["clocks"]),
        (&json!([]), &json!([]), &json!([]))
    );
}

/// Without a manifest, buffers are the parameters that addresses are computed from.
#[test]
fn numbers_of_8_bytes_are_not_buffers() {
    let folder = Folder::new();
    let object = ptx(&folder, "guests/add_n/add_n.ptx", &["--json"]).object();
    let parameters = object["ptx"]["kernels"][0]["parameters"]
        .as_array()
        .unwrap();
    let found: Vec<_> = parameters
        .iter()
        .map(|one| {
            (
                one["is_buffer"].as_bool().unwrap(),
                one["bytes"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(found, [(true, 8), (true, 8), (false, 8), (false, 4)]);
}

#[test]
fn shapes_prove_accesses_and_the_fence_is_written() {
    let folder = Folder::new();
    let unknown = with_manifest(&folder, SOFTMAX, &[]).object();
    assert_eq!(
        unknown["ptx"]["kernels"][0]["parameters"][0]["name"],
        "operand 0"
    );
    let ran = with_manifest(
        &folder,
        SOFTMAX,
        &["--shapes", SHAPES, "--emit", "fenced.ptx"],
    );
    let object = ran.object();
    ran.done();
    let kernel = &object["ptx"]["kernels"][0];
    assert_eq!(kernel["target"], "softmax");
    let launch = json!({"grid": [4, 1, 1], "block": [128, 1, 1], "shared_bytes": 16});
    assert_eq!(kernel["launch"], launch);
    assert_eq!(
        (&kernel["accesses"]["checked"], &kernel["not_proved"]),
        (&json!(0), &json!([]))
    );
    let count = |key: &str| kernel[key].as_u64().unwrap();
    assert!(count("fenced_instructions") >= count("instructions"));
    let written = std::fs::read_to_string(folder.path("fenced.ptx")).unwrap();
    assert!(written.starts_with(".version "), "{written}");
    // It is PTX with one more parameter, the record.
    let again = folder.run(&["inspect", "fenced.ptx", "--json"]).object();
    let parameters = again["ptx"]["kernels"][0]["parameters"].as_array().unwrap();
    assert_eq!(
        parameters.len(),
        kernel["parameters"].as_array().unwrap().len() + 1
    );
}

#[test]
fn a_person_reads_what_a_kernel_does() {
    let folder = Folder::new();
    let manifest = repository("guests/triton/softmax");
    let flags = ["--manifest", text(&manifest), "--shapes", SHAPES];
    let shown = ptx(&folder, SOFTMAX, &flags).done();
    for line in [
        "  grade     fenced: needs no grant\n",
        "  target    sm_80\n",
        "kernel softmax of target softmax, line ",
        "  launch    grid 4 x 1 x 1, block 128 x 1 x 1, 16 bytes of dynamic shared memory\n",
        "  param 0   operand 0: read\n",
        "  param 1   result 0: written\n",
        "  param 2   a number of 4 bytes\n",
        " proved, 0 checked\n",
        "  loops     none\n",
        "  shared    16 bytes\n",
        " with the fence\n",
    ] {
        assert!(shown.contains(line), "expected {line:?} in {shown}");
    }
}

#[test]
fn a_refusal_says_where_why_and_what_would_pass() {
    let folder = Folder::new();
    let file = "tests/ptx/hostile_softmax/softmax.ptx";
    let ran = ptx(&folder, file, &["--json"]);
    let place = "softmax.ptx:51: kernel `softmax_on_the_heap`: `call.uni`: it calls `malloc` (rule `call`): inline";
    let report = refused(&ran, 1, "PERMISSION_DENIED", place);
    assert_eq!(report["grade"], "refused");
    let grades = report["kernels"].as_array().unwrap().iter();
    let grades: Vec<_> = grades
        .map(|kernel| kernel["grade"].as_str().unwrap())
        .collect();
    assert_eq!(grades, ["fenced", "fenced", "fenced", "refused"]);
    let looks = &report["kernels"][1]["loops"][0];
    assert_eq!(
        (&looks["line"], &looks["turns"]),
        (&json!(27), &Value::Null)
    );
    assert!(looks["stop_word_every"].as_u64().unwrap() >= 1);
    let kernel = &report["kernels"][3];
    assert_eq!(kernel["calls"], json!([{"line": 51, "function": "malloc"}]));
    assert_eq!(kernel["accesses"], Value::Null);
    let refusal = &kernel["refusals"][0];
    assert_eq!(
        (&refusal["line"], &refusal["rule"]),
        (&json!(51), &json!("call"))
    );
    assert!(refusal["cure"].as_str().unwrap().contains("inline"));

    let shown = ptx(&folder, file, &[]);
    assert_eq!(shown.code, 1);
    let lines = "  line 51: `call.uni`: it calls `malloc` (rule `call`)\n    to pass: inline";
    assert!(shown.stdout.contains(lines), "{shown:?}");
    // A kernel of the file for itself passes. Its manifest says that it must not write operand 0.
    ptx(&folder, file, &["--entry", "softmax_in_place"]).done();
    let shapes = [
        "--shapes",
        "(f32[2,3]) -> f32[2,3]",
        "--target",
        "softmax_in_place",
    ];
    let ran = with_manifest(&folder, file, &shapes);
    let kernel = &ran.object()["ptx"]["kernels"][0];
    let accesses = json!({"proved": 0, "checked": 0, "never": 1});
    assert_eq!((ran.code, &kernel["accesses"]), (0, &accesses), "{ran:?}");
    assert_eq!(kernel["not_proved"][0]["verdict"], "never");
}

/// Threads leave the loops of this kernel at different times, and meet at a barrier. It passes if
/// the lengths of the loops are known.
#[test]
fn what_depends_on_the_launch_is_said() {
    let folder = Folder::new();
    let file = "guests/softmax/softmax.ptx";
    let ran = ptx(&folder, file, &["--json"]);
    let part = "or give its launch with --manifest and --shapes";
    let report = refused(&ran, 1, "FAILED_PRECONDITION", part);
    assert_eq!(
        (&report["grade"], &report["kernels"][0]["grade"]),
        (&json!("depends"), &json!("depends"))
    );
    let ran = with_manifest(&folder, file, &["--shapes", "(f64[3,300]) -> f64[3,300]"]);
    let object = ran.object();
    ran.done();
    assert_eq!(object["ptx"]["grade"], "fenced");
    // The other kernel is for another element type.
    assert_eq!(object["ptx"]["kernels"].as_array().unwrap().len(), 1);
    assert_eq!(object["ptx"]["kernels"][0]["name"], "softmax_f64");
}

#[test]
fn what_is_no_ptx_is_refused() {
    let folder = Folder::new();
    folder
        .write("bytes.ptx", b".version 8.0\n.target \xff")
        .write("wrong.ptx", ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n  frobnicate;\n}\n")
        .write("none.ptx", ".version 8.0\n.target sm_80\n.address_size 64\n")
        .write("small.json", r#"{"gpu": {"ptx_bytes": 8}}"#)
        .write("folder.ptx/x", "");
    for (file, place, part) in [
        ("bytes.ptx", (2, 9), "bytes.ptx:2:9: expected UTF-8"),
        ("wrong.ptx", (5, 3), "wrong.ptx:5:3: `frobnicate`: "),
    ] {
        let report = refused(
            &folder.run(&["ptx", file, "--json"]),
            1,
            "PERMISSION_DENIED",
            part,
        );
        let problem = &report["problem"];
        assert_eq!(
            (&problem["line"], &problem["column"]),
            (&json!(place.0), &json!(place.1))
        );
        assert_eq!(
            (&report["grade"], &report["kernels"]),
            (&json!("refused"), &json!([]))
        );
    }
    for (words, code, status, part) in [
        (
            &["none.ptx"][..],
            2,
            "INVALID_ARGUMENT",
            "expected kernels, found none",
        ),
        (
            &["missing.ptx"],
            2,
            "NOT_FOUND",
            "expected to read missing.ptx: ",
        ),
        (
            &["folder.ptx"],
            2,
            "INVALID_ARGUMENT",
            "expected to read folder.ptx: ",
        ),
        (
            &["wrong.ptx", "--policy", "small.json"],
            1,
            "RESOURCE_EXHAUSTED",
            "expected a file of at most 8 bytes, found more",
        ),
    ] {
        let ran = folder.run(&[&["ptx", "--json"], words].concat());
        assert_eq!(refused(&ran, code, status, part), Value::Null);
    }
}

#[test]
fn wrong_manifests_and_shapes_are_refused() {
    let folder = Folder::new();
    let (softmax, add) = (
        repository("guests/triton/softmax"),
        repository("guests/triton/add"),
    );
    let hostile = repository("tests/ptx/hostile_softmax");
    let (softmax, add, hostile) = (text(&softmax), text(&add), text(&hostile));
    let both = format!("{hostile}/softmax.ptx");
    let ptx = format!("{softmax}/softmax.ptx");
    let ptx = ptx.as_str();
    let shapes = ["--manifest", softmax, "--shapes"];
    for (words, code, status, part) in [
        (
            &[ptx, "--manifest", add][..],
            2,
            "INVALID_ARGUMENT",
            "expected a manifest with the image ",
        ),
        (
            &[ptx, "--manifest", "none.json"],
            2,
            "NOT_FOUND",
            "expected to read none.json: ",
        ),
        (
            &[ptx, "--manifest", softmax, "--target", "soft"],
            2,
            "INVALID_ARGUMENT",
            "found softmax",
        ),
        (
            &[ptx, "--entry", "soft"],
            2,
            "INVALID_ARGUMENT",
            "expected a kernel `soft`, found none",
        ),
        (
            &[ptx, "--shapes", SHAPES],
            2,
            "INVALID_ARGUMENT",
            "--manifest",
        ),
        (
            &[ptx, "--manifest", softmax, "--emit", "f.ptx"],
            2,
            "INVALID_ARGUMENT",
            "--shapes",
        ),
        (
            &[&[ptx], &shapes[..], &["f32[4]"]].concat(),
            2,
            "INVALID_ARGUMENT",
            "found no `->`",
        ),
        (
            &[&[ptx], &shapes[..], &["(f32[4) -> f32[4]"]].concat(),
            2,
            "INVALID_ARGUMENT",
            "f32[4",
        ),
        (
            &[&[ptx], &shapes[..], &["(f32[]) -> f32[]"]].concat(),
            1,
            "INVALID_ARGUMENT",
            "softmax: ",
        ),
        (
            &[&[ptx], &shapes[..], &["(f32[2,2000]) -> f32[2,2000]"]].concat(),
            1,
            "INVALID_ARGUMENT",
            "the kernel takes at most 1024",
        ),
        (
            &[&[ptx], &shapes[..], &[SHAPES, "--emit", "none/f.ptx"]].concat(),
            2,
            "NOT_FOUND",
            "expected to write none/f.ptx: ",
        ),
        (
            &[
                &both,
                "--manifest",
                hostile,
                "--shapes",
                "(f32[2,3]) -> f32[2,3]",
            ],
            2,
            "INVALID_ARGUMENT",
            "name one with --target",
        ),
    ] {
        let ran = folder.run(&[&["ptx", "--json"], words].concat());
        assert_eq!(refused(&ran, code, status, part), Value::Null, "{words:?}");
    }
    assert_eq!(folder.list("."), Vec::<String>::new());
}

#[test]
fn inspect_tells_the_grades() {
    let folder = Folder::new();
    let file = repository(SOFTMAX);
    let object = folder.run(&["inspect", text(&file), "--json"]).object();
    let keys: Vec<_> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["status", "ptx"]);
    let report = ptx(&folder, SOFTMAX, &["--json"]).object();
    assert_eq!(object["ptx"], report["ptx"]);
    for (manifest, grade, shown) in [
        (
            "guests/triton/attention",
            "fenced",
            "fenced: needs no grant",
        ),
        (
            "guests/softmax",
            "depends",
            "fenced, if the shapes of a call let its kernels pass",
        ),
        (
            "tests/ptx/hostile_softmax",
            "granted",
            "granted: needs the grant",
        ),
    ] {
        let folder_of = repository(manifest);
        let ran = folder.run(&["inspect", text(&folder_of), "--json"]);
        let object = ran.object();
        ran.done();
        let manifest = &object["manifest"];
        assert_eq!(manifest["grade"], grade);
        let kernels = manifest["images"][0]["ptx"]["kernels"].as_array().unwrap();
        assert!(!kernels.is_empty());
        assert_eq!(kernels[0]["parameters"][0]["name"], "operand 0");
        let text_of = folder.run(&["inspect", text(&folder_of)]).done();
        assert!(
            text_of.contains(&format!("  grade     {shown}\n")),
            "{text_of}"
        );
        assert!(text_of.contains("  kernels   "), "{text_of}");
    }
    // Refused PTX is described, too.
    let hostile = repository("tests/ptx/hostile_softmax/softmax.ptx");
    let shown = folder.run(&["inspect", text(&hostile)]).done();
    assert!(
        shown.contains("kernel softmax_on_the_heap, line 43: refused"),
        "{shown}"
    );
}

/// Many launches of one kernel have its lists over and over: 300 times 1,000 stores are 300,000
/// entries, of which the report has 100,000.
#[test]
fn reports_on_many_launches_of_one_kernel_are_limited() {
    let folder = Folder::new();
    let stores = "st.global.u32 [%y], 7;\n".repeat(1000);
    let target = |number: usize| {
        json!({
            "name": format!("t{number}"),
            "operands": [],
            "results": [{"name": "y", "element_types": ["f32"], "dimensions": ["n"]}],
            "attributes": [],
            "launches": [{"image": "k", "entry": "k", "parameters": [{"result": 0}],
                          "grid": ["4"], "block": ["32"]}],
        })
    };
    let manifest = json!({
        "format": 1,
        "images": [{"name": "k", "file": "k.ptx"}],
        "targets": (0..300).map(target).collect::<Vec<_>>(),
    });
    folder
        .write(
            "k.ptx",
            format!(
                ".version 8.0\n.target sm_80\n.address_size 64\n\
                 .visible .entry k(.param .u64 x) {{ .reg .b64 %x, %y;\n\
                 ld.param.u64 %x, [x]; ld.global.u64 %y, [%x];\n{stores}ret; }}"
            ),
        )
        .write("callbox.json", manifest.to_string());
    let ran = folder.run(&["ptx", "k.ptx", "--manifest", "callbox.json", "--json"]);
    let object = ran.object();
    let kernels = object["ptx"]["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 300);
    let mut listed = 0;
    for kernel in kernels {
        let not_proved = kernel["not_proved"].as_array().unwrap().len() as u64;
        let left_out = kernel
            .get("left_out")
            .map_or(0, |number| number.as_u64().unwrap());
        let of = |name: &str| kernel["accesses"][name].as_u64().unwrap();
        assert!(not_proved + left_out >= of("checked") + of("never"));
        listed += not_proved;
    }
    assert!(kernels[0].get("left_out").is_none());
    assert!(kernels[299]["left_out"].as_u64().unwrap() >= 1000);
    assert!((99_000..=100_000).contains(&listed), "{listed}");
}
