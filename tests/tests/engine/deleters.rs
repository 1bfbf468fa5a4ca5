//! Deleters of states run once for each successful stage, and never in an instance that trapped or
//! was stopped.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use callbox::call::{CallOptions, Deadline};
use callbox::policy::{Grants, Isolation, Limits, LogLevel, Policy};
use callbox::wasm::{Config, Engine, Mapping, PreparedCall};
use callbox::{CallSite, CancelToken, Shape, Status, StatusCode};

type Log = Arc<Mutex<Vec<String>>>;

/// Each stage leaves the address of its letter as its state and logs the letter; its deleter logs
/// the lower-case letter. The operand selects the outcome of the call: 0 succeeds, 1 fails, 2
/// traps, 3 loops. `initialize` fails if the byte at address 1 is 1, which a call with 4 sets.
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

/// Returns and clears the log.
fn taken(log: &Log) -> String {
    std::mem::take(&mut *log.lock().unwrap()).concat()
}

/// Waits until the log has as many letters as `expected`: dropped instances run their deleters in
/// the background.
#[track_caller]
fn comes(log: &Log, expected: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while log.lock().unwrap().concat().len() < expected.len() && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(taken(log), expected);
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
    comes(&log, "i");
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
    comes(&log, "i");
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
    comes(&log, "i");
}

/// A target whose stage `instantiate` logs `I`. Its deleter logs `i` and runs on.
const DELETER_RUNS_ON: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "Ii")
  (func (export "f.instantiate") (param i32) (result i32)
    (call $log (i32.const 2) (i32.const 16) (i32.const 1))
    (i32.const 0))
  (func (export "f.instantiate.drop") (param i32)
    (call $log (i32.const 2) (i32.const 17) (i32.const 1))
    (loop $on (br $on)))
  (func (export "f") (param i32) (result i32) (i32.const 0)))"#;

/// The bound of what takes no time, on a busy machine.
const SOON: Duration = Duration::from_millis(700);

#[track_caller]
fn soon<T>(work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    done
}

#[test]
fn whoever_drops_an_instance_does_not_wait_for_its_deleters() {
    let (engine, log) = engine(Isolation::Executable, 64);
    let many: Vec<_> = (0..40)
        .map(|_| {
            let prepared = prepare(&engine, DELETER_RUNS_ON);
            call(&prepared, 0).unwrap();
            prepared
        })
        .collect();
    taken(&log);
    let healthy = prepare(&engine, STAGES);
    soon(|| drop(many));
    // The deleters that run on keep no other call waiting.
    taken(&log);
    soon(|| call(&healthy, 0)).unwrap();
    soon(|| drop((healthy, engine)));
}

#[test]
fn deleters_that_run_on_give_up_their_instances_soon() {
    let (engine, _) = engine(Isolation::Executable, 2);
    for _ in 0..6 {
        let prepared = soon(|| prepare(&engine, DELETER_RUNS_ON));
        soon(|| call(&prepared, 0)).unwrap();
    }
}

#[test]
fn deleters_of_a_fresh_instance_end_at_the_calls_deadline() {
    let (engine, log) = engine(Isolation::Fresh, 8);
    let prepared = prepare(&engine, DELETER_RUNS_ON);
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(20))),
        ..CallOptions::default()
    };
    // The call itself succeeded in time.
    soon(|| call_with(&prepared, 0, &options)).unwrap();
    assert_eq!(taken(&log), "Ii");
}

#[test]
fn deleters_of_a_fresh_instance_end_when_the_caller_cancels() {
    let (engine, log) = engine(Isolation::Fresh, 8);
    let prepared = prepare(&engine, DELETER_RUNS_ON);
    let token = CancelToken::new();
    let options = CallOptions {
        cancel: Some(token.clone()),
        ..CallOptions::default()
    };
    thread::scope(|scope| {
        let called = scope.spawn(|| soon(|| call_with(&prepared, 0, &options)));
        while !log.lock().unwrap().concat().ends_with('i') {
            thread::sleep(Duration::from_millis(1));
        }
        token.cancel();
        called.join().unwrap().unwrap();
    });
}

/// The stages of an execution may run on, too.
#[test]
fn deleters_of_an_execution_end_at_the_calls_deadline() {
    let (engine, _) = engine(Isolation::Executable, 8);
    let text = DELETER_RUNS_ON.replace("instantiate", "prepare");
    let prepared = prepare(&engine, &text);
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(20))),
        ..CallOptions::default()
    };
    for _ in 0..3 {
        soon(|| call_with(&prepared, 0, &options)).unwrap();
    }
}

/// Preparing a call site can be a part of the call.
#[test]
fn the_stage_instantiate_ends_at_the_calls_deadline() {
    const TEXT: &str = r#"(module
      (memory (export "memory") 1)
      (func (export "f.instantiate") (param i32) (result i32) (loop $on (br $on)) (unreachable))
      (func (export "f") (param i32) (result i32) (i32.const 0)))"#;
    let (engine, _) = engine(Isolation::Executable, 8);
    let module = engine.load(&wat::parse_str(TEXT).unwrap()).unwrap();
    let site = CallSite::new("f", vec![], Shape::tuple(Vec::new()).unwrap());
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(20))),
        ..CallOptions::default()
    };
    let mapping = Mapping::default();
    let prepared = soon(|| module.prepare_within(site, &mapping, &options));
    assert_eq!(prepared.unwrap_err().code(), StatusCode::DeadlineExceeded);
}
