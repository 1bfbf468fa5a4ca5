//! The second wall: workers that are killed, lie or stay silent, what remains of them, and what
//! their filter allows.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use callbox::policy::Grants;
use callbox::process::{Sandbox, Worker};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::{Blame, CallOptions, Deadline, Literal, Platform, Registry, StatusCode};
use callbox_tests::worker::{HOSTILE, WORKER};

mod confinement;
mod deadlines;
#[path = "../workers/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod workers;

use workers::{
    PROGRAM, alone, children, config, double, facts, kill, module, sandbox, site, until,
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

#[test]
fn workers_have_room_for_any_limit_on_tables() {
    let _alone = alone();
    let wasm = module();
    for table_elements in [1 << 20, 1 << 30, 1 << 32, usize::MAX] {
        let mut config = config(Worker::new(PROGRAM, [WORKER]));
        config.policy.limits.table_elements = table_elements;
        let call = Sandbox::new(config)
            .and_then(|sandbox| sandbox.load(&wasm))
            .and_then(|module| module.prepare_call(site("double")))
            .unwrap_or_else(|status| panic!("{table_elements}: {status}"));
        assert_eq!(double(&call), Ok(42), "{table_elements}");
    }
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
    // Workers of the test before may be ending.
    until("earlier workers to end", || children().is_empty());
    let (sandbox, _) = sandbox();
    let grants = Grants {
        clock: true,
        ..Grants::default()
    };
    let status = sandbox.load_with(&module(), &grants).unwrap_err();
    assert_eq!(facts(&status), (StatusCode::Unimplemented, Blame::Caller));
    assert_eq!(children(), BTreeSet::new());
}
