//! The second wall: what a worker that is killed, lies or says nothing costs its caller, what is left of it, and what it can do.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use callbox::policy::{Grants, Isolation, Limits, LogLevel, Policy};
use callbox::process::{ProcessCall, Sandbox, SandboxConfig, Worker};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::{
    Blame, CallOptions, CallSite, CancelToken, Deadline, Literal, Platform, Registry, Shape,
    Status, StatusCode,
};
use callbox_tests::worker::{HOSTILE, PROBE, PROBES, WORKER};

/// The program that workers are.
const PROGRAM: &str = env!("CARGO_BIN_EXE_callbox-conformance");

/// `double` doubles an s32; `spin` logs and loops; `ignore` calls its function and succeeds whatever becomes of it.
const MODULE: &str = r#"(module
  (import "callbox:ffi/api@1.1.0" "log" (func $log (param i32 i32 i32)))
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "double") (param $frame i32) (result i32)
    (i32.store (i32.load (i32.load offset=16 (local.get $frame)))
      (i32.mul (i32.const 2) (i32.load (i32.load (i32.load offset=8 (local.get $frame))))))
    (i32.const 0))
  (func (export "spin") (param i32) (result i32)
    (call $log (i32.const 2) (i32.const 0) (i32.const 0))
    (loop (br 0))
    (i32.const 0))
  (func (export "ignore") (param $frame i32) (result i32)
    (drop (call $call
      (i32.load (i32.load offset=60 (local.get $frame)))
      (i32.load offset=8 (local.get $frame)) (i32.const 1)
      (i32.load offset=16 (local.get $frame)) (i32.const 1)))
    (i32.const 0)))"#;

/// Tests count processes and descriptors: one at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Children of this process: with zombies, by what the kernel says.
fn children() -> BTreeSet<i32> {
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").unwrap();
    let numbers = processes.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return false;
        };
        // After the name, which may hold anything: the state, and the parent.
        let rest = stat.rsplit(')').next().unwrap();
        rest.split_whitespace().nth(1) == Some(&own)
    };
    numbers.filter(is_child).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    // One that ended meanwhile is no longer there to be killed.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

fn config(worker: Worker) -> SandboxConfig {
    SandboxConfig {
        policy: Policy {
            limits: Limits {
                deadline: Some(Duration::from_secs(60)),
                ..Limits::default()
            },
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        },
        ..SandboxConfig::new(worker)
    }
}

fn sandbox() -> (Sandbox, Arc<AtomicUsize>) {
    let logged = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&logged);
    let sandbox = Sandbox::new(SandboxConfig {
        log: Some(Arc::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        })),
        ..config(Worker::new(PROGRAM, [WORKER]))
    });
    (sandbox.unwrap(), logged)
}

fn module() -> Vec<u8> {
    wat::parse_str(MODULE).unwrap()
}

fn site(target: &str) -> CallSite {
    let shape: Shape = "s32[]".parse().unwrap();
    CallSite::new(target, vec![shape.clone()], shape)
}

fn double(call: &ProcessCall) -> Result<i32, Status> {
    let mut result = [0; 4];
    call.call(&[&21_i32.to_le_bytes()], &mut [&mut result])?;
    Ok(i32::from_le_bytes(result))
}

fn facts(status: &Status) -> (StatusCode, Blame) {
    (status.code(), status.blame())
}

/// Waits for something that another process does.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_worker_that_is_killed_while_idle_is_replaced() {
    let _alone = alone();
    let (sandbox, _) = sandbox();
    let call = sandbox
        .load(&module())
        .unwrap()
        .prepare_call(site("double"))
        .unwrap();
    for _ in 0..5 {
        assert_eq!(double(&call), Ok(42));
        let workers = children();
        assert_eq!(workers.len(), 1);
        workers.iter().copied().for_each(kill);
        // The socket says so before the next call begins, or else the call says it.
        match double(&call) {
            Ok(result) => assert_eq!(result, 42),
            Err(status) => assert_eq!(facts(&status), (StatusCode::Unavailable, Blame::Guest)),
        }
    }
    assert_eq!(double(&call), Ok(42));
}

