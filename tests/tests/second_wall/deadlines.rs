//! The caller's deadline and cancel token, across the wall and while there is no worker.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use callbox::call::TargetModule;
use callbox::policy::Limits;
use callbox::process::{Sandbox, Worker};
use callbox::program::ExecuteOptions;
use callbox::{Blame, CallOptions, CallSite, CancelToken, Deadline, Literal, Shape, StatusCode};
use callbox_tests::worker::WORKER;

use super::program;
use super::workers::{
    PROGRAM, alone, children, config, double, facts, is_zombie, kill, module, sandbox, site, slow,
    until,
};

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
fn a_module_that_compiles_slowly_ends_at_its_limit() {
    let _alone = alone();
    let mut config = config(Worker::new(PROGRAM, [WORKER]));
    config.policy.limits = Limits {
        compile_time: Some(Duration::from_millis(200)),
        function_work: u64::MAX,
        module_work: u64::MAX,
        ..Limits::default()
    };
    let sandbox = Sandbox::new(config).unwrap();
    let begun = Instant::now();
    let status = sandbox.load(&slow(1)).unwrap_err();
    assert_eq!(
        facts(&status),
        (StatusCode::DeadlineExceeded, Blame::Guest),
        "{status}"
    );
    // Workers once had 10 seconds beyond the limit.
    assert!(begun.elapsed() < Duration::from_secs(10), "{status}");
}
