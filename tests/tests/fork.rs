//! Forking: an engine from before the fork fails with a status in the child, and a new engine works
//! there.
//!
//! It has its own `main`, because only the forking thread of a process survives in the child.

#![allow(
    unsafe_code,
    reason = "no library forks without a new program, which is what is tested"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::process::{ExitCode, exit};
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use callbox::policy::{Policy, Traps};
#[cfg(target_os = "linux")]
use callbox::process::{CompilerProcess, Worker};
#[cfg(target_os = "linux")]
use callbox::wasm::{CompiledIn, Compiler};
use callbox::wasm::{Config, Engine, Mapping, PerProcess, PreparedCall};
use callbox::{CallOptions, CallSite, Deadline, Shape, StatusCode};

const MODULE: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "f") (param i32) (result i32) (i32.const 0))
  (func (export "loop") (param i32) (result i32) (loop $on (br $on)) (unreachable))
  (func (export "shared") (param i32) (result i32) (i32.const 0))
  (@custom "callbox.targets"
    "{\"name\": \"f\"} {\"name\": \"loop\"} {\"name\": \"shared\", \"traits\": [\"elementwise\"]}"))"#;

/// Makes a call that is large enough for several threads.
fn call_shared(engine: &Engine) {
    let module = engine.load(&wat::parse_str(MODULE).unwrap()).unwrap();
    let shape: Shape = "u8[4194304]".parse().unwrap();
    let site = CallSite::new("shared", vec![shape.clone()], shape);
    let mapping = Mapping {
        piece_bytes: Some(64 << 10),
        ..Mapping::default()
    };
    let call = module.prepare_mapped(site, &mapping).unwrap();
    assert!(call.is_cut());
    let x = vec![1; 4 << 20];
    let options = CallOptions {
        deadline: Some(Deadline::After(std::time::Duration::from_secs(10))),
        ..CallOptions::default()
    };
    call.call_with(&options, &[&x], &mut [&mut vec![0; 4 << 20]])
        .unwrap();
}

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
    policy.limits.deadline = Some(Duration::from_secs(1));
    Engine::with_config(Config {
        policy,
        ..Config::default()
    })
    .unwrap()
}

/// Returns the status code of a failed call.
fn code(call: &PreparedCall) -> Option<StatusCode> {
    call.call(&[], &mut []).err().map(|status| status.code())
}

/// Checks the behaviour in the child.
fn in_child(traps: Traps, before: Engine, used: PreparedCall, unused: PreparedCall) {
    let status = used.call(&[], &mut []).unwrap_err();
    assert_eq!(status.code(), StatusCode::FailedPrecondition);
    let end = ": target \"f\" was not called: expected an engine that was made in this process, found one from before a fork";
    assert!(status.message().ends_with(end), "{status}");
    assert_eq!(code(&unused), Some(StatusCode::FailedPrecondition));
    assert!(!before.is_of_this_process());
    let module = wat::parse_str(MODULE).unwrap();
    let status = before.load(&module).unwrap_err();
    assert_eq!(status.code(), StatusCode::FailedPrecondition);
    // Dropping the engine does not wait for the threads that the child lacks.
    drop((used, unused, before));

    let after = engine(traps);
    call_shared(&after);
    assert_eq!(code(&prepare(&after, "f")), None);
    assert_eq!(
        code(&prepare(&after, "loop")),
        Some(StatusCode::DeadlineExceeded)
    );
}

/// The program that compiles.
#[cfg(target_os = "linux")]
fn compiler() -> Arc<dyn Compiler> {
    let worker = Worker::new(
        env!("CARGO_BIN_EXE_callbox-conformance"),
        [callbox_tests::worker::WORKER],
    );
    Arc::new(CompilerProcess::new(worker).unwrap())
}

/// Where an engine with this compiler compiles a module.
#[cfg(target_os = "linux")]
fn compiled_in(compiler: &Arc<dyn Compiler>) -> CompiledIn {
    let engine = Engine::with_config(Config {
        compiler: Some(Arc::clone(compiler)),
        ..Config::default()
    });
    let module = engine.unwrap().load(&wat::parse_str(MODULE).unwrap());
    module.unwrap().compiled_in().clone()
}

