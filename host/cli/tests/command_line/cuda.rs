//! The platform CUDA: grants, refusals, and messages without a device.

use std::process::Command;

use crate::guests::{ADD, NEGATE, calling};
use crate::manifests::{DIGEST, LIBRARY_SHA256, folder as with_manifest};
use crate::support::{Folder, Ran};

const RUN: [&str; 6] = ["run", "p.hlo", "--input", "0=x.npy", "--platform", "CUDA"];

/// A call of a target in this file.
fn call<'w>(file: &'w str, target: &'w str) -> [&'w str; 7] {
    [
        "call",
        file,
        target,
        "--platform",
        "CUDA",
        "--operand",
        "x.npy",
    ]
}

fn folder() -> Folder {
    let folder = with_manifest();
    folder
        .write("p.hlo", calling("negate"))
        .npy("x.npy", &[3], &[1.0_f32, 0.0, -2.5])
        .module("k/negate.wasm", NEGATE);
    folder
}

/// Runs with `--json`, in an environment in which a driver, if installed, shows no device.
fn without_device(folder: &Folder, arguments: &[&str]) -> Ran {
    let mut command: Command = folder.command(arguments);
    command.arg("--json").env("CUDA_VISIBLE_DEVICES", "-1");
    Ran::new(&command.output().unwrap())
}

#[test]
fn native_code_takes_a_grant_of_its_digest() {
    let folder = folder();
    let other = "0".repeat(64);
    for (arguments, digest) in [
        (&[&RUN[..], &["--targets", "k"]].concat()[..], DIGEST),
        (&[&RUN[..], &["--native", "k"]].concat(), DIGEST),
        (
            &[&RUN[..], &["--native", "k/callbox.json"]].concat(),
            DIGEST,
        ),
        (
            &[&RUN[..], &["--native", "k", "--allow-native", &other]].concat(),
            DIGEST,
        ),
        (
            &[
                &RUN[..],
                &["--native", "libk.so:negate", "--allow-native", DIGEST],
            ]
            .concat(),
            LIBRARY_SHA256,
        ),
        (&call("k", "negate"), DIGEST),
        (&call("libk.so", "negate@original@preorder"), LIBRARY_SHA256),
    ] {
        let ran = without_device(&folder, arguments);
        let object = ran.object();
        assert_eq!(ran.code, 1, "{ran:?}");
        assert_eq!(object["status"]["code"], "PERMISSION_DENIED", "{ran:?}");
        let message = object["status"]["message"].as_str().unwrap();
        let flag = format!("--allow-native {digest}");
        assert!(message.contains(&flag), "expected {flag:?} in {message:?}");
    }
}

#[test]
fn without_a_device_it_is_unavailable() {
    let folder = folder();
    let granted = ["--allow-native", DIGEST];
    for arguments in [
        &[&RUN[..], &["--targets", "k"], &granted[..]].concat()[..],
        &[&RUN[..], &["--native", "k", "--device", "1"], &granted[..]].concat(),
        &[
            &call("k", "negate")[..],
            &granted[..],
            &["--result", "f32[3]"],
        ]
        .concat(),
    ] {
        let ran = without_device(&folder, arguments);
        let object = ran.object();
        assert_eq!(ran.code, 1, "{ran:?}");
        assert_eq!(object["status"]["code"], "UNAVAILABLE", "{ran:?}");
        assert_eq!(object["status"]["blame"], "host");
        assert_eq!(object["results"], serde_json::json!([]));
        let start = "error: UNAVAILABLE: CUDA is unavailable: expected ";
        assert!(ran.stderr.starts_with(start), "{ran:?}");
    }
}

/// A folder with a module and a manifest serves both platforms: the commands differ in the
/// platform's name only.
#[test]
fn the_same_command_line_runs_on_the_host() {
    let folder = folder();
    let arguments = [&RUN[..], &["--targets", "k", "--allow-native", DIGEST]].concat();
    let on_host = arguments
        .iter()
        .map(|word| if *word == "CUDA" { "Host" } else { word });
    let on_host: Vec<_> = on_host.chain(["--output-dir", "out"]).collect();
    folder.run(&on_host).done();
    let negated = (vec![3], vec![-1.0_f32, 0.0, 2.5]);
    assert_eq!(folder.read_npy::<f32>("out/0.npy"), negated);
    let ran = without_device(&folder, &arguments);
    assert_eq!(ran.object()["status"]["code"], "UNAVAILABLE", "{ran:?}");
}

