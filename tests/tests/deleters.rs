//! When the guest takes back what its stages left: once for each time that a stage succeeded, and never in an instance that broke.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use callbox::call::{CallOptions, Deadline};
use callbox::policy::{Grants, Isolation, Limits, LogLevel, Policy};
use callbox::wasm::{Config, Engine, PreparedCall};
use callbox::{CallSite, CancelToken, Shape, Status, StatusCode};

type Log = Arc<Mutex<Vec<String>>>;

/// Each stage leaves the address of its letter as its state and logs the letter; its deleter logs the small letter. The operand says what
/// the call does: 0 succeeds, 1 fails, 2 traps, 3 runs on. `initialize` fails if the byte at 1 is 1, which a call with 4 sets.
const STAGES: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "IPNipn")
  (func $leave (param $frame i32) (param $word i32) (param $letter i32) (result i32)
    (i32.store (i32.add (local.get $frame) (local.get $word)) (local.get $letter))
    (call $log (i32.const 2) (local.get $letter) (i32.const 1))
    (i32.const 0))
  (func (export "f.instantiate") (param i32) (result i32) (call $leave (local.get 0) (i32.const 40) (i32.const 16)))
  (func (export "f.prepare") (param i32) (result i32) (call $leave (local.get 0) (i32.const 44) (i32.const 17)))
  (func (export "f.initialize") (param i32) (result i32)
    (if (i32.load8_u (i32.const 1)) (then (return (i32.const 9))))
    (call $leave (local.get 0) (i32.const 48) (i32.const 18)))
  (func $delete (param $state i32) (call $log (i32.const 2) (i32.add (local.get $state) (i32.const 3)) (i32.const 1)))
  (export "f.instantiate.drop" (func $delete))
  (export "f.prepare.drop" (func $delete))
  (export "f.initialize.drop" (func $delete))
  (func (export "f") (param $frame i32) (result i32)
    (local $what i32)
    (local.set $what (i32.load (i32.load (i32.load offset=8 (local.get $frame)))))
    (if (i32.eq (local.get $what) (i32.const 2)) (then unreachable))
    (if (i32.eq (local.get $what) (i32.const 3)) (then (loop $on (br $on))))
    (i32.store8 (i32.const 1) (i32.eq (local.get $what) (i32.const 4)))
    (i32.eq (local.get $what) (i32.const 1))))"#;

fn engine(isolation: Isolation, instances: u32) -> (Engine, Log) {
    let log = Log::default();
    let sink = Arc::clone(&log);
    let config = Config {
        policy: Policy {
            isolation,
            limits: Limits {
                instances,
                ..Limits::default()
            },
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        },
        log: Some(Arc::new(move |record| {
            sink.lock().unwrap().push(record.message.to_owned());
        })),
        ..Config::default()
    };
    (Engine::with_config(config).unwrap(), log)
}

fn prepare(engine: &Engine, text: &str) -> PreparedCall {
    let module = engine.load(&wat::parse_str(text).unwrap()).unwrap();
    let scalar: Shape = "s32[]".parse().unwrap();
    let site = CallSite::new("f", vec![scalar], Shape::tuple(Vec::new()).unwrap());
    module.prepare_call(site).unwrap()
}

fn call(prepared: &PreparedCall, what: i32) -> Result<(), Status> {
    call_with(prepared, what, &CallOptions::default())
}

fn call_with(prepared: &PreparedCall, what: i32, options: &CallOptions) -> Result<(), Status> {
    prepared.call_with(options, &[&what.to_le_bytes()], &mut [])
}

/// What was logged since the last time.
fn taken(log: &Log) -> String {
    std::mem::take(&mut *log.lock().unwrap()).concat()
}

#[test]
fn states_are_taken_back_when_what_they_are_for_ends() {
    let (engine, log) = engine(Isolation::Executable, 8);
    let prepared = prepare(&engine, STAGES);
    assert_eq!(taken(&log), "I", "instantiated when it was prepared");
    call(&prepared, 0).unwrap();
    assert_eq!(taken(&log), "PNnp");
    assert!(call(&prepared, 1).is_err());
    assert_eq!(taken(&log), "PNnp", "also after a failure");
    drop(prepared);
    assert_eq!(taken(&log), "i");
}

#[test]
fn what_a_failed_stage_did_not_leave_is_not_taken_back() {
    let (engine, log) = engine(Isolation::Executable, 8);
    let prepared = prepare(&engine, STAGES);
    call(&prepared, 4).unwrap();
    taken(&log);
    assert_eq!(
        call(&prepared, 0).unwrap_err().code(),
        StatusCode::FailedPrecondition
    );
    assert_eq!(taken(&log), "Pp");
}

#[test]
fn nothing_runs_in_an_instance_that_trapped_or_was_stopped() {
    let (engine, log) = engine(Isolation::Executable, 8);
    let prepared = prepare(&engine, STAGES);
    taken(&log);
    assert_eq!(call(&prepared, 2).unwrap_err().code(), StatusCode::Aborted);
    assert_eq!(taken(&log), "PN");
    call(&prepared, 0).unwrap();
    assert_eq!(taken(&log), "IPNnp");
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(5))),
        ..CallOptions::default()
    };
    let err = call_with(&prepared, 3, &options).unwrap_err();
    assert_eq!(err.code(), StatusCode::DeadlineExceeded);
    drop(prepared);
    assert_eq!(taken(&log), "PN");
}

#[test]
fn a_cancelled_caller_does_not_keep_an_idle_instance_from_taking_back() {
    let (engine, log) = engine(Isolation::Executable, 8);
    let prepared = prepare(&engine, STAGES);
    let token = CancelToken::new();
    let options = CallOptions {
        cancel: Some(token.clone()),
        ..CallOptions::default()
    };
    call_with(&prepared, 0, &options).unwrap();
    taken(&log);
    token.cancel();
    assert_eq!(
        call_with(&prepared, 0, &options).unwrap_err().code(),
        StatusCode::Cancelled
    );
    drop(prepared);
    assert_eq!(taken(&log), "i");
}

#[test]
fn a_fresh_instance_takes_everything_back_after_its_call() {
    let (engine, log) = engine(Isolation::Fresh, 8);
    let prepared = prepare(&engine, STAGES);
    assert_eq!(taken(&log), "");
    for _ in 0..2 {
        call(&prepared, 0).unwrap();
        let all = taken(&log);
        assert_eq!(all.len(), 6, "{all}");
        assert!(all.starts_with("IPN") && all.ends_with("npi"), "{all}");
    }
}

#[test]
fn instances_that_make_way_take_back_what_they_have() {
    let (engine, log) = engine(Isolation::Executable, 1);
    let first = prepare(&engine, STAGES);
    assert_eq!(taken(&log), "I");
    let second = prepare(&engine, STAGES);
    assert_eq!(taken(&log), "iI");
    drop((first, second));
    assert_eq!(taken(&log), "i");
}

#[test]
fn a_deleter_that_runs_on_is_stopped() {
    let (engine, _) = engine(Isolation::Executable, 8);
    let text = r#"(module
      (memory (export "memory") 1)
      (func (export "f.instantiate") (param i32) (result i32) (i32.const 0))
      (func (export "f.instantiate.drop") (param i32) (loop $on (br $on)))
      (func (export "f") (param i32) (result i32) (i32.const 0)))"#;
    let prepared = prepare(&engine, text);
    call(&prepared, 0).unwrap();
    let begin = Instant::now();
    drop(prepared);
    // It has a second; the rest is for a machine that is busy.
    assert!(begin.elapsed() < Duration::from_secs(5));
}
