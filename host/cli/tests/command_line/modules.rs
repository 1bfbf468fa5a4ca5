//! Invalid modules, alone and in a folder.

use crate::guests::{ADD, CALL, FAULTS, NEGATE, WRITERS, calling};
use crate::support::Folder;

/// A module with a target of this name.
fn exporting(name: &str) -> String {
    format!(
        r#"(module (memory (export "memory") 1)
             (func (export "{name}") (param i32) (result i32) (i32.const 0)))"#
    )
}

#[test]
fn what_is_no_module_is_refused() {
    let folder = Folder::new();
    let good = wat::parse_str(NEGATE).unwrap();
    folder.write("p.hlo", ADD).npy("x.npy", &[3], &[1.0_f32; 3]);
    folder.write("text.wasm", "hello").write("empty.wasm", "");
    folder.write("truncated.wasm", &good[..good.len() / 2]);
    folder.module("component.wasm", "(component)");
    folder.module("no_memory.wasm", "(module)");
    folder.module(
        "import.wasm",
        r#"(module (import "wasi_snapshot_preview1" "fd_write" (func)) (memory (export "memory") 1))"#,
    );
    folder.module("large.wasm", r#"(module (memory (export "memory") 65536))"#);
    folder.module(
        "metadata.wasm",
        r#"(module (memory (export "memory") 1) (@custom "callbox.targets" "no JSON"))"#,
    );
    folder.module(
        "undeclared.wasm",
        r#"(module (memory (export "memory") 1) (@custom "callbox.targets" "{\"name\":\"f\"}"))"#,
    );
    for (file, code, message) in [
        ("text.wasm", "INVALID_ARGUMENT", "\"hello\""),
        ("empty.wasm", "INVALID_ARGUMENT", "an empty file"),
        (
            "truncated.wasm",
            "INVALID_ARGUMENT",
            "expected a valid WebAssembly module",
        ),
        ("component.wasm", "INVALID_ARGUMENT", "found a component"),
        ("no_memory.wasm", "INVALID_ARGUMENT", "memory"),
        ("import.wasm", "PERMISSION_DENIED", "fd_write"),
        ("large.wasm", "RESOURCE_EXHAUSTED", "4294967296"),
        ("metadata.wasm", "INVALID_ARGUMENT", "callbox.targets"),
        ("undeclared.wasm", "INVALID_ARGUMENT", "\"f\""),
    ] {
        let target = format!("f={file}");
        let inputs = ["--input", "0=x.npy", "--input", "1=x.npy"];
        let run = [&["run", "p.hlo", "--target", &target], &inputs[..]].concat();
        for arguments in [&run[..], &["call", file, "f"]] {
            let ran = folder.refuse(arguments, 1, code, message);
            let status = &ran.object()["status"];
            assert!(
                status["message"]
                    .as_str()
                    .unwrap()
                    .starts_with(&format!("{file}: "))
            );
            assert_eq!(status["blame"], "guest");
        }
    }
}

#[test]
fn a_folder_is_loaded_whole() {
    let folder = Folder::new();
    folder.write("p.hlo", ADD).npy("x.npy", &[3], &[1.0_f32; 3]);
    let run = [
        "run",
        "p.hlo",
        "--input",
        "0=x.npy",
        "--input",
        "1=x.npy",
        "--targets",
        "k",
    ];
    folder.write("k/notes.txt", "none of this");
    folder
        .module("k/negate.wasm", NEGATE)
        .module("k/faults.wasm", FAULTS);
    folder.module("k/writers.wasm", WRITERS);
    let expected = folder.run(&run).done();

    // The targets of a file that is no module are unknown.
    folder.write("k/broken.wasm", "no module");
    let ran = folder.run(&run);
    assert_eq!((ran.code, &ran.stdout), (0, &expected), "{ran:?}");
    assert!(
        ran.stderr
            .starts_with("warning: a file is left out: INVALID_ARGUMENT: k/broken.wasm: "),
        "{ran:?}"
    );

    // So are those of a link that leads nowhere.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("none", folder.path("k/dangling.wasm")).unwrap();
        let ran = folder.run(&run);
        assert_eq!((ran.code, &ran.stdout), (0, &expected), "{ran:?}");
        let warning = "warning: a file is left out: NOT_FOUND: expected to read k/dangling.wasm: ";
        assert!(ran.stderr.contains(warning), "{ran:?}");
    }
}

