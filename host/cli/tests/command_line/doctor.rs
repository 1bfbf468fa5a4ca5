//! `callbox doctor`: its reports on machines with and without tools.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Folder, Ran};

const FINDING: [&str; 5] = ["found", "version", "path", "problem", "remedy"];

/// The command in an environment without a device and NVRTC. `PATH` is this folder's `bin` alone.
fn doctor(folder: &Folder, arguments: &[&str]) -> Ran {
    let mut command: Command = folder.command(&["doctor"]);
    command
        .args(arguments)
        .env("CUDA_VISIBLE_DEVICES", "-1")
        .env("CALLBOX_NVRTC", folder.path("none"))
        .env("CALLBOX_PTXAS", folder.path("none"))
        .env("PATH", folder.path("bin"));
    Ran::new(&command.output().unwrap())
}

#[test]
fn what_is_missing_is_said_with_what_gets_it() {
    let folder = Folder::new();
    let ran = doctor(&folder, &["--json"]);
    let object = ran.object();
    ran.done();
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&object), ["status", "doctor"]);
    assert_eq!(object["status"]["code"], "OK");
    let report = &object["doctor"];
    let things = [
        "driver", "nvrtc", "ptxas", "rust", "clang", "wasm_ld", "jax",
    ];
    assert_eq!(
        keys(report),
        [
            "version", "host", "compiler", "driver", "devices", "nvrtc", "ptxas", "rust", "clang",
            "wasm_ld", "jax"
        ]
    );
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        report["host"],
        json!({"allocation": "pooled", "problem": null})
    );
    let compiler = &report["compiler"];
    assert_eq!(keys(compiler), FINDING);
    assert_eq!(compiler["found"], cfg!(target_os = "linux"), "{compiler}");
    assert_eq!(report["devices"], json!([]));
    for (thing, problem, remedy) in [
        ("driver", "CUDA is unavailable: expected ", "nvidia-driver"),
        (
            "nvrtc",
            "no NVRTC library was found",
            "pip install nvidia-cuda-nvrtc",
        ),
        (
            "ptxas",
            "no ptxas was found",
            "pip install nvidia-cuda-nvcc",
        ),
        (
            "rust",
            "rustc is not on PATH",
            "rustup target add wasm32-unknown-unknown",
        ),
        (
            "clang",
            "clang is not on PATH",
            "apt install clang-19 lld-19",
        ),
        (
            "wasm_ld",
            "wasm-ld is not on PATH",
            "apt install clang-19 lld-19",
        ),
        ("jax", "python3 is not on PATH", "pip install jax"),
    ] {
        let finding = &report[thing];
        assert_eq!(keys(finding), FINDING, "{thing}");
        assert_eq!(finding["found"], false, "{thing}");
        let text = |key: &str| finding[key].as_str().unwrap().to_owned();
        assert!(text("problem").contains(problem), "{finding}");
        assert!(text("remedy").contains(remedy), "{finding}");
    }
    let shown = doctor(&folder, &[]).done();
    assert_eq!(shown.matches(" missing: ").count(), things.len(), "{shown}");
    let rust = "  rust      missing: rustc is not on PATH\n            get it: ";
    assert!(shown.contains(rust), "{shown}");
}

/// Kernels on Host need no tools, so that the report is short.
#[test]
fn host_is_ready_whatever_is_missing() {
    let shown = doctor(&Folder::new(), &[]).done();
    let host = "\n  host      ready: runs .wasm modules, memory pooled\n";
    assert!(shown.contains(host), "{shown}");
    assert!(shown.lines().count() <= 20, "{shown}");
}

#[test]
fn wrong_words_are_wrong_usage() {
    let ran = doctor(&Folder::new(), &["--fix", "--json"]);
    let object = ran.object();
    assert_eq!((ran.code, &object["doctor"]), (2, &Value::Null));
    assert_eq!(object["status"]["code"], "INVALID_ARGUMENT");
}

/// Stand-ins for programs, with the output of the real ones.
#[cfg(unix)]
#[test]
fn programs_are_asked() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = Folder::new();
    let program = |name: &str, script: &str| {
        let file = format!("bin/{name}");
        folder.write(&file, format!("#!/bin/sh\n{script}\n"));
        let permissions = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(&file), permissions).unwrap();
    };
    let sysroot = folder.path("sysroot");
    let target = "sysroot/lib/rustlib/wasm32-unknown-unknown/lib";
    let version = |thing: &str| {
        let object = doctor(&folder, &["--json"]).object();
        let finding = object["doctor"][thing].clone();
        if finding["found"] == true {
            Ok(finding["version"].as_str().unwrap().to_owned())
        } else {
            Err(finding["problem"].as_str().unwrap().to_owned())
        }
    };
    program(
        "rustc",
        &format!(
            "case $1 in --version) echo rustc 9.9.9;; --print) echo '{}';; esac",
            sysroot.display()
        ),
    );
    program(
        "clang-20",
        "case $1 in -dumpversion) echo 20.1.0;; --print-targets) echo '  wasm32 - WebAssembly';; esac",
    );
    program("clang", "echo 99");
    program("wasm-ld", "echo LLD 20.1.0");
    program("python3", "test \"$1\" = -I && echo 0.9.1");
    let problem = version("rust").unwrap_err();
    let expected = format!(
        "rustc 9.9.9 lacks the target wasm32-unknown-unknown: no {}/lib/rustlib/wasm32-unknown-unknown",
        sysroot.display()
    );
    assert_eq!(problem, expected);
    folder.write(&format!("{target}/libcore.rlib"), "");
    assert_eq!(version("rust"), Ok("9.9.9".to_owned()));
    assert_eq!(version("clang"), Ok("20.1.0".to_owned()));
    assert_eq!(version("wasm_ld"), Ok("LLD 20.1.0".to_owned()));
    assert_eq!(version("jax"), Ok("0.9.1".to_owned()));
    let shown = doctor(&folder, &[]).done();
    let python = folder.path("bin/python3");
    let line = format!("  jax       0.9.1, {}\n", python.display());
    assert!(shown.contains(&line), "{shown}");

    // Their output is shown on separate lines and cannot control a terminal.
    program("clang-20", "echo x86");
    program(
        "python3",
        "echo first >&2; printf 'No module named \\033[2Jjax\\n' >&2; exit 1",
    );
    let problem = version("clang").unwrap_err();
    assert!(
        problem.ends_with("clang-20 does not compile for wasm32"),
        "{problem}"
    );
    let problem = version("jax").unwrap_err();
    assert!(
        problem.ends_with("failed: No module named \u{1b}[2Jjax"),
        "{problem}"
    );
    assert!(!doctor(&folder, &[]).done().contains('\u{1b}'));
    assert!(!doctor(&folder, &["--json"]).done().contains('\u{1b}'));
}
