//! `callbox lock`, and `--lock` of the commands that load code.

use serde_json::{Value, json};

use crate::guests::{CALL, NEGATE, SEED};
use crate::packages;
use crate::support::{Folder, Ran};

/// A folder with modules in `k`, of which `k/a.wasm` is locked.
fn folder() -> Folder {
    let folder = Folder::new();
    folder
        .module("k/a.wasm", NEGATE)
        .module("k/b.wasm", SEED)
        .npy("x.npy", &[3], &[1.0_f32, 2.0, 3.0])
        .write("p.hlo", CALL.replace("do_custom_call", "negate"));
    folder.run(&["lock", "k/a.wasm"]).done();
    folder
}

fn call(folder: &Folder, module: &str, flags: &[&str]) -> Ran {
    let words = [
        "call",
        module,
        "negate",
        "--operand",
        "x.npy",
        "--result",
        "f32[3]",
        "--json",
    ];
    folder.run(&[&words, flags].concat())
}

#[track_caller]
fn check_denied(ran: &Ran, message: &str) {
    let object = ran.object();
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(object["status"]["code"], "PERMISSION_DENIED", "{ran:?}");
    assert_eq!(object["status"]["blame"], "caller", "{ran:?}");
    let found = object["status"]["message"].as_str().unwrap();
    assert!(
        found.starts_with(message),
        "expected {message:?} in {found:?}"
    );
}

#[test]
fn nothing_but_what_is_locked_loads() {
    let folder = folder();
    let lock = ["--lock", "callbox.lock"];
    call(&folder, "k/a.wasm", &lock).done();
    call(&folder, "k/../k/a.wasm", &lock).done();
    let message = "k/b.wasm is not in callbox.lock: `callbox lock` writes it down";
    check_denied(&call(&folder, "k/b.wasm", &lock), message);
    // A program's folder has a module that is not locked.
    let run = [
        "run",
        "p.hlo",
        "--targets",
        "k",
        "--input",
        "0=x.npy",
        "--json",
    ];
    check_denied(&folder.run(&[&run[..], &lock].concat()), message);
    let run = [
        "run",
        "p.hlo",
        "--target",
        "negate=k/a.wasm",
        "--input",
        "0=x.npy",
    ];
    folder.run(&[&run[..], &lock].concat()).done();
    let in_workers = ["--isolate", "process", "--lock", "callbox.lock"];
    if cfg!(target_os = "linux") {
        check_denied(&call(&folder, "k/b.wasm", &in_workers), message);
    }
}

/// The file of a locked name has other bytes: another version, or another locked module.
#[test]
fn a_file_that_changed_is_refused() {
    let folder = folder();
    folder.run(&["lock", "k/a.wasm", "k/b.wasm"]).done();
    let lock = ["--lock", "callbox.lock"];
    call(&folder, "k/a.wasm", &lock).done();
    let other = std::fs::read(folder.path("k/b.wasm")).unwrap();
    folder.write("k/a.wasm", other);
    let ran = call(&folder, "k/a.wasm", &lock);
    check_denied(&ran, "callbox.lock has k/a.wasm with ");
    folder.module("c.wasm", NEGATE);
    check_denied(
        &call(&folder, "c.wasm", &lock),
        "c.wasm is not in callbox.lock",
    );
    // The same bytes by another name that leads to a locked one.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.path("k/b.wasm"), folder.path("link.wasm")).unwrap();
        let ran = call(&folder, "link.wasm", &lock);
        assert_ne!(
            ran.object()["status"]["code"],
            "PERMISSION_DENIED",
            "{ran:?}"
        );
    }
}

