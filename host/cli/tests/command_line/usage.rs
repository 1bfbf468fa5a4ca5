//! Wrong usage, help, and output streams.

use std::fs::File;
use std::process::Stdio;

use crate::guests::{ADD, NEGATE, calling};
use crate::support::{Folder, Ran};

#[test]
fn help_teaches() {
    let folder = Folder::new();
    for (arguments, words) in [
        (
            &["--help"][..],
            &[
                "Usage: callbox",
                "run",
                "call",
                "inspect",
                "doctor",
                "Exit codes:",
            ][..],
        ),
        (
            &["run", "--help"],
            &[
                "--targets",
                "--allow-native",
                "libk.so:f,g@original@preorder",
                "Examples:",
                "results.safetensors",
                "Exit codes:",
            ],
        ),
        (
            &["call", "--help"],
            &["--attr", "NAME=VALUE[:TYPE]", "Examples:", "Exit codes:"],
        ),
        (
            &["inspect", "--help"],
            &["Examples:", "\"targets\"", "\"digest\"", "Exit codes:"],
        ),
        (
            &["doctor", "--help"],
            &["nvrtc", "\"remedy\"", "exit code is 0"],
        ),
        (
            &["pack", "--help"],
            &["callbox-package.json", "\"derivatives\"", "Exit codes:"],
        ),
        (&["test", "--help"], &["--platform", "Examples:"]),
        (&["new", "--help"], &["--lang", "callbox-sdk/"]),
        (
            &["build", "--help"],
            &["CALLBOX_CLANG", "callbox-package.json"],
        ),
        (&["bench", "--help"], &["benches/NAME.json", "NANOSECONDS"]),
        (&["watch", "--help"], &["Ctrl-C", "Examples:"]),
        (&["diff", "--help"], &["Examples:", "\"changes\""]),
        (&["lock", "--help"], &["Examples:", "\"digest\""]),
        (&["sign", "--help"], &["Examples:", "openssl genpkey"]),
        (&["verify", "--help"], &["Examples:", "--trust"]),
        (&["help", "run"], &["Examples:", "--lock"]),
        (&["--version"], &["callbox "]),
    ] {
        let help = folder.run(arguments).done();
        for word in words {
            assert!(help.contains(word), "expected {word:?} in {help}");
        }
    }
}

