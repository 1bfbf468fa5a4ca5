//! Grants of a policy, which apply to one target and not to another of the same file.

use crate::support::Folder;

/// `head` and `tail` return the first and the last four bytes of `table.bin` in the first granted
/// directory.
const READER: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pread"
    (func $read (param i32 i32 i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "table.bin")
  (func $copy (param $frame i32) (param $from i64) (result i32)
    (if (call $open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 9) (i32.const 0)
          (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 32))
      (then (return (i32.const 5))))
    (i32.store (i32.const 40) (i32.load (i32.load offset=16 (local.get $frame))))
    (i32.store (i32.const 44) (i32.const 4))
    (call $read (i32.load (i32.const 32)) (i32.const 40) (i32.const 1) (local.get $from) (i32.const 48)))
  (func (export "head") (param i32) (result i32) (call $copy (local.get 0) (i64.const 0)))
  (func (export "tail") (param i32) (result i32) (call $copy (local.get 0) (i64.const 4))))"#;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.module("reader.wasm", READER);
    folder.write("tables/table.bin", [1, 2, 3, 4, 5, 6, 7, 8]);
    folder
}

fn call<'a>(target: &'a str, policy: &'a str) -> [&'a str; 7] {
    [
        "call",
        "reader.wasm",
        target,
        "--result",
        "u8[4]",
        "--policy",
        policy,
    ]
}

#[test]
fn a_target_reaches_what_the_policy_grants_it() {
    let folder = folder();
    folder.write(
        "policy.json",
        r#"{"targets": {"head": {"directories": [{"path": "tables", "name": "/tables"}]}}}"#,
    );
    let shown = folder.run(&call("head", "policy.json")).done();
    assert!(shown.contains("1, 2, 3, 4"), "{shown}");
    // The policy does not name the other target of the file.
    folder.refuse(
        &call("tail", "policy.json"),
        1,
        "PERMISSION_DENIED",
        "the import \"wasi_snapshot_preview1\" \"path_open\" is not granted: it takes a grant of directories",
    );
    folder.write(
        "all.json",
        r#"{"grants": {"directories": [{"path": "tables", "name": "/tables"}]}}"#,
    );
    let shown = folder.run(&call("tail", "all.json")).done();
    assert!(shown.contains("5, 6, 7, 8"), "{shown}");
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let folder = folder();
    folder.write(
        "policy.json",
        r#"{"grants": {"directories": [{"path": "nowhere", "name": "/tables"}]}}"#,
    );
    folder.refuse(
        &call("head", "policy.json"),
        1,
        "NOT_FOUND",
        "expected the granted \"nowhere\" to be a directory that can be opened",
    );
}

#[test]
fn a_deterministic_policy_has_no_clock() {
    let folder = folder();
    folder.write("policy.json", r#"{"deterministic": true, "grants": {"clock": true, "directories": [{"path": "tables", "name": "t"}]}}"#);
    folder.refuse(
        &call("head", "policy.json"),
        1,
        "INVALID_ARGUMENT",
        "expected a deterministic policy to grant nothing that differs from run to run, found a clock",
    );
}