#[test]
fn a_lock_says_what_changed() {
    let folder = packages::folder();
    folder.run(&["pack", "k", "-o", "k.wasm"]).done();
    let shown = folder.run(&["lock", "k.wasm"]).done();
    assert!(
        shown.starts_with("callbox.lock\n  new      k.wasm 1.0.0, "),
        "{shown}"
    );
    let sha256 = folder.run(&["inspect", "k.wasm", "--json"]).object();
    let sha256 = sha256["module"]["sha256"].clone();
    let text = std::fs::read_to_string(folder.path("callbox.lock")).unwrap();
    let lock: Value = serde_json::from_str(&text).unwrap();
    let size = std::fs::metadata(folder.path("k.wasm")).unwrap().len();
    let expected = json!({"format": 1, "files": [
        {"file": "k.wasm", "digest": sha256, "size": size, "name": "negate", "version": "1.0.0"}
    ]});
    assert_eq!(lock, expected);
    folder.write(
        "k/callbox-package.json",
        packages::HEADER.replace("1.0.0", "1.1.0"),
    );
    folder.run(&["pack", "k", "-o", "k.wasm"]).done();
    let shown = folder.run(&["lock", "k.wasm", "k/negate.wasm"]).done();
    assert!(shown.contains("\n  was      k.wasm 1.0.0, "), "{shown}");
    assert!(shown.contains("\n  is       k.wasm 1.1.0, "), "{shown}");
    assert!(shown.contains("\n  new      k/negate.wasm, "), "{shown}");
    let object = folder.run(&["lock", "k/negate.wasm", "--json"]).object();
    assert_eq!(object["lock"]["files"][0]["file"], "k/negate.wasm");
    // The package's cases run under a lock, too. An older version, other cases and other files are
    // refused.
    folder.run(&["lock", "k.wasm"]).done();
    let test = ["test", "k.wasm", "--lock", "callbox.lock", "--json"];
    folder.run(&test).done();
    for (file, text) in [
        ("callbox-package.json", packages::HEADER.to_owned()),
        (
            "cases/three.json",
            packages::CASE.replace("IEEE 754", "IEEE 1788"),
        ),
        ("README.md", "Negates all.\n".to_owned()),
    ] {
        let other = packages::folder();
        other.write(
            "k/callbox-package.json",
            packages::HEADER.replace("1.0.0", "1.1.0"),
        );
        other.write(&format!("k/{file}"), text);
        other.run(&["pack", "k", "-o", "k.wasm"]).done();
        folder.write("k.wasm", std::fs::read(other.path("k.wasm")).unwrap());
        check_denied(&folder.run(&test), "callbox.lock has k.wasm with ");
    }
    folder.run(&["lock", "k/negate.wasm"]).done();
    let ran = folder.run(&["test", "k.wasm", "--lock", "callbox.lock", "--json"]);
    check_denied(&ran, "k.wasm is not in callbox.lock");
}

