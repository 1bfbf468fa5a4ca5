//! `callbox pack`, `test` and what `inspect` shows of a package.

use serde_json::{Value, json};

use crate::guests::{FAULTS, NEGATE};
use crate::support::Folder;

pub(crate) const HEADER: &str = r#"{
  "format": 1,
  "name": "negate",
  "version": "1.0.0",
  "license": "MIT"
}"#;

/// -x of three elements.
pub(crate) const CASE: &str = r#"{
  "origin": "IEEE 754",
  "call": {"target": "negate"},
  "operands": [{"shape": "f32[3]", "values": [1, -2.5, 0]}],
  "expect": {"results": [{"shape": "f32[3]", "values": [-1, 2.5, -0.0]}]}
}"#;

/// A folder `k` that can be packed.
pub(crate) fn folder() -> Folder {
    let folder = Folder::new();
    folder
        .module("k/negate.wasm", NEGATE)
        .write("k/callbox-package.json", HEADER)
        .write("k/README.md", "Negates.\n")
        .write("k/cases/three.json", CASE);
    folder
}

/// The folder, with two versions of its package.
pub(crate) fn two_versions() -> Folder {
    let folder = folder();
    for version in ["1.0.0", "1.1.0"] {
        folder.write("k/callbox-package.json", HEADER.replace("1.0.0", version));
        folder
            .run(&["pack", "k", "-o", &format!("{version}.wasm")])
            .done();
    }
    folder
}

/// Runs a command on packages with `--json`, and expects this failure.
#[track_caller]
pub(crate) fn refuse(
    folder: &Folder,
    arguments: &[&str],
    code: i32,
    status: &str,
    message: &str,
) -> Value {
    let ran = folder.run(&[arguments, &["--json"]].concat());
    let object = ran.object();
    assert_eq!(ran.code, code, "{ran:?}");
    assert_eq!(object["status"]["code"], status, "{ran:?}");
    let found = object["status"]["message"].as_str().unwrap();
    assert!(found.contains(message), "expected {message:?} in {found:?}");
    assert!(ran.stderr.starts_with("error: "), "{ran:?}");
    object
}

#[test]
fn a_folder_becomes_a_package_that_is_tested_inspected_and_called() {
    let folder = folder();
    folder
        .write("k/Makefile", "all:\n")
        .write("k/.git/config", "");
    let packed = folder.run(&["pack", "k"]).done();
    assert!(packed.starts_with("negate 1.0.0\n  file      negate-1.0.0.wasm\n  sha256    "));
    assert!(packed.contains("\n  carries   README.md, 9 bytes\n            cases/three.json, "));
    assert!(packed.contains("\n  left out  Makefile\n"), "{packed}");
    let ending = "\n  passed    Host  cases/three.json\n1 passed, 0 failed, 0 not run\n";
    assert!(packed.ends_with(ending), "{packed}");

    let tested = folder.run(&["test", "negate-1.0.0.wasm"]).done();
    assert!(tested.ends_with(ending), "{tested}");
    let inspected = folder.run(&["inspect", "negate-1.0.0.wasm"]).done();
    let carried = "\n\npackage negate 1.0.0\n  license   MIT\n  carries   README.md, 9 bytes\n";
    assert!(inspected.contains(carried), "{inspected}");
    let object = folder
        .run(&["inspect", "negate-1.0.0.wasm", "--json"])
        .object();
    let package = &object["module"]["package"];
    assert_eq!(package["name"], "negate");
    assert_eq!(package["files"][0], json!({"path": "README.md", "size": 9}));
    let plain = folder.run(&["inspect", "k/negate.wasm", "--json"]).object();
    assert_eq!(plain["module"]["package"], Value::Null);

    // A package is also a plain module.
    folder.npy("x.npy", &[2], &[1.0_f32, -3.0]);
    let call = ["call", "negate-1.0.0.wasm", "negate", "--operand", "x.npy"];
    let called = folder
        .run(&[&call[..], &["--result", "f32[2]"]].concat())
        .done();
    assert!(called.contains("-1.0, 3.0"), "{called}");
}

#[test]
fn the_same_folder_gives_the_same_bytes_elsewhere() {
    let (one, other) = (folder(), folder());
    // Files are made in another order, and with other times.
    std::fs::remove_file(other.path("k/README.md")).unwrap();
    other
        .write("k/README.md", "Negates.\n")
        .write("k/notes.txt", "");
    let digest = |folder: &Folder, output: &str| {
        let ran = folder.run(&["pack", "k", "-o", output, "--json"]);
        let object = ran.object();
        ran.done();
        (
            object["package"]["sha256"].clone(),
            std::fs::read(folder.path(output)).unwrap(),
        )
    };
    assert_eq!(digest(&one, "a.wasm"), digest(&other, "k.wasm"));
}

