//! Compiling in child processes on a machine that is busy or stands still: healthy modules load.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use callbox::policy::{CompileIn, Limits, Policy};
use callbox::process::{CompilerProcess, Worker};
use callbox::wasm::{CompiledIn, Config, Engine, Module};
use callbox::{Result, StatusCode};
use callbox_tests::worker::WORKER;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

#[allow(dead_code, reason = "other tests use the rest")]
mod workers;

use workers::{PROGRAM, alone, children, slow, until};

const SECOND: Duration = Duration::from_secs(1);

/// The time of the children that do not answer at all.
const START: Duration = Duration::from_secs(10);

/// An engine that compiles nothing in this process.
fn engine(worker: Worker, compile_time: Duration) -> Engine {
    Engine::with_config(Config {
        policy: Policy {
            compile: CompileIn::Process,
            limits: Limits {
                compile_time: Some(compile_time),
                function_work: u64::MAX,
                module_work: u64::MAX,
                ..Limits::default()
            },
            ..Policy::default()
        },
        compiler: Some(Arc::new(CompilerProcess::new(worker).unwrap())),
        ..Config::default()
    })
    .unwrap()
}

/// A worker that begins only after some seconds.
fn slow_to_start(seconds: u64) -> Worker {
    let program = format!("/bin/sleep {seconds}; exec \"$0\" \"$@\"");
    Worker::new("/bin/sh", ["-c", &program, PROGRAM, WORKER])
}

fn load(engine: &Engine, number: usize) -> Result<Arc<Module>> {
    let text = format!(
        r#"(module (memory (export "memory") 1)
            (func (export "f") (param i32) (result i32) (i32.const {number})))"#
    );
    engine.load(&wat::parse_str(text).unwrap())
}

fn send(signal: Signal) {
    for child in children() {
        let sent = kill_process(Pid::from_raw(child).unwrap(), signal);
        // A child of the test before may end meanwhile.
        assert!(matches!(sent, Ok(()) | Err(Errno::SRCH)), "{sent:?}");
    }
}

/// Loads a module while all children stand still for `pause`.
fn load_in_a_pause(engine: &Engine, pause: Duration) -> Result<Arc<Module>> {
    send(Signal::STOP);
    let begun = Instant::now();
    thread::scope(|scope| {
        let loading = scope.spawn(|| load(engine, 1));
        thread::sleep(pause.saturating_sub(begun.elapsed()));
        send(Signal::CONT);
        loading.join().unwrap()
    })
}

#[test]
fn the_start_of_a_process_is_not_the_modules_time() {
    let _alone = alone();
    let engine = engine(slow_to_start(3), SECOND);
    let module = load(&engine, 0).unwrap();
    assert!(matches!(module.compiled_in(), CompiledIn::Process));
}

#[test]
fn a_process_that_the_machine_does_not_run_may_start_late() {
    let _alone = alone();
    until("the children of the test before to end", || {
        children().is_empty()
    });
    let engine = engine(slow_to_start(5), 60 * SECOND);
    until("a child to start", || !children().is_empty());
    let module = load_in_a_pause(&engine, START + 2 * SECOND).unwrap();
    assert!(matches!(module.compiled_in(), CompiledIn::Process));
}

#[test]
fn a_module_whose_process_did_not_run_has_more_time() {
    let _alone = alone();
    let time = 4 * SECOND;
    let engine = engine(Worker::new(PROGRAM, [WORKER]), time);
    load(&engine, 0).unwrap();
    load_in_a_pause(&engine, time + SECOND).unwrap();
}

#[test]
fn the_second_time_ends_as_well() {
    let _alone = alone();
    let engine = engine(Worker::new(PROGRAM, [WORKER]), SECOND);
    load(&engine, 0).unwrap();
    send(Signal::STOP);
    let status = load(&engine, 1).unwrap_err();
    assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
    assert!(status.message().contains("other work"), "{status}");
}

#[test]
fn a_new_process_that_stands_still_runs_on_where_others_wait() {
    let _alone = alone();
    let engine = engine(Worker::new(PROGRAM, [WORKER]), 4 * SECOND);
    load(&engine, 0).unwrap();
    send(Signal::STOP);
    // One more than run beside new ones.
    let costly = thread::available_parallelism().unwrap().get() + 2;
    thread::scope(|scope| {
        let loading = scope.spawn(|| load(&engine, 1));
        thread::sleep(SECOND / 10);
        let load = |number| {
            let engine = &engine;
            scope.spawn(move || engine.load(&slow(number)))
        };
        let costly = Vec::from_iter((0..costly).map(load));
        loading.join().unwrap().unwrap();
        for load in costly {
            let status = load.join().unwrap().unwrap_err();
            assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
        }
    });
}
