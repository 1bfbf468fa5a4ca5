//! A process that forks: an engine from before says so in the child, and one that is made there works.
//!
//! It has a `main` of its own: of a process with threads, only the one that forks lives on in the child.

#![allow(
    unsafe_code,
    reason = "no library forks without a new program, which is what is tested"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{ExitCode, exit};

use callbox::policy::{Policy, Traps};
use callbox::wasm::{Config, Engine, PreparedCall};
use callbox::{CallSite, Shape, StatusCode};

const MODULE: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "f") (param i32) (result i32) (i32.const 0))
  (func (export "loop") (param i32) (result i32) (loop $on (br $on)) (unreachable)))"#;

fn prepare(engine: &Engine, target: &str) -> PreparedCall {
    let module = engine.load(&wat::parse_str(MODULE).unwrap()).unwrap();
    let nothing = Shape::tuple(Vec::new()).unwrap();
    let site = CallSite::new(target, Vec::new(), nothing);
    module.prepare_call(site).unwrap()
}

fn engine(traps: Traps) -> Engine {
    let mut policy = Policy {
        traps,
        ..Policy::default()
    };
    policy.limits.instances = 8;
    policy.limits.deadline = Some(std::time::Duration::from_millis(20));
    Engine::with_config(Config {
        policy,
        ..Config::default()
    })
    .unwrap()
}

/// What a call fails with.
fn code(call: &PreparedCall) -> Option<StatusCode> {
    call.call(&[], &mut []).err().map(|status| status.code())
}

/// What holds in the child.
fn in_child(traps: Traps, before: Engine, used: PreparedCall, unused: PreparedCall) {
    let status = used.call(&[], &mut []).unwrap_err();
    assert_eq!(
        status.to_string(),
        "FAILED_PRECONDITION: target \"f\" was not called: expected an engine that was made in this process, found one from \
         before a fork"
    );
    assert_eq!(code(&unused), Some(StatusCode::FailedPrecondition));
    assert!(!before.is_of_this_process());
    let module = wat::parse_str(MODULE).unwrap();
    let status = before.load(&module).unwrap_err();
    assert_eq!(status.code(), StatusCode::FailedPrecondition);
    // Dropping it waits for no thread that is not there.
    drop((used, unused, before));

    let after = engine(traps);
    assert_eq!(code(&prepare(&after, "f")), None);
    assert_eq!(
        code(&prepare(&after, "loop")),
        Some(StatusCode::DeadlineExceeded)
    );
}

fn main() -> ExitCode {
    for traps in [Traps::Signals, Traps::Explicit] {
        let before = engine(traps);
        let (used, unused) = (prepare(&before, "f"), prepare(&before, "f"));
        assert_eq!(code(&used), None);
        // SAFETY: the threads that do not live on in the child, the ticker's and those that compiled, hold no lock that it
        // takes: the ticker sleeps or adds to a number, and compiling has ended.
        match unsafe { libc::fork() } {
            0 => {
                in_child(traps, before, used, unused);
                exit(0);
            }
            child => {
                let child = rustix::process::Pid::from_raw(child).unwrap();
                let options = rustix::process::WaitOptions::empty();
                let ended = rustix::process::waitpid(Some(child), options).unwrap();
                let (_, status) = ended.unwrap();
                assert_eq!(status.exit_status(), Some(0), "{traps:?}: {status:?}");
                assert_eq!(code(&used), None, "the parent goes on");
            }
        }
    }
    eprintln!("fork: ok");
    ExitCode::SUCCESS
}
