//! Lent mathematics: a long computation of the host is stopped soon.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::thread;
use std::time::{Duration, Instant};

use callbox::policy::{Limits, Policy};
use callbox::wasm::{Config, Engine, PreparedCall};
use callbox::{CallOptions, CallSite, CancelToken, Deadline, StatusCode};

/// The deadline of a call, and the time after which it is cancelled.
const LIMIT: Duration = Duration::from_millis(20);

/// How long a stopped call may go on, on a busy machine: a hundred times the tick and the longest
/// piece, and much less than the calls would take.
const SOON: Duration = Duration::from_millis(300);

/// A target `f` of an s32[]. 0 multiplies matrices of 4 billion terms, all of them the same
/// element, which takes minutes. 1 takes the sine of angles too large for the fast form, again and
/// again. 2 sorts equal elements, again and again. 3 is 0 with elements of S8, and 4 is 1 in F64. 5
/// transforms 32 rows of the largest prime number of points, again and again.
const MODULE: &str = r#"(module
  (import "callbox:ffi/maths@1.0.0" "gemm" (func $gemm (param i32)))
  (import "callbox:ffi/maths@1.0.0" "map" (func $map (param i32 i32 i32 i32 i32)))
  (import "callbox:ffi/maths@1.0.0" "argsort-rows" (func $sort (param i32 i32 i32 i32 i32 i32)))
  (import "callbox:ffi/maths@1.0.0" "map-f64" (func $map-f64 (param i32 i32 i32 i32 i32)))
  (import "callbox:ffi/maths@1.0.0" "fft-rows" (func $fft (param i32 i32 i32 i32 i32 i32)))
  (memory (export "memory") 512)
  (func $sines (call $map (i32.const 6) (i32.const 65536) (i32.const 4194304) (i32.const 16842752) (i32.const 4194304)))
  (func $sorts (call $sort (i32.const 0) (i32.const 65536) (i32.const 4194304) (i32.const 4194304) (i32.const 16842752) (i32.const 4194304)))
  (func $sines-f64 (call $map-f64 (i32.const 6) (i32.const 65536) (i32.const 2097152) (i32.const 16842752) (i32.const 2097152)))
  (func $transforms (call $fft (i32.const 0) (i32.const 65536) (i32.const 4193344) (i32.const 65521) (i32.const 16842752) (i32.const 4193344)))
  (func (export "f") (param $frame i32) (result i32)
    (local $what i32)
    (local.set $what (i32.load (i32.load (i32.load offset=8 (local.get $frame)))))
    (if (i32.eq (local.get $what) (i32.const 2)) (then
      (call $sorts) (call $sorts) (call $sorts) (call $sorts) (call $sorts) (call $sorts)
      (call $sorts) (call $sorts) (call $sorts) (call $sorts) (call $sorts) (call $sorts)
      (return (i32.const 0))))
    (if (i32.eq (local.get $what) (i32.const 5)) (then
      (call $transforms) (call $transforms) (call $transforms) (call $transforms)
      (return (i32.const 0))))
    (if (i32.eq (local.get $what) (i32.const 4)) (then
      (memory.fill (i32.const 65536) (i32.const 0x7e) (i32.const 16777216))
      (call $sines-f64) (call $sines-f64) (call $sines-f64) (call $sines-f64) (call $sines-f64)
      (call $sines-f64) (call $sines-f64) (call $sines-f64) (call $sines-f64) (call $sines-f64)
      (return (i32.const 0))))
    (if (i32.eq (local.get $what) (i32.const 1)) (then
      (memory.fill (i32.const 65536) (i32.const 0x7e) (i32.const 16777216))
      (call $sines) (call $sines) (call $sines) (call $sines) (call $sines) (call $sines)
      (return (i32.const 0))))
    (i32.store offset=1024 (i32.const 0) (i32.const 8192))
    (i32.store offset=1028 (i32.const 0) (i32.const 4))
    (i32.store offset=1044 (i32.const 0) (i32.const 8192))
    (i32.store offset=1048 (i32.const 0) (i32.const 4))
    (i32.store offset=1064 (i32.const 0) (i32.const 16384))
    (i32.store offset=1068 (i32.const 0) (i32.const 16384))
    (i32.store offset=1076 (i32.const 0) (i32.const 64))
    (i32.store offset=1080 (i32.const 0) (i32.const 1))
    (i32.store offset=1084 (i32.const 0) (i32.const 1))
    (i32.store offset=1088 (i32.const 0) (i32.const 64))
    (i32.store offset=1092 (i32.const 0) (i32.const 64))
    (i32.store offset=1096 (i32.const 0) (i32.const -1))
    (i32.store8 offset=1100 (i32.const 0) (select (i32.const 4) (i32.const 0) (local.get $what)))
    (call $gemm (i32.const 1024))
    (i32.const 0)))"#;

fn prepared(deterministic: bool) -> PreparedCall {
    let policy = Policy {
        deterministic,
        limits: Limits {
            fuel: u64::MAX,
            ..Limits::default()
        },
        ..Policy::default()
    };
    let engine = Engine::with_config(Config {
        policy,
        ..Config::default()
    });
    let module = engine.unwrap().load(&wat::parse_str(MODULE).unwrap());
    let shape = || "s32[]".parse().unwrap();
    let site = CallSite::new("f", vec![shape()], shape());
    module.unwrap().prepare_call(site).unwrap()
}

fn call(call: &PreparedCall, options: &CallOptions, what: u8) -> StatusCode {
    let mut result = [0x5a; 4];
    let called = call.call_with(options, &[&[what, 0, 0, 0]], &mut [&mut result]);
    assert_eq!(result, [0x5a; 4]);
    called.unwrap_err().code()
}

#[test]
fn long_computations_are_stopped_soon() {
    for deterministic in [false, true] {
        let prepared = prepared(deterministic);
        for what in [0, 1, 2, 3, 4, 5] {
            let options = CallOptions {
                deadline: Some(Deadline::After(LIMIT)),
                ..CallOptions::default()
            };
            let began = Instant::now();
            let code = call(&prepared, &options, what);
            assert_eq!(code, StatusCode::DeadlineExceeded, "{what}");
            assert!(began.elapsed() < LIMIT + SOON, "{:?}", began.elapsed());

            let token = CancelToken::new();
            let options = CallOptions {
                cancel: Some(token.clone()),
                ..CallOptions::default()
            };
            let cancelled = thread::spawn(move || {
                thread::sleep(LIMIT);
                token.cancel();
                Instant::now()
            });
            let code = call(&prepared, &options, what);
            let late = cancelled.join().unwrap().elapsed();
            assert_eq!(code, StatusCode::Cancelled, "{what}");
            assert!(late < SOON, "{what} went on for {late:?}");
        }
    }
}