#[test]
fn wrong_words_are_wrong_usage() {
    let folder = Folder::new();
    for (arguments, message) in [
        (&["run"][..], "required arguments were not provided"),
        (
            &["run", "p.hlo", "--no-such-flag"],
            "unexpected argument '--no-such-flag'",
        ),
        (
            &["run", "p.hlo", "--target", "f"],
            "expected NAME=FILE.wasm or NAME=FILE.wasm#EXPORT",
        ),
        (
            &["run", "p.hlo", "--input", "x.npy"],
            "expected N=FILE with a parameter's number N",
        ),
        (
            &["run", "p.hlo", "--input", "0=w.safetensors"],
            "w.safetensors#TENSOR",
        ),
        (
            &["run", "p.hlo", "--deadline", "10"],
            "expected a duration such as 500ms",
        ),
        (
            &["run", "p.hlo", "--memory-limit", "1.5"],
            "expected a size such as 65536",
        ),
        (
            &["run", "p.hlo", "--platform", "TPU"],
            "expected the platform Host, Cpu or CUDA",
        ),
        (
            &["run", "p.hlo", "--input", "0=a.npy", "--input", "0=b.npy"],
            "expected --input 0 once",
        ),
        (&["call", "m.wasm"], "required arguments were not provided"),
        (&["call", "m.wasm", "f", "--result", "f32[2"], "expected"),
        (
            &["call", "m.wasm", "f", "--result", "f33[2]"],
            "expected a shape such as f32[2,3]",
        ),
        (
            &["call", "m.wasm", "f", "--attr", "n=1e39:f32"],
            "expected a value of f32, found 1e+39",
        ),
        (
            &["call", "m.wasm", "f", "--attr", "n=fast"],
            "a string has quotes",
        ),
        (
            &["call", "m.wasm", "f", "--attr", "n=1", "--attr", "n=2"],
            "expected --attr n once",
        ),
        (
            &["call", "m.wasm", "f", "--operand", "w.safetensors"],
            "w.safetensors#TENSOR",
        ),
    ] {
        folder.refuse(arguments, 2, "INVALID_ARGUMENT", message);
    }
    let ran = folder.run(&["inspect", "--json"]);
    assert_eq!(
        (ran.code, &ran.object()["module"]),
        (2, &serde_json::Value::Null)
    );
    for (command, key) in [
        ("pack", "package"),
        ("test", "package"),
        ("diff", "diff"),
        ("lock", "lock"),
        ("sign", "signature"),
        ("verify", "signature"),
    ] {
        let ran = folder.run(&[command, "--json"]);
        let object = ran.object();
        assert_eq!((ran.code, &object[key]), (2, &serde_json::Value::Null));
        assert_eq!(object["status"]["code"], "INVALID_ARGUMENT");
    }
    let ran = folder.run(&["frobnicate"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(
        ran.stderr.contains("unrecognized subcommand 'frobnicate'"),
        "{ran:?}"
    );
    let ran = folder.run(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("Usage: callbox"), "{ran:?}");
}

#[test]
fn wrong_words_do_not_control_a_terminal() {
    let folder = Folder::new();
    for word in ["--\u{9b}31m", "--a\u{202e}b", "--x\u{1b}[2J"] {
        let ran = folder.run(&["inspect", word]);
        assert_eq!(ran.code, 2, "{ran:?}");
        // clap takes a whole sequence of a terminal away.
        let is_shown = ran.stderr.contains('\u{fffd}') || ran.stderr.contains("'--x'");
        assert!(is_shown, "{ran:?}");
        assert!(
            !ran.stderr.contains(['\u{9b}', '\u{202e}', '\u{1b}']),
            "{ran:?}"
        );
    }
}

#[test]
fn wrong_words_forge_no_lines() {
    let folder = Folder::new();
    let word = "--x\nerror: forged\n  blame: guest\nk.wasm";
    let ran = folder.run(&["inspect", word]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("\\nerror: forged\\n  blame"), "{ran:?}");
    assert!(!ran.stderr.contains("\nerror: forged"), "{ran:?}");
}

#[test]
fn files_that_cannot_be_read_are_wrong_usage() {
    let folder = Folder::new();
    folder
        .write("p.hlo", ADD)
        .module("m.wasm", NEGATE)
        .write("dir/x", "");
    folder.npy("x.npy", &[3], &[1.0_f32; 3]);
    let x = ["--input", "0=x.npy", "--input", "1=x.npy"];
    for (arguments, file) in [
        (&["run", "none.hlo"][..], "none.hlo"),
        (
            &[
                "run",
                "p.hlo",
                "--input",
                "0=none.npy",
                "--input",
                "1=x.npy",
            ],
            "none.npy",
        ),
        (
            &[
                "run",
                "p.hlo",
                "--input",
                "0=none.safetensors#t",
                "--input",
                "1=x.npy",
            ],
            "none.safetensors",
        ),
        (
            &[&["run", "p.hlo", "--target", "f=none.wasm"], &x[..]].concat(),
            "none.wasm",
        ),
        (
            &[&["run", "p.hlo", "--targets", "none"], &x[..]].concat(),
            "the folder none",
        ),
        (
            &["call", "none.wasm", "negate", "--operand", "x.npy"],
            "none.wasm",
        ),
        (
            &["call", "m.wasm", "negate", "--operand", "none.npy"],
            "none.npy",
        ),
    ] {
        folder.refuse(
            arguments,
            2,
            "NOT_FOUND",
            &format!("expected to read {file}: "),
        );
    }
    for arguments in [
        &["run", "dir"][..],
        &["run", "p.hlo", "--input", "0=dir", "--input", "1=x.npy"],
        &[&["run", "p.hlo", "--target", "f=dir"], &x[..]].concat(),
        &[&["run", "p.hlo", "--targets", "p.hlo"], &x[..]].concat(),
        &["call", "dir", "negate"],
    ] {
        folder.refuse(arguments, 2, "INVALID_ARGUMENT", "expected to read ");
    }
    let ran = folder.run(&["inspect", "none.wasm", "--json"]);
    assert_eq!(
        (ran.code, &ran.object()["status"]["code"]),
        (2, &"NOT_FOUND".into())
    );
}

/// Each command of packages names what it expected and what it found, with an exit code, and with
/// `--json` has one object with its own key.
#[cfg(all(unix, feature = "fetch"))]
#[test]
fn commands_of_packages_name_what_they_expected() {
    let folder = Folder::new();
    folder.write("text", "some text").module("m.wasm", NEGATE);
    let key = format!("ed25519:58{}", "66".repeat(31));
    let verify = format!("verify none --key {key}");
    let unsigned = format!("verify m.wasm --key {key}");
    let invalid = "INVALID_ARGUMENT";
    let no_module = "text: expected a WebAssembly module, which starts with ";
    let no_package = "m.wasm: the module is not a package";
    for (words, key, code, status, message) in [
        (
            "pack none",
            "package",
            2,
            "NOT_FOUND",
            "expected to read none/callbox-package.json: ",
        ),
        (
            "pack text",
            "package",
            2,
            invalid,
            "text: expected the folder of a package, found a file",
        ),
        ("pack m.wasm", "package", 2, invalid, "found a file"),
        (
            "test none",
            "package",
            2,
            "NOT_FOUND",
            "expected to read none: ",
        ),
        ("test text", "package", 1, invalid, no_module),
        ("test m.wasm", "package", 1, invalid, no_package),
        (
            "diff m.wasm none",
            "diff",
            2,
            "NOT_FOUND",
            "expected to read none: ",
        ),
        ("diff m.wasm text", "diff", 1, invalid, no_module),
        ("diff m.wasm", "diff", 2, invalid, "<NEW.wasm>"),
        (
            "lock none",
            "lock",
            2,
            "NOT_FOUND",
            "expected to read none: ",
        ),
        ("lock text", "lock", 1, invalid, no_module),
        ("lock", "lock", 2, invalid, "<FILE>"),
        (
            "update",
            "update",
            2,
            "NOT_FOUND",
            "expected to read callbox.lock: ",
        ),
        (
            "update text",
            "update",
            2,
            invalid,
            "unexpected argument 'text' found",
        ),
        (
            "fetch none",
            "fetched",
            2,
            "NOT_FOUND",
            "expected to read none: ",
        ),
        (
            "fetch text",
            "fetched",
            1,
            invalid,
            "expected a WebAssembly module, found another file",
        ),
        (
            "fetch hf:org",
            "fetched",
            2,
            invalid,
            "expected hf:ORG/NAME@VERSION, found \"org\"",
        ),
        (
            "fetch oci:a",
            "fetched",
            2,
            invalid,
            "expected oci:HOST/PATH:TAG",
        ),
        (
            "publish none site",
            "published",
            2,
            "NOT_FOUND",
            "expected to read none: ",
        ),
        ("publish text site", "published", 1, invalid, no_module),
        ("publish m.wasm site", "published", 1, invalid, no_package),
        ("publish m.wasm", "published", 2, invalid, "<DEST>"),
        (
            "sign m.wasm --key none",
            "signature",
            2,
            "NOT_FOUND",
            "expected to read none: ",
        ),
        (
            "sign m.wasm --key text",
            "signature",
            1,
            invalid,
            "text: expected a secret key",
        ),
        (
            "verify m.wasm --key text",
            "signature",
            1,
            invalid,
            "text: expected a public key",
        ),
        (
            "verify m.wasm --key ed25519:0",
            "signature",
            2,
            invalid,
            "and 64 hexadecimal digits",
        ),
        (
            &verify,
            "signature",
            2,
            "NOT_FOUND",
            "expected to read none: ",
        ),
        (&unsigned, "signature", 1, "PERMISSION_DENIED", "m.wasm: "),
        (
            "replay none",
            "replay",
            2,
            "NOT_FOUND",
            "expected to read none: ",
        ),
        (
            "replay text",
            "replay",
            1,
            invalid,
            "text: no capsule: expected a .safetensors file",
        ),
        ("replay", "replay", 2, invalid, "<FILE"),
    ] {
        let words: Vec<_> = words.split(' ').collect();
        let told = folder.run(&words);
        assert_eq!(
            (told.code, told.stdout.as_str()),
            (code, ""),
            "{words:?}: {told:?}"
        );
        assert!(told.stderr.starts_with("error: "), "{words:?}: {told:?}");
        let ran = folder.run(&[&words[..], &["--json"]].concat());
        let object = ran.object();
        assert_eq!(ran.code, code, "{words:?}: {ran:?}");
        assert_eq!(object["status"]["code"], status, "{words:?}: {ran:?}");
        let found = object["status"]["message"].as_str().unwrap();
        assert!(found.contains(message), "expected {message:?} in {found:?}");
        let keys: Vec<_> = object.as_object().unwrap().keys().collect();
        assert!(
            keys.len() == 2 && object[key].is_null(),
            "{words:?}: {keys:?}"
        );
        assert_eq!(folder.list("."), ["m.wasm", "text"], "{words:?}");
    }
}

/// A closed pipe is not a failure; a full disk is.
#[test]
fn output_that_nobody_takes_is_no_panic() {
    let folder = Folder::new();
    folder
        .write("p.hlo", ADD)
        .npy("x.npy", &[3], &[1.0_f32; 3])
        .module("m.wasm", NEGATE);
    let run = ["run", "p.hlo", "--input", "0=x.npy", "--input", "1=x.npy"];
    for arguments in [
        &run[..],
        &[&run[..], &["--json"]].concat(),
        &["inspect", "m.wasm"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = folder
            .command(arguments)
            .stdout(Stdio::from(writer))
            .output()
            .unwrap();
        Ran::new(&output).done();
    }
    // A command that fails still exits with its code.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = folder.command(&["run", "none.hlo", "--json"]);
    let status = command
        .stdout(Stdio::from(writer.try_clone().unwrap()))
        .stderr(writer)
        .status();
    assert_eq!(status.unwrap().code(), Some(2));
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let folder = Folder::new();
    folder.write("p.hlo", ADD).npy("x.npy", &[3], &[1.0_f32; 3]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let run = [
        "run", "p.hlo", "--input", "0=x.npy", "--input", "1=x.npy", "--json",
    ];
    let output = folder
        .command(&run)
        .stdout(Stdio::from(full))
        .output()
        .unwrap();
    let ran = Ran::new(&output);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr
            .starts_with("error: expected to write to standard output: "),
        "{ran:?}"
    );
}

/// Neither the name of an untrusted file nor its content can control a terminal.
#[test]
fn nothing_steers_the_terminal() {
    let folder = Folder::new();
    folder
        .write("k/\u{1b}[31m.wasm", "not wasm")
        .write("p.hlo", calling("\u{1b}[31m"));
    for arguments in [
        &["run", "p.hlo", "--targets", "k"][..],
        &["run", "k/\u{1b}[31m.wasm"],
        &["run", "p.hlo"],
        &["inspect", "k/\u{1b}[31m.wasm"],
        &["inspect", "k/\u{1b}[31m.wasm", "--json"],
    ] {
        let ran = folder.run(arguments);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(!(ran.stdout + &ran.stderr).contains('\u{1b}'));
    }
}