#[test]
fn a_worker_that_is_killed_in_a_call_costs_the_call() {
    let _alone = alone();
    let (sandbox, logged) = sandbox();
    let module = sandbox.load(&module()).unwrap();
    let spin = module.prepare_call(site("spin")).unwrap();
    for round in 1..=3 {
        let mut result = [0xa5; 4];
        let outcome = thread::scope(|scope| {
            let call = scope.spawn(|| spin.call(&[&[0; 4]], &mut [&mut result]));
            until("the guest to run", || {
                logged.load(Ordering::SeqCst) >= round
            });
            children().into_iter().for_each(kill);
            call.join().unwrap()
        });
        let status = outcome.unwrap_err();
        assert_eq!(facts(&status), (StatusCode::Unavailable, Blame::Guest));
        assert!(status.message().contains("SIGKILL"), "{status}");
        assert_eq!(result, [0xa5; 4]);
    }
    let call = module.prepare_call(site("double")).unwrap();
    assert_eq!(double(&call), Ok(42));
}

#[test]
fn workers_can_be_killed_at_any_moment() {
    let _alone = alone();
    let (sandbox, _) = sandbox();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (mut worked, mut lost) = (0, 0);
    thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(7);
            while !stop.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_micros(random.u64(..20_000)));
                children().into_iter().for_each(kill);
            }
        });
        // Starting, compiling, preparing and calling are all in here.
        for _ in 0..60 {
            let outcome = sandbox.load(&module()).and_then(|module| {
                let call = module.prepare_call(site("double"))?;
                (0..20).try_for_each(|_| double(&call).map(|result| assert_eq!(result, 42)))
            });
            match outcome {
                Ok(()) => worked += 1,
                Err(status) => {
                    assert_eq!(status.code(), StatusCode::Unavailable, "{status}");
                    lost += 1;
                }
            }
        }
        stop.store(true, Ordering::SeqCst);
        killer.join().unwrap();
    });
    assert!(
        lost > 0,
        "expected workers to be killed, {worked} rounds worked"
    );
    let call = sandbox
        .load(&module())
        .unwrap()
        .prepare_call(site("double"))
        .unwrap();
    assert_eq!(double(&call), Ok(42));
}

/// Calls a function of the program back, in which another target loops.
const PROGRAM_TEXT: &str = r#"HloModule m

inner {
  x = s32[] parameter(0)
  ROOT r = s32[] custom-call(x), custom_call_target="spin", api_version=API_VERSION_TYPED_FFI
}

ENTRY main {
  x = s32[] parameter(0)
  ROOT y = s32[] custom-call(x), custom_call_target="ignore", called_computations={inner}, api_version=API_VERSION_TYPED_FFI
}"#;

fn program(sandbox: &Sandbox) -> Executable {
    let mut registry = Registry::new();
    registry
        .register_module(sandbox.load(&module()).unwrap())
        .unwrap();
    let program = Program::from_hlo_text(PROGRAM_TEXT).unwrap();
    Executable::compile(&program, &registry, Platform::Host).unwrap()
}

#[test]
fn a_worker_that_is_killed_in_a_call_back_costs_the_execution() {
    let _alone = alone();
    let (sandbox, logged) = sandbox();
    let executable = program(&sandbox);
    let run = || executable.execute(0, &[Literal::scalar(1)], &ExecuteOptions::default());
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(run);
        until("the inner target to run", || {
            logged.load(Ordering::SeqCst) > 0
        });
        // Both: the one that called back and the one that was called.
        children().into_iter().for_each(kill);
        running.join().unwrap()
    });
    assert_eq!(
        facts(&outcome.unwrap_err()),
        (StatusCode::Unavailable, Blame::Guest)
    );
}

