//! `callbox run` with kernels that are not granted, on the stand-in driver, which is not a GPU.

use std::path::{Path, PathBuf};

use crate::support::{Folder, Ran};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with `libcuda.so`, which is the stand-in, and an array of two rows.
fn folder() -> Folder {
    let folder = Folder::new();
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libcallbox_cuda_stand_in.so");
    assert!(library.is_file(), "expected {}", library.display());
    for name in ["libcuda.so", "libcuda.so.1"] {
        folder.write(&format!("driver/{name}"), std::fs::read(&library).unwrap());
    }
    folder.npy("x.npy", &[2, 3], &ROWS);
    folder
}

const ROWS: [f32; 6] = [1.0, 2.0, 3.0, 0.0, 0.0, 0.0];

/// Runs a program of one call, of a target in this folder of the repository, without a grant.
fn run(folder: &Folder, native: &str, target: &str, flags: &[&str]) -> Ran {
    let program = format!(
        "HloModule m\nENTRY e {{\n  x = f32[2,3] parameter(0)\n  ROOT y = f32[2,3] custom-call(x), custom_call_target=\"{target}\", api_version=API_VERSION_TYPED_FFI\n}}\n"
    );
    folder.write("p.hlo", program);
    let native = repository().join(native);
    let words = [
        "run",
        "p.hlo",
        "--platform",
        "CUDA",
        "--native",
        native.to_str().unwrap(),
        "--input",
        "0=x.npy",
    ];
    let mut command = folder.command(&[&words, flags].concat());
    command.env("LD_LIBRARY_PATH", folder.path("driver"));
    Ran::new(&command.output().unwrap())
}

#[test]
fn a_kernel_of_triton_needs_no_grant() {
    let folder = folder();
    let ran = run(
        &folder,
        "guests/triton/softmax",
        "softmax",
        &["--output-dir", "out"],
    );
    ran.done();
    let (shape, found) = folder.read_npy::<f32>("out/0.npy");
    assert_eq!(shape, [2, 3]);
    for (row, found) in std::iter::zip(ROWS.chunks(3), found.chunks(3)) {
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        for (&x, &found) in std::iter::zip(row, found) {
            let expected = f64::from(x).exp() / sum;
            assert!(
                (f64::from(found) - expected).abs() < 1e-6,
                "{found}, not {expected}"
            );
        }
    }
}

#[test]
fn its_hostile_twin_gets_statuses() {
    let folder = folder();
    folder.write("policy.json", r#"{"gpu": {"deadline_ms": 200}}"#);
    for (target, code, blame, says) in [
        (
            "softmax_and_more",
            "OUT_OF_RANGE",
            "guest",
            "softmax.ptx:15: kernel `softmax_and_more`: a load of 4 bytes at offset 65536 of operand 0, which has 24 bytes, is out of range, in thread (",
        ),
        (
            "softmax_for_ever",
            "DEADLINE_EXCEEDED",
            "guest",
            "kernel `softmax_for_ever`: it ran past its deadline, in thread (",
        ),
        (
            "softmax_in_place",
            "OUT_OF_RANGE",
            "guest",
            "kernel `softmax_in_place`: a store of 4 bytes to operand 0, which it may only read, in thread (",
        ),
        (
            "softmax_on_the_heap",
            "PERMISSION_DENIED",
            "guest",
            "kernel `softmax_on_the_heap`: line 51: `call.uni`: it calls `malloc` (rule `call`)",
        ),
    ] {
        let flags = ["--policy", "policy.json", "--json"];
        let ran = run(&folder, "tests/ptx/hostile_softmax", target, &flags);
        let object = ran.object();
        let status = &object["status"];
        assert_eq!(
            (&status["code"], &status["blame"]),
            (&code.into(), &blame.into()),
            "{ran:?}"
        );
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(says), "expected {says:?} in {message:?}");
        assert_eq!((ran.code, &object["results"]), (1, &serde_json::json!([])));
    }
}

#[test]
fn a_policy_can_forbid_it() {
    let folder = folder();
    folder.write("policy.json", r#"{"gpu": {"fenced": false}}"#);
    let flags = ["--policy", "policy.json", "--json"];
    let ran = run(&folder, "guests/triton/softmax", "softmax", &flags);
    assert_eq!(
        ran.object()["status"]["code"],
        "PERMISSION_DENIED",
        "{ran:?}"
    );
}
