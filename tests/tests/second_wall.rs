//! The second wall: workers that are killed, lie or stay silent, what remains of them, and what
//! their filter allows.
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
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use callbox::call::TargetModule;
use callbox::policy::{Grants, Isolation};
use callbox::process::{Sandbox, Worker};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::{
    Blame, CallOptions, CallSite, CancelToken, Deadline, Literal, Platform, Registry, Shape,
    StatusCode,
};
use callbox_tests::worker::{HOSTILE, PROBE, PROBES, WORKER};

mod workers;

use workers::{
    PROGRAM, alone, children, config, descriptors, double, facts, is_zombie, kill, module, sandbox,
    site, until,
};

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
        // The socket reports it before the next call begins, or else during the call.
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
        // Covers starting, compiling, preparing and calling.
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

/// Calls back a function of the program, in which another target loops.
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
        // Kill both workers: the one that called back and the one that was called.
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

/// A guest behind the second wall with these functions and the target `f`.
fn guest(functions: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(module (memory (export "memory") 1) {functions}
          (func (export "f") (param i32) (result i32) (i32.const 0)))"#
    ))
    .unwrap()
}

fn nothing() -> CallSite {
    CallSite::new("f", vec![], Shape::tuple(Vec::new()).unwrap())
}

fn within(milliseconds: u64) -> CallOptions {
    CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(milliseconds))),
        ..CallOptions::default()
    }
}

#[test]
fn the_stage_instantiate_ends_at_the_callers_deadline() {
    let _alone = alone();
    let (sandbox, _) = sandbox();
    let guest = guest(
        r#"(func (export "f.instantiate") (param i32) (result i32)
          (loop $on (br $on)) (unreachable))"#,
    );
    let module = sandbox.load(&guest).unwrap();
    let begin = Instant::now();
    let status = module.prepare(vec![nothing()], &within(50)).unwrap_err();
    assert_eq!(status.code(), StatusCode::DeadlineExceeded);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn deleters_of_an_execution_end_at_the_callers_deadline() {
    let _alone = alone();
    let (sandbox, _) = sandbox();
    let guest = guest(
        r#"(func (export "f.prepare") (param i32) (result i32) (i32.const 0))
          (func (export "f.prepare.drop") (param i32) (loop $on (br $on)))"#,
    );
    let module = sandbox.load(&guest).unwrap();
    let calls = module
        .prepare(vec![nothing()], &CallOptions::default())
        .unwrap();
    let begin = Instant::now();
    let mut execution = calls.begin(&within(200), None, &[0]).unwrap();
    execution.initialize().unwrap();
    execution.call(0, &[], &mut []).unwrap();
    drop(execution);
    // Deleters have 1 second if there is no deadline.
    assert!(begin.elapsed() < Duration::from_millis(900));
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
        // A flood soon exceeds this limit.
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

/// Set in a child process whose limit on files is low.
const LIMITED: &str = "CALLBOX_TEST_LIMITED_FILES";

/// Runs in such a child; otherwise it does nothing.
#[test]
fn buffers_past_a_limit_on_files() {
    if std::env::var_os(LIMITED).is_none() {
        return;
    }
    let (sandbox, _) = sandbox();
    let module = sandbox.load(&module()).unwrap();
    let shape: Shape = "s32[4096]".parse().unwrap();
    let site = CallSite::new("double", vec![shape.clone()], shape);
    let called = module
        .prepare_call(site)
        .and_then(|call| call.call(&[&[0; 16384]], &mut [&mut [0; 16384]]));
    let status = called.unwrap_err();
    assert_eq!(facts(&status), (StatusCode::Unavailable, Blame::Host));
    assert!(status.message().contains("`ulimit -f`"), "{status}");
}

#[test]
fn a_limit_on_files_is_a_status() {
    let _alone = alone();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c 0; ulimit -f 4; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["buffers_past_a_limit_on_files", "--exact"])
        .env(LIMITED, "1");
    // The output goes through a pipe, because the limit also applies to a file.
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("1 passed"), "{said}");
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
    // Starting the worker continues in the background, once only: in the end there is a worker,
    // however short the calls' deadlines.
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

#[test]
fn a_worker_has_no_privileges_and_inherits_nothing() {
    let _alone = alone();
    let (mut reader, writer) = std::io::pipe().unwrap();
    // Clear close-on-exec, as other code in the embedder might.
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
    let (sandbox, _) = sandbox();
    let module = sandbox.load(&module()).unwrap();
    drop(writer);
    // The read ends at once, because only this process has the other end. A copy in the worker
    // would keep it open.
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

/// Returns what the probe prints about its attempt, or the signal that ends it.
fn probe(what: &str, confined: bool) -> String {
    let mut command = Command::new(PROGRAM);
    command.args([PROBE, what]);
    if !confined {
        command.arg("free");
    }
    let output = command.output().unwrap();
    if output.status.success() {
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    } else {
        output.status.to_string()
    }
}

#[test]
fn a_worker_reaches_nothing() {
    let _alone = alone();
    let refused = libc::EPERM.to_string();
    for what in PROBES {
        // The attempt works without the filter, so its failure below is due to the filter.
        assert_eq!(probe(what, false), "done", "{what}");
        let found = probe(what, true);
        match what {
            "memory" => assert_eq!(found, "done", "{what}"),
            // The limit on address space.
            "read_only" => assert_eq!(found, libc::ENOMEM.to_string(), "{what}"),
            // libc goes on without an answer only on this number.
            "affinity" => assert_eq!(found, libc::ENOSYS.to_string(), "{what}"),
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