#[test]
fn cancellation_and_deadlines_reach_across_the_wall() {
    let _alone = alone();
    let (sandbox, logged) = sandbox();
    let executable = program(&sandbox);
    let token = CancelToken::new();
    let mut options = ExecuteOptions::default();
    options.call.cancel = Some(token.clone());
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(|| executable.execute(0, &[Literal::scalar(1)], &options));
        until("the inner target to run", || {
            logged.load(Ordering::SeqCst) > 0
        });
        token.cancel();
        running.join().unwrap()
    });
    assert_eq!(
        facts(&outcome.unwrap_err()),
        (StatusCode::Cancelled, Blame::Caller)
    );
    let spin = sandbox
        .load(&module())
        .unwrap()
        .prepare_call(site("spin"))
        .unwrap();
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(50))),
        ..CallOptions::default()
    };
    let status = spin
        .call_with(&options, &[&[0; 4]], &mut [&mut [0; 4]])
        .unwrap_err();
    assert_eq!(facts(&status), (StatusCode::DeadlineExceeded, Blame::Guest));
}

#[test]
fn nothing_is_left_of_a_sandbox() {
    let _alone = alone();
    assert_eq!(children(), BTreeSet::new());
    let before = descriptors();
    for isolation in [Isolation::Executable, Isolation::Fresh] {
        let mut config = config(Worker::new(PROGRAM, [WORKER]));
        config.policy.isolation = isolation;
        let sandbox = Sandbox::new(config).unwrap();
        let module = sandbox.load(&module()).unwrap();
        let call = module.prepare_call(site("double")).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| assert_eq!(double(&call), Ok(42))));
            }
        });
        drop((call, module, sandbox));
        assert_eq!(children(), BTreeSet::new());
        assert_eq!(descriptors(), before);
    }
}

#[test]
fn what_a_hostile_worker_says_is_only_a_status() {
    let _alone = alone();
    let internal = (StatusCode::Internal, Blame::Guest);
    let unavailable = (StatusCode::Unavailable, Blame::Guest);
    let late = (StatusCode::DeadlineExceeded, Blame::Guest);
    for (how, expected) in [
        ("tag", internal),
        ("empty", internal),
        ("trailing", internal),
        ("ok_as_failure", internal),
        ("text_length", internal),
        ("not_utf8", internal),
        ("function", internal),
        ("list_length", internal),
        ("length", internal),
        ("half", late),
        ("silence", late),
        ("endless", late),
        ("flood", internal),
        ("empty_flood", internal),
        ("bye", unavailable),
        ("exit", unavailable),
        ("abort", unavailable),
        ("control", (StatusCode::InvalidArgument, Blame::Guest)),
    ] {
        let mut config = config(Worker::new(PROGRAM, [HOSTILE, how]));
        // A flood is soon more than this.
        config.policy.limits.log_bytes = 1 << 10;
        let sandbox = Sandbox::new(config).unwrap();
        let call = sandbox
            .load(&module())
            .unwrap()
            .prepare_call(site("double"))
            .unwrap();
        let options = CallOptions {
            deadline: Some(Deadline::After(Duration::from_millis(300))),
            ..CallOptions::default()
        };
        let mut result = [0xa5; 4];
        let outcome = call.call_with(&options, &[&[0; 4]], &mut [&mut result]);
        let status = outcome.unwrap_err();
        assert_eq!(facts(&status), expected, "{how}: {status}");
        assert_eq!(result, [0xa5; 4], "{how}");
        assert!(
            !status.message().contains(['\x1b', '\0']),
            "{how}: {status}"
        );
    }
    assert_eq!(children(), BTreeSet::new());
}

#[test]
fn a_program_that_is_no_worker_is_unavailable() {
    let _alone = alone();
    for (program, blame) in [("/bin/true", Blame::Guest), ("/nowhere", Blame::Host)] {
        let sandbox = Sandbox::new(config(Worker::new(program, [""; 0]))).unwrap();
        let status = sandbox.load(&module()).unwrap_err();
        assert_eq!(facts(&status), (StatusCode::Unavailable, blame), "{status}");
    }
}

#[test]
fn directories_are_not_granted_across_the_wall() {
    let _alone = alone();
    let (sandbox, _) = sandbox();
    let grants = Grants {
        clock: true,
        ..Grants::default()
    };
    let status = sandbox.load_with(&module(), &grants).unwrap_err();
    assert_eq!(facts(&status), (StatusCode::Unimplemented, Blame::Caller));
    assert_eq!(children(), BTreeSet::new());
}