#[test]
fn locks_that_are_wrong_are_refused() {
    let folder = folder();
    for (text, message) in [
        ("", "callbox.lock: the lock is wrong: EOF"),
        (
            r#"{"format":2,"files":[]}"#,
            "callbox.lock: expected `format` 1, found 2",
        ),
        ("[1,[]]", "invalid type: sequence, expected an object"),
        (
            r#"{"format":[1],"files":[]}"#,
            "invalid type: sequence, expected u64",
        ),
        (
            r#"{"format":1,"files":[["a","SHA256",1]]}"#,
            "invalid type: sequence, expected an object",
        ),
        (
            r#"{"format":1,"files":[],"any":true}"#,
            "unknown field `any`",
        ),
        (
            r#"{"format":1,"files":[{"file":"a","digest":"SHA256","size":1},{"file":"a","digest":"SHA256","size":1}]}"#,
            "callbox.lock: the lock has \"a\" twice",
        ),
        (
            r#"{"format":1,"files":[{"file":"a","digest":"sha512:00","size":1}]}"#,
            "expected a SHA-256 of 64 lower-case hexadecimal digits for \"a\", found \"sha512:00\"",
        ),
    ] {
        folder.write("callbox.lock", text.replace("SHA256", &"0".repeat(64)));
        let ran = call(&folder, "k/a.wasm", &["--lock", "callbox.lock"]);
        let object = ran.object();
        assert_eq!(
            (ran.code, &object["status"]["code"]),
            (1, &json!("INVALID_ARGUMENT"))
        );
        let found = object["status"]["message"].as_str().unwrap();
        assert!(found.contains(message), "expected {message:?} in {found:?}");
    }
    // A long key is quoted in part.
    let text = format!(r#"{{"{}":1}}"#, "x".repeat(1 << 19));
    folder.write("callbox.lock", text);
    let ran = call(&folder, "k/a.wasm", &["--lock", "callbox.lock"]);
    let object = ran.object();
    let found = object["status"]["message"].as_str().unwrap();
    assert!(found.contains("unknown field `xxx") && found.len() < 5000);
    let ran = call(&folder, "k/a.wasm", &["--lock", "none.lock"]);
    assert_eq!(
        (ran.code, &ran.object()["status"]["code"]),
        (2, &json!("NOT_FOUND"))
    );
    // A locked file is in the folder of the lock or below it.
    let ran = folder.run(&["lock", "k/a.wasm", "-o", "k/inner/a.lock", "--json"]);
    assert_eq!(
        (ran.code, &ran.object()["status"]["code"]),
        (2, &json!("NOT_FOUND"))
    );
    folder.write("inner/.keep", "");
    let ran = folder.run(&["lock", "k/a.wasm", "-o", "inner/a.lock", "--json"]);
    let object = ran.object();
    assert_eq!((ran.code, &object["lock"]), (2, &Value::Null));
    let message = "k/a.wasm is not below the folder of the lock: name a lock in a folder above it";
    assert!(
        object["status"]["message"]
            .as_str()
            .unwrap()
            .starts_with(message),
        "{object}"
    );
}

/// Native code needs a grant and the lock.
#[cfg(feature = "cuda")]
#[test]
fn native_code_is_locked_too() {
    use crate::manifests::{self, DIGEST, LIBRARY_SHA256};

    let folder = manifests::folder();
    folder.npy("x.npy", &[3], &[1.0_f32, 2.0, 3.0]);
    folder.run(&["lock", "k"]).done();
    let text = std::fs::read_to_string(folder.path("callbox.lock")).unwrap();
    let lock: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(lock["files"][0]["file"], "k/callbox.json");
    assert_eq!(lock["files"][0]["digest"], DIGEST);
    // PTX is a part of its manifest.
    let ran = folder.run(&["lock", "k/k.ptx", "--json"]);
    let status = &ran.object()["status"];
    assert_eq!((ran.code, &status["code"]), (2, &json!("INVALID_ARGUMENT")));
    let message = "k/k.ptx: PTX is loaded only by a manifest: name the `callbox.json` that has it";
    assert_eq!(status["message"], message);
    let call = |module: &str, target: &str, grant: &str| {
        folder.run(&[
            "call",
            "--platform",
            "CUDA",
            module,
            target,
            "--operand",
            "x.npy",
            "--result",
            "f32[3]",
            "--lock",
            "callbox.lock",
            "--allow-native",
            grant,
            "--json",
        ])
    };
    // A library that is granted but not locked is refused before it is loaded.
    let ran = call("libk.so", "f", LIBRARY_SHA256);
    check_denied(&ran, "libk.so is not in callbox.lock");
    // A library that is locked and not granted.
    folder.run(&["lock", "k", "libk.so"]).done();
    check_denied(&call("libk.so", "f", DIGEST), "");
    // An image that changed. The grant names the earlier digest, so that the new PTX is fenced.
    let ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry negate_f32(\n  .param .u64 x,\n  .param .u64 y\n)\n{\n  ret;\n}\n";
    folder.write("k/k.ptx", ptx);
    check_denied(
        &call("k", "negate", DIGEST),
        "callbox.lock has k/callbox.json with ",
    );
}

/// `callbox.hub.lock` of the Python package writes such entries, which other commands keep.
#[test]
fn kernels_of_the_hub_stay_in_a_lock() {
    let folder = folder();
    let mut lock: Value = serde_json::from_slice(&read(&folder, "callbox.lock")).unwrap();
    let entry = json!({"file": "hf:good/rms-norm@v1", "digest": "0".repeat(64), "size": 7,
        "name": "rms-norm", "version": "1.0.0", "commit": "1".repeat(40)});
    lock["files"].as_array_mut().unwrap().push(entry.clone());
    folder.write("callbox.lock", lock.to_string());
    let locked = folder.run(&["lock", "k/b.wasm"]).done();
    assert!(locked.contains("\n  gone     k/a.wasm, "), "{locked}");
    assert!(
        locked.contains("\n  same     hf:good/rms-norm@v1 1.0.0, 7 bytes, "),
        "{locked}"
    );
    let lock: Value = serde_json::from_slice(&read(&folder, "callbox.lock")).unwrap();
    let files = lock["files"].as_array().unwrap();
    assert_eq!((files.len(), &files[0]), (2, &entry));
    let denied = call(&folder, "k/a.wasm", &["--lock", "callbox.lock"]);
    check_denied(&denied, "k/a.wasm is not in callbox.lock");
}

fn read(folder: &Folder, name: &str) -> Vec<u8> {
    std::fs::read(folder.path(name)).unwrap()
}

/// The name of a tensor is a stranger's, and may have any length.
#[test]
fn a_lock_that_no_command_could_read_is_not_written() {
    let folder = folder();
    let before = folder.read("callbox.lock");
    let module = std::fs::read(folder.path("k/a.wasm")).unwrap();
    let header = format!(
        r#"{{"callbox.{}":{{"dtype":"U8","shape":[{1}],"data_offsets":[0,{1}]}}}}"#,
        "x".repeat(1_100_000),
        module.len()
    );
    let length = (header.len() as u64).to_le_bytes();
    let file = [&length[..], header.as_bytes(), &module].concat();
    folder.write("k/x.safetensors", file);
    let ran = folder.run(&["lock", "k/x.safetensors", "--json"]);
    let status = &ran.object()["status"];
    assert_eq!(status["code"], "RESOURCE_EXHAUSTED");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("expected a lock of at most 1048576 bytes"),
        "{message}"
    );
    assert_eq!(folder.read("callbox.lock"), before);
    call(&folder, "k/a.wasm", &["--lock", "callbox.lock"]).done();
}