#[test]
fn flags_of_the_other_platform_are_wrong_usage() {
    let folder = folder();
    for flags in [
        &["--memory-limit", "1GiB"][..],
        &["--log", "info"],
        &["--isolation", "fresh"],
        &["--traps", "explicit"],
        &["--deterministic"],
        &["--check-pure"],
        &["--isolate", "wasm"],
        &["--cache-dir", "cache"],
        &["--target", "negate=k/negate.wasm"],
    ] {
        let message = format!(
            "expected --platform Host with {}, found --platform CUDA",
            flags[0]
        );
        folder.refuse(&[&RUN[..], flags].concat(), 2, "INVALID_ARGUMENT", &message);
    }
    folder.refuse(
        &[&call("k", "negate")[..], &["--deterministic"]].concat(),
        2,
        "INVALID_ARGUMENT",
        "expected --platform Host with --deterministic",
    );
    for flags in [&["--native", "k"][..], &["--device", "0"]] {
        let message = format!(
            "expected --platform CUDA with {}, found --platform Host",
            flags[0]
        );
        folder.refuse(
            &[&RUN[..4], flags].concat(),
            2,
            "INVALID_ARGUMENT",
            &message,
        );
    }
    assert_eq!(folder.list("cache"), [""; 0]);
}

#[test]
fn what_names_no_native_code_is_wrong_usage() {
    let folder = folder();
    for (flags, status, message) in [
        (
            &["--native", "libk.so"][..],
            "INVALID_ARGUMENT",
            "expected a manifest callbox.json, its folder, or FILE.so:NAME[@CONVENTION][,...]",
        ),
        (
            &["--native", "libk.so:f@typed"],
            "INVALID_ARGUMENT",
            "expected NAME[@original|@status][@leaves|@preorder] of a function, found \"f@typed\"",
        ),
        (
            &["--allow-native", "1acb"],
            "INVALID_ARGUMENT",
            "expected a SHA-256 digest as 64 hexadecimal digits, found \"1acb\"",
        ),
        (&["--device", "first"], "INVALID_ARGUMENT", "'--device <N>'"),
        (
            &["--native", "none"],
            "NOT_FOUND",
            "expected to read none: ",
        ),
        (
            &["--native", "none.so:f"],
            "NOT_FOUND",
            "expected to read none.so: ",
        ),
        (
            &["--targets", "."],
            "NOT_FOUND",
            "expected to read ./callbox.json: ",
        ),
    ] {
        folder.refuse(&[&RUN[..], flags].concat(), 2, status, message);
    }
    folder.refuse(
        &call("libk.so", "f@typed"),
        2,
        "INVALID_ARGUMENT",
        "found \"f@typed\"",
    );
}

#[test]
fn files_that_are_wrong_are_no_wrong_usage() {
    let folder = folder();
    folder.write("wrong.json", "{\"format\": 2}");
    let library = ["--native", "libk.so:f", "--allow-native", LIBRARY_SHA256];
    for (flags, message) in [
        (
            &["--native", "wrong.json"][..],
            "wrong.json: line 1: format: expected the format 1, found 2",
        ),
        (
            &library,
            "libk.so: expected a shared library of this machine",
        ),
    ] {
        folder.refuse(&[&RUN[..], flags].concat(), 1, "INVALID_ARGUMENT", message);
    }
}

/// `callbox.graph.launch` needs no argument, and no module can have a target of that name.
#[test]
fn graphs_are_calls_on_the_host() {
    let folder = Folder::new();
    folder
        .write("p.hlo", GRAPH)
        .write("add.hlo", ADD)
        .npy("x.npy", &[3], &[1.0_f32, 0.0, -2.5])
        .npy("y.npy", &[3], &[0.5_f32, 4.0, 2.5]);
    let inputs = ["--input", "0=x.npy", "--input", "1=y.npy"];
    for program in ["p.hlo", "add.hlo"] {
        folder
            .run(&[&["run", program, "--output-dir", "out"], &inputs[..]].concat())
            .done();
        let sum = (vec![3], vec![1.5_f32, 4.0, 0.0]);
        assert_eq!(folder.read_npy::<f32>("out/0.npy"), sum);
        std::fs::remove_dir_all(folder.path("out")).unwrap();
    }
    folder.module(
        "own.wasm",
        &NEGATE.replace("\"negate\"", "\"callbox.graph.launch\""),
    );
    folder.refuse(
        &[
            &["run", "p.hlo", "--target", "callbox.graph.launch=own.wasm"],
            &inputs[..],
        ]
        .concat(),
        1,
        "ALREADY_EXISTS",
        "two modules have the target \"callbox.graph.launch\": callbox itself and own.wasm",
    );
}

/// The sum, computed by a function of the program.
const GRAPH: &str = "HloModule m
sum {
  a = f32[3] parameter(0)
  b = f32[3] parameter(1)
  ROOT r = f32[3] add(a, b)
}
ENTRY main {
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  ROOT z = f32[3] custom-call(x, y), custom_call_target=\"callbox.graph.launch\", api_version=API_VERSION_TYPED_FFI, backend_config={capture = @sum}
}
";
