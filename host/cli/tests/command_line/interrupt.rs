//! Ctrl-C while a guest or a program runs.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use super::support::Folder;

/// A target that logs a message and does not end.
pub(crate) const LOOP: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "here")
  (func (export "f") (param i32) (result i32)
    (call $log (i32.const 2) (i32.const 0) (i32.const 4))
    (loop $on (br $on))
    (i32.const 0)))"#;

const PROGRAM: &str = r#"HloModule m
ENTRY main {
  ROOT y = s32[] custom-call(), custom_call_target="f", api_version=API_VERSION_TYPED_FFI
}"#;

/// Starts the command and waits until the guest runs.
pub(crate) fn started(
    folder: &Folder,
    arguments: &[&str],
) -> (Child, BufReader<impl Read + use<>>) {
    let mut command = folder.command(arguments);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert_eq!(line, "guest info: here\n");
    (child, stderr)
}

pub(crate) fn interrupt(child: &Child) {
    // The shell's builtin `kill`: a program of this name may be missing.
    let kill = format!("kill -INT {}", child.id());
    let mut shell = Command::new("sh");
    assert!(shell.args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn ctrl_c_ends_a_call_and_a_program_with_cancelled() {
    let folder = Folder::new();
    folder.module("loop.wasm", LOOP).write("p.hlo", PROGRAM);
    let call = ["call", "loop.wasm", "f", "--result", "s32[]"];
    let run = ["run", "p.hlo", "--target", "f=loop.wasm#f"];
    for arguments in [&call[..], &run] {
        let arguments = [arguments, &["--deadline", "60s", "--log", "info"]].concat();
        let (mut child, mut stderr) = started(&folder, &arguments);
        interrupt(&child);
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
        assert!(rest.starts_with("error: CANCELLED: "), "{rest}");
    }
}
