#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and writes files of its own"
)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use callbox_core::policy::{Assembler, Gpu};
use callbox_core::values::{Blame, StatusCode};
use tempfile::TempDir;

use super::child::{Limits, run};
use super::{SOUGHT, assemble, find, first};
use crate::places::SearchPlace;

const LIMITS: Limits = Limits {
    time: Some(Duration::from_secs(20)),
    memory_bytes: 1 << 30,
};

/// Held while a program is written and run: a child of another test would keep the file open for
/// writing until it starts its own program, and a file that is open for writing cannot be run.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program in place of ptxas, as a script of the shell.
fn program(script: &str) -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ptxas");
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    (folder, file)
}

fn fails(script: &str, limits: &Limits, code: StatusCode, says: &str) {
    let _alone = alone();
    let (_folder, program) = program(script);
    let status = run(&program, "k.ptx", "text", (9, 0), limits).unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (code, Blame::Guest),
        "{status}"
    );
    assert!(status.message().contains(says), "{status}");
}

#[test]
fn a_child_gets_the_text_and_its_output_is_the_code() {
    let _alone = alone();
    let (_folder, program) = program("echo \"$@\"; cat; echo environment: $HOME");
    let found = run(&program, "k.ptx", "some text\n", (9, 0), &LIMITS).unwrap();
    let expected =
        "--gpu-name=sm_90 --output-file /dev/stdout /dev/stdin\nsome text\nenvironment:\n";
    assert_eq!(String::from_utf8(found).unwrap(), expected);
}

#[test]
fn each_end_of_a_child_has_its_status() {
    let refused = "assembling k.ptx: ptxas refused it: line 3; error";
    fails(
        "echo line 3 >&2; echo error >&2; exit 255",
        &LIMITS,
        StatusCode::InvalidArgument,
        refused,
    );
    let crashed = "assembling k.ptx: ptxas was ended by signal 11";
    fails("kill -SEGV $$", &LIMITS, StatusCode::Aborted, crashed);
    // A log without end does not block, and is cut.
    let endless = "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa >&2 || exit 1; done";
    fails(endless, &LIMITS, StatusCode::Aborted, "signal 13");
}

#[test]
fn time_and_memory_are_limited() {
    let short = Limits {
        time: Some(Duration::from_millis(50)),
        ..LIMITS
    };
    let begun = Instant::now();
    let says = "ptxas ran past its limit of 50ms (`gpu.assemble_ms`)";
    fails("exec sleep 60", &short, StatusCode::DeadlineExceeded, says);
    assert!(begun.elapsed() < Duration::from_secs(10));
    // The limit is set after the child has started, so it waits before it reads it.
    fails(
        "sleep 0.2; ulimit -v >&2; exit 1",
        &LIMITS,
        StatusCode::InvalidArgument,
        "1048576",
    );
}

#[test]
fn a_program_that_cannot_be_started_is_the_host_s_failure() {
    let _alone = alone();
    let status = run("/nowhere/ptxas".as_ref(), "k.ptx", "", (9, 0), &LIMITS).unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::ResourceExhausted, Blame::Host)
    );
}

#[test]
fn the_program_is_found_in_order() {
    let _alone = alone();
    let (first_folder, file) = program("");
    let (second, other) = program("");
    let folder = |path: &std::path::Path| SearchPlace::Folder(path.to_owned());
    let nowhere = folder("/nowhere".as_ref());
    let places = [
        nowhere.clone(),
        folder(first_folder.path()),
        folder(second.path()),
    ];
    assert_eq!(first(&places).unwrap(), file);
    assert_eq!(first(&[SearchPlace::File(other.clone())]).unwrap(), other);
    let status = first(&[nowhere]).unwrap_err();
    assert_eq!(status.code(), StatusCode::Unavailable);
    assert!(status.message().contains(SOUGHT.variable), "{status}");
}

#[test]
fn a_policy_chooses() {
    let _alone = alone();
    let gpu = |assembler| Gpu {
        assembler,
        ..Gpu::default()
    };
    let text = "not PTX";
    assert_eq!(
        assemble("k", text, (9, 0), &gpu(Assembler::Driver)),
        Ok(None)
    );
    let required = assemble("k", text, (9, 0), &gpu(Assembler::Child)).unwrap_err();
    match find() {
        Ok(_) => {
            assert_eq!(required.code(), StatusCode::InvalidArgument, "{required}");
            let any = assemble("k", text, (9, 0), &gpu(Assembler::Any)).unwrap_err();
            assert_eq!(any.code(), StatusCode::InvalidArgument, "{any}");
        }
        Err(missing) => {
            assert_eq!(required, missing);
            assert_eq!(assemble("k", text, (9, 0), &gpu(Assembler::Any)), Ok(None));
        }
    }
}