/// A compiler from before a fork is not used in the child, and a new one is.
#[cfg(target_os = "linux")]
fn compile_in_child(before: &Arc<dyn Compiler>) {
    match compiled_in(before) {
        CompiledIn::ThisProcess(Some(status)) => {
            assert_eq!(status.code(), StatusCode::FailedPrecondition);
        }
        other => panic!("expected this process, found {other:?}"),
    }
    assert!(matches!(compiled_in(&compiler()), CompiledIn::Process));
}

/// Forks while other threads make and drop instances, and so hold the locks that this takes. The
/// child drops an instance, a module and the engine, and ends.
fn drop_in_children() {
    const FORKS: usize = 300;
    let engine = engine(Traps::Explicit);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(code(&prepare(&engine, "f")), None);
                }
            });
        }
        for i in 0..FORKS {
            let used = prepare(&engine, "f");
            assert_eq!(code(&used), None);
            // SAFETY: the child takes no lock, which is what is tested, and ends by `_exit`.
            match unsafe { libc::fork() } {
                0 => {
                    drop((used, engine.clone()));
                    // SAFETY: it runs nothing of this process.
                    unsafe { libc::_exit(0) };
                }
                child => {
                    let ended = wait(child, Duration::from_secs(20));
                    is_over.store(ended != Some(0) || i + 1 == FORKS, Ordering::Relaxed);
                    assert_eq!(ended, Some(0), "child {i} does not end");
                }
            }
        }
    });
}

/// The exit status of a child, or `None` if it was killed: it did not end in time.
fn wait(child: libc::pid_t, most: Duration) -> Option<i32> {
    let child = rustix::process::Pid::from_raw(child).unwrap();
    let end = Instant::now() + most;
    loop {
        let options = rustix::process::WaitOptions::NOHANG;
        if let Some((_, status)) = rustix::process::waitpid(Some(child), options).unwrap() {
            return status.exit_status();
        }
        if Instant::now() > end {
            rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Children and their children have values of their own, and take no lock that a parent has.
fn have_own_values(locked: &PerProcess<Mutex<u32>>, made: &PerProcess<u32>, generation: u32) {
    assert_eq!(made.get_or_make(|| Err(())).is_ok(), generation == 0);
    assert_eq!(
        made.get_or_make(|| Ok::<_, ()>(generation)),
        Ok(&generation)
    );
    assert_eq!(made.of_this_process(), Some(&generation));
    let mut own = locked.get().lock().unwrap();
    assert_eq!(std::mem::replace(&mut *own, generation + 1), 0);
    if generation == 3 {
        return;
    }
    // SAFETY: the child takes no lock, which is what is tested, and ends by `exit`, which runs
    // nothing of this process that does.
    match unsafe { libc::fork() } {
        0 => {
            have_own_values(locked, made, generation + 1);
            exit(0);
        }
        child => assert_eq!(wait(child, Duration::from_secs(20)), Some(0)),
    }
    assert_eq!(*own, generation + 1);
}

fn main() -> ExitCode {
    drop_in_children();
    have_own_values(&PerProcess::new(Mutex::new(0)), &PerProcess::new(0), 0);
    #[cfg(target_os = "linux")]
    let compiler = {
        let compiler = compiler();
        assert!(matches!(compiled_in(&compiler), CompiledIn::Process));
        compiler
    };
    for traps in [Traps::Signals, Traps::Explicit] {
        let before = engine(traps);
        let (used, unused) = (prepare(&before, "f"), prepare(&before, "f"));
        assert_eq!(code(&used), None);
        call_shared(&before);
        // SAFETY: the threads that do not survive in the child hold no lock that it takes. The
        // ticker sleeps or increments a counter, the compiler threads have finished, and those
        // that help with calls wait for jobs, which the child never offers them.
        match unsafe { libc::fork() } {
            0 => {
                in_child(traps, before, used, unused);
                #[cfg(target_os = "linux")]
                compile_in_child(&compiler);
                exit(0);
            }
            child => {
                let child = rustix::process::Pid::from_raw(child).unwrap();
                let options = rustix::process::WaitOptions::empty();
                let ended = rustix::process::waitpid(Some(child), options).unwrap();
                let (_, status) = ended.unwrap();
                assert_eq!(status.exit_status(), Some(0), "{traps:?}: {status:?}");
                assert_eq!(code(&used), None, "the parent goes on");
                call_shared(&before);
            }
        }
    }
    eprintln!("fork: ok");
    ExitCode::SUCCESS
}