#[test]
fn a_module_that_does_not_load_fails_only_programs_that_call_it() {
    let folder = Folder::new();
    folder.npy("x.npy", &[3], &[1.0_f32; 3]);
    let wasi = "(import \"wasi_snapshot_preview1\" \"fd_close\" (func (param i32) (result i32)))";
    folder
        .module(
            "k/a.wasm",
            &exporting("table").replacen("(module", &format!("(module {wasi}"), 1),
        )
        .module("k/negate.wasm", NEGATE);
    folder.write("own.hlo", calling("negate"));
    folder.write("table.hlo", calling("table"));
    let run = |program| ["run", program, "--input", "0=x.npy", "--targets", "k"];
    folder.run(&run("own.hlo")).done();
    let message = "k/a.wasm: ";
    folder.refuse(&run("table.hlo"), 1, "PERMISSION_DENIED", message);

    // Another module's target of the name is not taken in place of the one that does not load.
    folder.module("k/b.wasm", &exporting("table"));
    folder.refuse(&run("table.hlo"), 1, "PERMISSION_DENIED", message);
    folder.module("k/0.wasm", &exporting("table"));
    let message = "two modules have the target \"table\": k/0.wasm and k/a.wasm";
    folder.refuse(&run("table.hlo"), 1, "ALREADY_EXISTS", message);
    folder.run(&run("own.hlo")).done();
}

/// Each module of the folder was compiled first: one made all programs wait for a minute.
#[test]
fn a_module_that_the_program_does_not_call_is_not_compiled() {
    let folder = Folder::new();
    folder.npy("x.npy", &[3], &[1.0_f32; 3]);
    folder
        .module("k/a.wasm", &exporting("other"))
        .module("k/negate.wasm", NEGATE);
    folder.write("own.hlo", calling("negate"));
    folder.write("typo.hlo", calling("negte"));
    let run = |program| {
        let words = ["run", program, "--input", "0=x.npy", "--targets", "k"];
        [&words[..], &["--cache-dir", "cache"]].concat()
    };
    let message = "did you mean \"negate\"?";
    folder.refuse(&run("typo.hlo"), 1, "NOT_FOUND", message);
    folder.run(&run("own.hlo")).done();
    let mut compiled = folder.list("cache");
    compiled.retain(|name| name.ends_with(".callbox-module"));
    assert_eq!(compiled.len(), 1, "{compiled:?}");
}

#[test]
fn names_of_targets_that_callbox_has_are_left_out() {
    let folder = Folder::new();
    folder.npy("x.npy", &[3], &[1.0_f32; 3]);
    folder
        .module("k/hostile.wasm", &exporting("callbox.v1"))
        .module("k/negate.wasm", NEGATE);
    folder.write("own.hlo", calling("negate"));
    let ran = folder.run(&["run", "own.hlo", "--input", "0=x.npy", "--targets", "k"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let message = "k/hostile.wasm: its target \"callbox.v1\" is left out: it is callbox's own";
    assert!(ran.stderr.contains(message), "{ran:?}");
}

#[test]
fn a_name_stands_for_one_target() {
    let folder = Folder::new();
    folder.write("p.hlo", ADD).npy("x.npy", &[3], &[1.0_f32; 3]);
    folder
        .module("k/a.wasm", &exporting("negate"))
        .module("k/b.wasm", NEGATE);
    let run = ["run", "p.hlo", "--input", "0=x.npy", "--input", "1=x.npy"];
    folder.write("q.hlo", CALL.replace("do_custom_call", "negate"));
    let folder_twice = ["run", "q.hlo", "--input", "0=x.npy", "--targets", "k"];
    let message = "two modules have the target \"negate\": k/a.wasm and k/b.wasm";
    folder.refuse(&folder_twice, 1, "ALREADY_EXISTS", message);
    let target_twice = [
        &run[..],
        &[
            "--target",
            "f=k/a.wasm#negate",
            "--target",
            "f=k/b.wasm#negate",
        ],
    ]
    .concat();
    let message = "two modules have the target \"f\": k/a.wasm and k/b.wasm";
    folder.refuse(&target_twice, 1, "ALREADY_EXISTS", message);
}

#[test]
fn modules_in_a_folder_may_share_a_name_that_the_program_does_not_call() {
    let folder = Folder::new();
    folder.npy("x.npy", &[3], &[1.0_f32; 3]);
    folder
        .module("k/a.wasm", &exporting("shared"))
        .module("k/b.wasm", &exporting("shared"))
        .module("k/negate.wasm", NEGATE);
    folder.write("q.hlo", CALL.replace("do_custom_call", "negate"));
    let run = ["run", "q.hlo", "--input", "0=x.npy", "--targets", "k"];
    folder.run(&run).done();
}

#[test]
fn targets_that_cannot_be_registered_are_refused() {
    let folder = Folder::new();
    folder.write("p.hlo", ADD).npy("x.npy", &[3], &[1.0_f32; 3]);
    folder
        .module("negate.wasm", NEGATE)
        .module("k/reserved.wasm", &exporting("$f"));
    let run = ["run", "p.hlo", "--input", "0=x.npy", "--input", "1=x.npy"];
    for (targets, code, message) in [
        (
            &["--target", "f=negate.wasm#negte"][..],
            "NOT_FOUND",
            "negate.wasm: the module has no target \"negte\"; did you mean \"negate\"?",
        ),
        (
            &["--target", "$f=negate.wasm#negate"],
            "INVALID_ARGUMENT",
            "start with '$'",
        ),
    ] {
        folder.refuse(&[&run[..], targets].concat(), 1, code, message);
    }
    // A program cannot call such a name, and runs without it.
    folder.run(&[&run[..], &["--targets", "k"]].concat()).done();
}