/// As from another machine: with other times, modes, umask, locale, order of files in the folder,
/// name of the folder, and version control.
#[cfg(unix)]
#[test]
fn a_folder_of_another_machine_has_the_same_digests() {
    use std::os::unix::fs::PermissionsExt;
    let (one, other) = (folder(), folder());
    let files = [
        "README.md",
        "LICENSE-b",
        "LICENSE_A",
        "docs/Z.md",
        "docs/a.md",
        "docs/a.b/c.md",
    ];
    for file in &files {
        one.write(&format!("k/{file}"), format!("The text of {file}.\n"));
    }
    for file in files.iter().rev() {
        other.write(&format!("k/{file}"), format!("The text of {file}.\n"));
        let path = other.path(&format!("k/{file}"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    other
        .write("k/.git/HEAD", "ref: refs/heads/main\n")
        .write("k/.DS_Store", "");
    std::fs::rename(other.path("k"), other.path("another name")).unwrap();
    let mut found = Vec::new();
    for (folder, name, umask, locale) in [
        (&one, "k", "022", "C"),
        (&other, "another name", "077", "tr_TR.UTF-8"),
    ] {
        let mut digests = Vec::new();
        for to in [&["-o", "p.wasm"][..], &["--hub", "repository"]] {
            let mut command = std::process::Command::new("sh");
            command
                .args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")])
                .args([env!("CARGO_BIN_EXE_callbox"), "pack", name, "--json"])
                .args(to)
                .current_dir(folder.path(""))
                .env("LC_ALL", locale)
                .env("TZ", locale);
            let ran = crate::support::Ran::new(&command.output().unwrap());
            let package = ran.object()["package"].clone();
            digests.push((package["sha256"].clone(), package["hub_digest"].clone()));
            ran.done();
        }
        let metadata = folder.read("repository/build/callbox-wasm32/metadata.json");
        found.push((digests, folder.read("p.wasm"), metadata));
    }
    assert_eq!(found[0], found[1]);
}

#[test]
fn a_case_that_fails_stops_packing_and_leaves_the_earlier_package() {
    let folder = folder();
    let wrong = CASE.replace("2.5, -0.0", "2.25, -0.0");
    folder
        .write("out.wasm", "earlier")
        .write("k/cases/wrong.json", wrong);
    let message = "k: 1 of 2 cases failed";
    let pack = ["pack", "k", "-o", "out.wasm"];
    let object = refuse(&folder, &pack, 1, "FAILED_PRECONDITION", message);
    let cases = json!([
        {"case": "cases/three.json", "platform": "Host", "ending": "passed", "reason": ""},
        {"case": "cases/wrong.json", "platform": "Host", "ending": "failed",
         "reason": "result 0: 1 of 3 elements differ, the first at [1]: expected 2.25, found 2.5"},
    ]);
    assert_eq!(object["package"]["cases"], cases);
    assert_eq!(object["package"]["file"], Value::Null);
    assert_eq!(std::fs::read(folder.path("out.wasm")).unwrap(), b"earlier");
    assert_eq!(folder.list("."), ["k", "out.wasm"]);
}

/// Cases with tolerances, statuses, arrays in files, and targets that fail.
#[test]
fn cases_say_what_they_expect() {
    let folder = folder();
    folder
        .module("k/negate.wasm", FAULTS)
        .npy("k/cases/x.npy", &[2], &[1.0_f32, 2.0]);
    let case = |target: &str, expect: &str| {
        format!(
            r#"{{"call": {{"target": "{target}", "results": ["f32[2]"]}},
                "operands": [{{"shape": "f32[2]", "file": "x.npy"}}],
                "deadline_ms": 200, "expect": {expect}}}"#
        )
    };
    let status = |code: &str| format!(r#"{{"status": {{"code": "{code}"}}}}"#);
    let zeros = r#"{"results": [{"shape": "f32[2]", "values": [0.25, 0]}], "atol": 0.5}"#;
    let says = r#"{"status": {"code": "INVALID_ARGUMENT", "contains": "Info must be >= 0"}}"#;
    for (name, text, reason) in [
        ("passes", case("shout", zeros), ""),
        ("fails", case("fail", says), ""),
        ("traps", case("trap", &status("ABORTED")), ""),
        ("spins", case("spin", &status("DEADLINE_EXCEEDED")), ""),
        (
            "exact",
            case("shout", &zeros.replace("0.5", "0")),
            "result 0: 1 of 2 elements differ, the first at [0]: expected 0.25, found 0",
        ),
        (
            "another_code",
            case("fail", &status("ABORTED")),
            "expected ABORTED, found INVALID_ARGUMENT: ",
        ),
        (
            "another_text",
            case("fail", &says.replace("Info", "Data")),
            "expected INVALID_ARGUMENT with \"Data must be >= 0\", found INVALID_ARGUMENT: ",
        ),
        (
            "no_failure",
            case("shout", &status("ABORTED")),
            "expected ABORTED, found results",
        ),
        ("no_results", case("fail", zeros), "INVALID_ARGUMENT: "),
    ] {
        let folder_of_case = folder.path("k/cases/three.json");
        std::fs::write(folder_of_case, text).unwrap();
        let object = folder
            .run(&["pack", "k", "-o", "k.wasm", "--json"])
            .object();
        let case = &object["package"]["cases"][0];
        let ending = if reason.is_empty() {
            "passed"
        } else {
            "failed"
        };
        assert_eq!(case["ending"], ending, "{name}: {object}");
        let found = case["reason"].as_str().unwrap();
        assert!(found.starts_with(reason), "{name}: {found}");
    }
}

#[test]
fn folders_that_are_wrong_are_refused() {
    let of_case = |from: &str, to: &str| CASE.replace(from, to);
    let invalid = "INVALID_ARGUMENT";
    for (file, text, code, status, message) in [
        (
            "callbox-package.json",
            "{}".to_owned(),
            1,
            invalid,
            "missing field `format`",
        ),
        (
            "callbox-package.json",
            HEADER.replace("1.0.0", "one"),
            1,
            invalid,
            "expected a `version` such as 1.0.0",
        ),
        (
            "callbox-package.json",
            HEADER.replace("\"MIT\"", "\"MIT\", \"derivatives\": {\"negate\": \"vjp\"}"),
            1,
            invalid,
            "`derivatives` names \"vjp\", which is not a target of the module; it has negate",
        ),
        (
            "other.wasm",
            String::new(),
            1,
            invalid,
            "found negate.wasm, other.wasm",
        ),
        (
            "negate.wasm",
            "text".to_owned(),
            1,
            invalid,
            "expected a WebAssembly module",
        ),
        (
            "cases/a b.npy",
            String::new(),
            1,
            invalid,
            "it has the character ' '",
        ),
        (
            "docs/sub.wasm",
            "\0asm\x01\0\0\0".to_owned(),
            1,
            invalid,
            "a package holds one module",
        ),
        (
            "cases/three.json",
            "{".to_owned(),
            1,
            invalid,
            "k: cases/three.json: EOF",
        ),
        (
            "cases/three.json",
            of_case("\"negate\"", "\"negat\""),
            1,
            invalid,
            "cases/three.json: \"negat\" is not a target of the module; it has negate",
        ),
        (
            "cases/three.json",
            of_case("\"values\": [1, -2.5, 0]", "\"file\": \"../../secret.npy\""),
            1,
            invalid,
            "operand 0: the package has no file \"cases/../../secret.npy\"",
        ),
        (
            "cases/three.json",
            of_case("[1, -2.5, 0]", "[1, -2.5]"),
            1,
            invalid,
            "operand 0: expected 3 values for f32[3], found 2",
        ),
        (
            "cases/three.json",
            of_case("\"results\": [", "\"rtol\": -1, \"results\": ["),
            1,
            invalid,
            "expected `rtol` of at least 0, found -1",
        ),
        (
            "cases/three.json",
            of_case("\"call\"", "\"module\": \"other.wasm\", \"call\""),
            1,
            invalid,
            "unknown field `module`",
        ),
        (
            "cases/three.json",
            of_case("\"call\"", "\"deadline_ms\": 3600000, \"call\""),
            1,
            invalid,
            "expected `deadline_ms` of at most 10000, found 3600000",
        ),
        (
            "cases/three.json",
            of_case(
                "\"call\": {",
                "\"call\": {\"results\": [\"u8[274877906944]\"], ",
            ),
            1,
            "RESOURCE_EXHAUSTED",
            "expected cases whose arrays have at most 268435456 bytes in all, found more",
        ),
        // Together they have 8 bytes, modulo 2^64.
        (
            "cases/three.json",
            of_case(
                "\"call\": {",
                &format!(
                    "\"call\": {{\"results\": [\"u8[{0}]\", \"u8[{0}]\", \"u8[10]\"], ",
                    isize::MAX
                ),
            ),
            1,
            "RESOURCE_EXHAUSTED",
            "expected cases whose arrays have at most 268435456 bytes in all, found more",
        ),
        (
            "cases/three.json",
            of_case(
                "\"call\": {",
                &format!(
                    "\"call\": {{\"attributes\": {{\"a\": {{\"type\": \"string\", \"value\": [{}0]}}}}, ",
                    "0, ".repeat(100_000)
                ),
            ),
            1,
            invalid,
            "... (4096 of 16",
        ),
    ] {
        let folder = folder();
        folder.write(&format!("k/{file}"), text);
        refuse(&folder, &["pack", "k"], code, status, message);
        assert!(!folder.path("negate-1.0.0.wasm").exists());
    }
    let folder = folder();
    let file = r#"{"shape": "f32[4194304]", "file": "big.npy"}"#;
    let many = vec![file; 17].join(", ");
    let many = of_case(r#"{"shape": "f32[3]", "values": [1, -2.5, 0]}"#, &many);
    folder.write("k/cases/three.json", many).npy(
        "k/cases/big.npy",
        &[4_194_304],
        &vec![0.0_f32; 4_194_304],
    );
    let message = "operand 16: expected cases whose arrays have at most 268435456 bytes in all";
    refuse(&folder, &["pack", "k"], 1, "RESOURCE_EXHAUSTED", message);
    folder.write(
        "k/cases/three.json",
        format!("{CASE}{}", " ".repeat(1 << 20)),
    );
    let message = "expected a case of at most 1048576 bytes";
    refuse(&folder, &["pack", "k"], 1, "RESOURCE_EXHAUSTED", message);
    std::fs::remove_file(folder.path("k/cases/big.npy")).unwrap();
    std::fs::remove_file(folder.path("k/cases/three.json")).unwrap();
    refuse(
        &folder,
        &["pack", "k"],
        1,
        "NOT_FOUND",
        "the package has no cases",
    );
    refuse(
        &folder,
        &["pack", "none"],
        2,
        "NOT_FOUND",
        "none/callbox-package.json",
    );
    let message = "k/negate.wasm: expected the folder of a package, found a file";
    refuse(&folder, &["pack", "k/negate.wasm"], 2, invalid, message);
    std::fs::remove_file(folder.path("k/negate.wasm")).unwrap();
    let none = "expected one file that ends with .wasm, found none";
    refuse(&folder, &["pack", "k"], 1, invalid, none);
}

#[cfg(unix)]
#[test]
fn links_are_not_packed() {
    for link in ["cases/key.npy", "README.md", "docs", "negate.wasm"] {
        let folder = folder();
        folder.write("secret/key", "secret");
        let path = folder.path("k").join(link);
        let _ = std::fs::remove_file(&path);
        let target = if link == "docs" {
            "secret"
        } else {
            "secret/key"
        };
        std::os::unix::fs::symlink(folder.path(target), &path).unwrap();
        let message = format!("k/{link} is a symbolic link, which is not packed");
        refuse(&folder, &["pack", "k"], 1, "INVALID_ARGUMENT", &message);
    }
}

#[test]
fn what_is_no_package_is_not_tested() {
    let folder = folder();
    folder.write("text.wasm", "hello");
    let message = "k/negate.wasm: the module is not a package";
    refuse(
        &folder,
        &["test", "k/negate.wasm"],
        1,
        "INVALID_ARGUMENT",
        message,
    );
    let message = "text.wasm: expected a WebAssembly module";
    refuse(
        &folder,
        &["test", "text.wasm"],
        1,
        "INVALID_ARGUMENT",
        message,
    );
    refuse(&folder, &["test", "none.wasm"], 2, "NOT_FOUND", "none.wasm");
    // A package that was altered, or to which something was added.
    folder.run(&["pack", "k"]).done();
    let mut bytes = std::fs::read(folder.path("negate-1.0.0.wasm")).unwrap();
    bytes.extend(b"\0\x05\x04name");
    folder.write("more.wasm", bytes);
    let message = "expected nothing after the sections of the package";
    refuse(
        &folder,
        &["test", "more.wasm"],
        1,
        "INVALID_ARGUMENT",
        message,
    );
    refuse(
        &folder,
        &["inspect", "more.wasm"],
        1,
        "INVALID_ARGUMENT",
        message,
    );
}

/// A package is one file that is read as it is: no archive is unpacked, and nothing in one is
/// written.
#[test]
fn archives_are_no_packages() {
    let folder = folder();
    let zip = b"PK\x03\x04\x14\0\0\0\0\0../../evil.sh";
    let mut tar = b"../../evil.sh".to_vec();
    tar.resize(1024, 0);
    // What deflate makes of 64 MiB of zeros begins so.
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff\xec\xc1\x01\x01\0\0\0\x80\x90\xfe\xaf\xee";
    for (name, bytes) in [("zip", &zip[..]), ("tar", &tar), ("gz", gzip)] {
        folder.write("k.wasm", bytes);
        folder.write(&format!("k.{name}"), bytes);
        let before = folder.list(".");
        for arguments in [
            &["test", "k.wasm"][..],
            &["inspect", "k.wasm"],
            &["lock", "k.wasm"],
            &["call", "k.wasm", "negate", "--result", "f32[1]"],
        ] {
            let message = "expected a WebAssembly module";
            refuse(&folder, arguments, 1, "INVALID_ARGUMENT", message);
        }
        assert_eq!(folder.list("."), before);
    }
}
