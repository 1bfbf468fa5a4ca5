#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use callbox_core::call::{CallOptions, CallSite, CancelToken, Deadline};
use callbox_core::policy::{Grants, LogLevel, Policy, Traps};
use callbox_core::values::{Blame, Shape, Status, StatusCode};

use super::{Lease, Watches};
use crate::interrupt::Interrupted;
use crate::{Config, Engine};

fn lease() -> Lease {
    let mut config = wasmtime::Config::new();
    config.shared_memory(true);
    let engine = wasmtime::Engine::new(&config).unwrap();
    Arc::new(Watches::new()).lease(&engine).unwrap()
}

#[test]
fn a_stop_belongs_to_one_call() {
    let watch = lease();
    assert!(!watch.tick());
    assert_eq!(watch.disarm(), None);
    let past = Some(Deadline::At(Instant::now()));
    watch.set_deadline(past);
    // No guest runs.
    assert!(!watch.tick());
    watch.arm();
    assert!(watch.tick());
    // The guest is stopped once.
    assert!(!watch.tick());
    assert_eq!(watch.disarm(), Some(Interrupted::Deadline));
    assert_eq!(watch.disarm(), None);

    let token = CancelToken::new();
    watch.set_deadline(None);
    watch.set_token(Some(token.clone()));
    watch.arm();
    assert!(watch.tick());
    token.cancel();
    assert!(watch.tick());
    assert_eq!(watch.disarm(), Some(Interrupted::Cancelled));
    watch.set_token(None);
    watch.arm();
    assert!(watch.tick());
    assert_eq!(watch.disarm(), None);
}

/// What was decided about one call has no effect on a later one.
#[test]
fn a_late_stop_is_lost() {
    let watch = lease();
    let word = &watch.word;
    assert_eq!(word.armed(), None);
    word.arm();
    let first = word.armed().unwrap();
    assert_eq!(word.disarm(), None);
    assert!(!word.stop(first, Interrupted::Deadline));
    word.arm();
    assert!(!word.stop(first, Interrupted::Deadline));
    let second = word.armed().unwrap();
    assert_ne!(first, second);
    assert!(word.stop(second, Interrupted::Cancelled));
    // The first reason is kept.
    assert!(!word.stop(second, Interrupted::Deadline));
    assert_eq!(word.armed(), None);
    assert_eq!(word.disarm(), Some(Interrupted::Cancelled));
}

/// A duration begins with the call, not with the one before, and a limit that was stopped does not
/// last.
#[test]
fn each_call_has_its_own_deadline() {
    let watch = lease();
    let hour = Duration::from_secs(3600);
    watch.set_deadline(Some(Deadline::After(Duration::ZERO)));
    watch.arm();
    assert!(watch.tick());
    assert_eq!(watch.disarm(), Some(Interrupted::Deadline));
    watch.set_deadline(Some(Deadline::After(hour)));
    watch.arm();
    assert!(watch.tick());
    assert!(!watch.is_late());
    let end = watch.deadline().unwrap();
    // It is known when the call began.
    assert_eq!(watch.deadline(), Some(end));
    let left = end.saturating_duration_since(Instant::now());
    assert!(left <= hour && left > hour / 2, "{left:?}");
    assert_eq!(watch.disarm(), None);
    watch.set_deadline(Some(Deadline::After(Duration::MAX)));
    assert_eq!(watch.deadline(), None);
    let far = Instant::now() + hour;
    watch.set_deadline(Some(Deadline::At(far)));
    assert_eq!(watch.deadline(), Some(far));
}

/// A ticker without pauses, and calls of which every second one is over as it begins, by its
/// deadline or its token. No other call is ever stopped.
#[test]
fn no_call_is_stopped_for_another() {
    const CALLS: u64 = 200_000;
    let watch = lease();
    let cancelled = CancelToken::new();
    cancelled.cancel();
    let past = Deadline::At(Instant::now());
    let is_over = AtomicBool::new(false);
    let stopped = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                watch.tick();
            }
        });
        let stopped: usize = (0..CALLS)
            .map(|call| {
                let deadline = match call % 4 {
                    0 => Some(past),
                    2 => Some(Deadline::After(Duration::from_secs(60))),
                    _ => None,
                };
                watch.set_deadline(deadline);
                watch.set_token((call % 4 == 1).then(|| cancelled.clone()));
                watch.arm();
                (0..call % 97).for_each(|_| std::hint::spin_loop());
                let why = watch.disarm();
                match call % 4 {
                    0 => assert_ne!(why, Some(Interrupted::Cancelled)),
                    1 => assert_ne!(why, Some(Interrupted::Deadline)),
                    _ => assert_eq!(why, None, "call {call}"),
                }
                usize::from(why.is_some())
            })
            .sum();
        is_over.store(true, Ordering::Relaxed);
        stopped
    });
    assert!(stopped > 0);
}