#[test]
fn a_call_does_not_wait_for_a_worker_longer_than_its_caller() {
    let _alone = alone();
    let (sandbox, _) = sandbox();
    let module = sandbox.load(&module()).unwrap();
    let (call, spin) = (
        module.prepare_call(site("double")).unwrap(),
        module.prepare_call(site("spin")).unwrap(),
    );
    let kill_all = || {
        children().into_iter().for_each(kill);
        until("the workers to end", || children().iter().all(is_zombie));
    };
    kill_all();
    let soon = CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(1))),
        ..CallOptions::default()
    };
    let begun = Instant::now();
    let short = || call.call_with(&soon, &[&[0; 4]], &mut [&mut [0; 4]]);
    let status = short().unwrap_err();
    assert_eq!(
        facts(&status),
        (StatusCode::DeadlineExceeded, Blame::Caller),
        "{status}"
    );
    assert!(begun.elapsed() < Duration::from_secs(5), "{status}");
    // The start goes on, and is the only one: in the end there is a worker, however short the calls' patience.
    until("a call that has a worker", || {
        assert!(children().len() <= 3, "{:?}", children());
        !matches!(short(), Err(status) if status.blame() == Blame::Caller)
    });
    assert_eq!(double(&call), Ok(42));
    kill_all();
    let token = CancelToken::new();
    let cancelled = CallOptions {
        cancel: Some(token.clone()),
        ..CallOptions::default()
    };
    let outcome = thread::scope(|scope| {
        let call = scope.spawn(|| spin.call_with(&cancelled, &[&[0; 4]], &mut [&mut [0; 4]]));
        thread::sleep(Duration::from_millis(1));
        token.cancel();
        call.join().unwrap()
    });
    assert_eq!(
        facts(&outcome.unwrap_err()),
        (StatusCode::Cancelled, Blame::Caller)
    );
}

/// Whether a child has ended, or is gone.
/// Whether a process has ended, all of its threads: while one is left, the parent does not learn of it.
fn is_zombie(pid: &i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    let leader_has_ended = stat.map_or(true, |stat| {
        stat.rsplit(')').next().unwrap().starts_with(" Z")
    });
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    leader_has_ended && threads <= 1
}

#[test]
fn a_worker_has_no_privileges_and_inherits_nothing() {
    let _alone = alone();
    let (mut reader, writer) = std::io::pipe().unwrap();
    // As something in the embedder would have it that knows nothing of other processes.
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
    let (sandbox, _) = sandbox();
    let module = sandbox.load(&module()).unwrap();
    drop(writer);
    // Nobody else has the other end: were it open in the worker, this would wait for ever.
    let ended = thread::spawn(move || reader.read(&mut [0]));
    until("the pipe's end", || ended.is_finished());
    assert_eq!(ended.join().unwrap().unwrap(), 0);
    let workers = children();
    assert_eq!(workers.len(), 1);
    for worker in workers {
        let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.lines().any(|found| found == line), "{status}");
        }
    }
    drop(module);
}

/// What becomes of an attempt: what the probe says, or the signal that it dies of.
fn probe(what: &str, confined: bool) -> String {
    let mut command = Command::new(PROGRAM);
    command.args([PROBE, what]);
    if !confined {
        command.arg("free");
    }
    let output = command.output().unwrap();
    match output.status.success() {
        true => String::from_utf8(output.stdout).unwrap().trim().to_owned(),
        false => output.status.to_string(),
    }
}

#[test]
fn a_worker_reaches_nothing() {
    let _alone = alone();
    let refused = libc::EPERM.to_string();
    for what in PROBES {
        // In a program that is free it works: what is found below is the filter's doing.
        assert_eq!(probe(what, false), "done", "{what}");
        let found = probe(what, true);
        match what {
            "thread" | "memory" => assert_eq!(found, "done", "{what}"),
            // How large a file may be is said by a signal.
            "far" => assert!(found.contains("SIGXFSZ"), "{what}: {found}"),
            "socket" | "listen" | "udp" | "exec" | "kill" => {
                assert!(found.contains("SIGSYS"), "{what}: {found}");
            }
            _ => assert!(
                found == refused || found.contains("SIGSYS"),
                "{what}: {found}"
            ),
        }
    }
}
