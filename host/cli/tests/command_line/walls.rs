//! Flags that change the process while a guest runs, as Linux's /proc shows it.

use std::fs;
use std::process::Child;

use crate::interrupt::{LOOP, interrupt, started};
use crate::support::{Folder, Ran};

/// Runs a guest that does not end, with these flags, and calls `look` meanwhile.
fn while_it_runs<T>(flags: &[&str], look: impl FnOnce(&Child) -> T) -> T {
    let folder = Folder::new();
    folder.module("loop.wasm", LOOP);
    let call = ["call", "loop.wasm", "f", "--result", "s32[]"];
    let options = ["--deadline", "60s", "--log", "info"];
    let arguments = [&call[..], &options, flags].concat();
    let (mut child, _stderr) = started(&folder, &arguments);
    let found = look(&child);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    found
}

/// A field of a process's status in /proc.
fn field(process: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_owned())
}

/// Whether the process has handlers of SIGILL and SIGFPE, which Rust does not install.
fn handles_traps(child: &Child) -> bool {
    let mask = field(child.id(), "SigCgt:").unwrap();
    let mask = u64::from_str_radix(&mask, 16).unwrap();
    let [ill, fpe] = [4, 8].map(|signal| mask >> (signal - 1) & 1 == 1);
    ill || fpe
}

#[test]
fn explicit_traps_take_no_signals() {
    for (flags, handled) in [
        (&[][..], true),
        (&["--traps", "signals"], true),
        (&["--traps", "explicit"], false),
    ] {
        assert_eq!(while_it_runs(flags, handles_traps), handled, "{flags:?}");
    }
}

/// The child processes, each with the mode of its filter for system calls.
fn children(child: &Child) -> Vec<String> {
    let own = child.id().to_string();
    let names = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    names
        .filter(|&process| field(process, "PPid:").as_ref() == Some(&own))
        .map(|process| field(process, "Seccomp:").unwrap())
        .collect()
}

#[test]
fn a_guest_can_have_a_process_of_its_own() {
    // Mode 2: filtered. This is the child that compiled the module.
    assert_eq!(while_it_runs(&[], children), ["2"]);
    assert_eq!(while_it_runs(&["--isolate", "wasm"], children), ["2"]);
    // A worker compiles its module itself.
    assert_eq!(while_it_runs(&["--isolate", "process"], children), ["2"]);
}

#[test]
fn a_process_of_its_own_has_no_directories() {
    let folder = Folder::new();
    folder.module("loop.wasm", LOOP);
    folder.write(
        "policy.json",
        r#"{"grants": {"directories": [{"path": ".", "name": "/here"}]}}"#,
    );
    let call = ["call", "loop.wasm", "f", "--result", "s32[]"];
    let flags = ["--policy", "policy.json", "--isolate", "process"];
    let message = "expected no grants but log messages for a module in a process of its own";
    let call = [&call[..], &flags].concat();
    folder.refuse(&call, 1, "UNIMPLEMENTED", message);
}

/// A worker prepares call sites. A guest that takes the time of a call there is to blame for it.
#[test]
fn a_guest_is_blamed_for_the_time_of_its_preparation() {
    let folder = Folder::new();
    folder.module(
        "loop.wasm",
        r#"(module
          (memory (export "memory") 1)
          (func (export "f.instantiate") (param i32) (result i32)
            (loop $again (br $again))
            unreachable)
          (func (export "f") (param i32) (result i32) (i32.const 0)))"#,
    );
    let call = ["call", "loop.wasm", "f", "--result", "s32[]"];
    let options = ["--isolate", "process", "--deadline", "2s"];
    let message = "loop.wasm: stage instantiate: target \"f\" ran past its deadline";
    let ran = folder.refuse(
        &[&call[..], &options].concat(),
        1,
        "DEADLINE_EXCEEDED",
        message,
    );
    assert_eq!(ran.object()["status"]["blame"], "guest", "{ran:?}");
}

/// The kernel ends a process whose thread blocks the signal of its own fault. Threads inherit what
/// is blocked.
#[cfg(target_os = "linux")]
#[test]
fn a_trap_on_a_thread_that_blocks_its_signal() {
    let folder = Folder::new();
    folder.module(
        "traps.wasm",
        r#"(module
          (memory (export "memory") 1)
          (func (export "bounds") (param i32) (result i32) (i32.load (i32.const -4)))
          (func (export "trap") (param i32) (result i32) unreachable)
          (func (export "zero") (param i32) (result i32)
            (i32.div_s (i32.const 1) (i32.const 0))))"#,
    );
    for isolation in ["wasm", "process"] {
        for (target, code) in [
            ("bounds", "OUT_OF_RANGE"),
            ("trap", "ABORTED"),
            ("zero", "ABORTED"),
        ] {
            let call = ["call", "traps.wasm", target, "--result", "f32[1]", "--json"];
            let blocked = [
                "--block-signal=SEGV,BUS,ILL,FPE",
                env!("CARGO_BIN_EXE_callbox"),
            ];
            let ran = std::process::Command::new("env")
                .args(blocked)
                .args(call)
                .args(["--isolate", isolation])
                .current_dir(folder.path("."))
                .output()
                .unwrap();
            let ran = Ran::new(&ran);
            assert_eq!(ran.code, 1, "{ran:?}");
            assert_eq!(ran.object()["status"]["code"], code, "{ran:?}");
        }
    }
}