/// The ticker fixes the beginning of a call once, also if the watch changes hands.
#[test]
fn no_number_is_used_twice() {
    let mut config = wasmtime::Config::new();
    config.shared_memory(true);
    let engine = wasmtime::Engine::new(&config).unwrap();
    let watches = Arc::new(Watches::new());
    let minute = Some(Deadline::After(Duration::from_secs(60)));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let watch = watches.lease(&engine).unwrap();
        for _ in 0..3 {
            watch.set_deadline(minute);
            seen.push(watch.began.load(Ordering::Relaxed));
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 9);
}

/// Watches are used again, and one that was left armed is idle when it is.
#[test]
fn watches_are_leased_again() {
    let mut config = wasmtime::Config::new();
    config.shared_memory(true);
    let engine = wasmtime::Engine::new(&config).unwrap();
    let watches = Arc::new(Watches::new());
    let first = watches.lease(&engine).unwrap();
    let second = watches.lease(&engine).unwrap();
    assert_ne!(first.id(), second.id());
    first.arm();
    assert!(watches.tick());
    let id = first.id();
    drop(first);
    assert!(!watches.tick());
    assert_eq!(watches.lease(&engine).unwrap().id(), id);
}

/// An instance keeps the token of its last call, which stops none of the later calls with another
/// token or none.
#[test]
fn a_kept_token_stops_its_own_calls_only() {
    let module = r#"(module
        (memory (export "memory") 1)
        (func (export "f") (param i32) (result i32) (i32.const 0)))"#;
    let engine = engine(Traps::Explicit, || ());
    let module = engine.load(&wat::parse_str(module).unwrap()).unwrap();
    let site = CallSite::new("f", Vec::new(), Shape::tuple(Vec::new()).unwrap());
    let call = module.prepare_call(site).unwrap();
    let with = |cancel: Option<&CancelToken>| {
        let options = CallOptions {
            cancel: cancel.cloned(),
            ..CallOptions::default()
        };
        call.call_with(&options, &[], &mut [])
    };
    let (first, second) = (CancelToken::new(), CancelToken::new());
    assert_eq!(with(Some(&first)), Ok(()));
    assert_eq!(with(Some(&first)), Ok(()));
    first.cancel();
    let cancelled = |outcome: Result<(), Status>| outcome.unwrap_err().code();
    assert_eq!(cancelled(with(Some(&first))), StatusCode::Cancelled);
    assert_eq!(with(None), Ok(()));
    assert_eq!(with(Some(&second)), Ok(()));
    assert_eq!(cancelled(with(Some(&first))), StatusCode::Cancelled);
    assert_eq!(with(Some(&second)), Ok(()));
    second.cancel();
    assert_eq!(cancelled(with(Some(&second))), StatusCode::Cancelled);
    assert_eq!(with(None), Ok(()));
}

fn engine(traps: Traps, log: impl Fn() + Send + Sync + 'static) -> Engine {
    let mut policy = Policy {
        traps,
        grants: Grants::log(LogLevel::Trace),
        ..Policy::default()
    };
    policy.limits.instances = 4;
    Engine::with_config(Config {
        policy,
        log: Some(Arc::new(move |_| log())),
        ..Config::default()
    })
    .unwrap()
}

/// The status of a target `f` that is called without operands.
fn call(engine: &Engine, body: &str, options: &CallOptions) -> Status {
    let text = format!(
        r#"(module
          (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
          (memory (export "memory") 1)
          (table 1 funcref)
          (elem (i32.const 0) $f)
          (type $t (func (param i32) (result i32)))
          (func $read (param i32) (result i32) (loop (br_if 0 (i32.eqz (i32.load (i32.const 64))))) (i32.const 0))
          (func $even (param i32) (result i32) (return_call $odd (local.get 0)))
          (func $odd (param i32) (result i32) (return_call $even (local.get 0)))
          (func $double (param i32) (result i32)
            (if (result i32) (local.get 0)
              (then (drop (call $double (i32.sub (local.get 0) (i32.const 1))))
                    (call $double (i32.sub (local.get 0) (i32.const 1))))
              (else (i32.const 0))))
          (func $f (export "f") (param i32) (result i32) (local $i i32) {body}))"#
    );
    let module = engine.load(&wat::parse_str(text).unwrap()).unwrap();
    let site = CallSite::new("f", Vec::new(), Shape::tuple(Vec::new()).unwrap());
    let call = module.prepare_call(site).unwrap();
    call.call_with(options, &[], &mut []).unwrap_err()
}

/// Loops of all kinds: those without a store, in which a compiler may think that the stop word
/// never changes, and calls without a loop.
const ENDLESS: [&str; 12] = [
    "(loop (br 0)) (unreachable)",
    "(loop (loop (br 0))) (unreachable)",
    "(loop (br_if 0 (i32.eqz (i32.load (i32.const 8))))) (i32.const 0)",
    "(loop $outer (local.set $i (i32.const 0))
       (loop $inner (br_if $inner (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 9))))
       (br $outer)) (unreachable)",
    "(loop (br_table 0 0 (local.get $i))) (unreachable)",
    "(loop (br_if 0 (i32.eqz (memory.size)))
       (local.set $i (i32.add (local.get $i) (i32.const 3))) (br 0)) (unreachable)",
    "(i32.store (i32.const 0) (i32.const 1)) (loop (br_if 0 (i32.load (i32.const 0)))) (i32.const 0)",
    "(call $read (i32.const 0))",
    "(return_call $even (i32.const 0))",
    "(return_call_indirect (type $t) (local.get 0) (i32.const 0))",
    "(call $double (i32.const 60))",
    "(loop (param) (result i32) (memory.fill (i32.const 0) (i32.const 0) (i32.const 65536)) (br 0))",
];

#[test]
fn every_loop_is_stopped() {
    for traps in [Traps::Signals, Traps::Explicit] {
        let engine = engine(traps, || {});
        for body in ENDLESS {
            let options = CallOptions {
                deadline: Some(Deadline::After(Duration::from_millis(5))),
                ..CallOptions::default()
            };
            let status = call(&engine, body, &options);
            assert_eq!(
                status.code(),
                StatusCode::DeadlineExceeded,
                "{body}: {status}"
            );
            assert_eq!(status.blame(), Blame::Guest);
            assert!(status.backtrace().is_some(), "{body}");

            let token = CancelToken::new();
            let options = CallOptions {
                cancel: Some(token.clone()),
                ..CallOptions::default()
            };
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(30));
                    token.cancel();
                });
                let status = call(&engine, body, &options);
                assert_eq!(status.code(), StatusCode::Cancelled, "{body}: {status}");
                assert_eq!(status.blame(), Blame::Caller);
            });
        }
    }
}

/// The guest is cancelled in its log, and the host waits until it is stopped. The guest then traps
/// by itself, before it looks.
#[test]
fn a_guests_own_trap_stays_its_own() {
    const LOG: &str = "(call $log (i32.const 2) (i32.const 0) (i32.const 0))";
    for traps in [Traps::Signals, Traps::Explicit] {
        let current = Arc::new(Mutex::new(CancelToken::new()));
        let token = Arc::clone(&current);
        let engine = engine(traps, move || {
            token.lock().unwrap().cancel();
            thread::sleep(Duration::from_millis(50));
        });
        for (then, code, blame) in [
            ("(unreachable)", StatusCode::Aborted, Blame::Guest),
            (
                "(i32.load (i32.const -1))",
                StatusCode::OutOfRange,
                Blame::Guest,
            ),
            (
                "(i32.div_u (i32.const 1) (local.get $i))",
                StatusCode::Aborted,
                Blame::Guest,
            ),
            (
                "(loop (br 0)) (unreachable)",
                StatusCode::Cancelled,
                Blame::Caller,
            ),
            (
                "(call $read (i32.const 0))",
                StatusCode::Cancelled,
                Blame::Caller,
            ),
        ] {
            *current.lock().unwrap() = CancelToken::new();
            let options = CallOptions {
                cancel: Some(current.lock().unwrap().clone()),
                ..CallOptions::default()
            };
            let status = call(&engine, &format!("{LOG} {then}"), &options);
            assert_eq!(
                (status.code(), status.blame()),
                (code, blame),
                "{then}: {status}"
            );
        }
    }
}
