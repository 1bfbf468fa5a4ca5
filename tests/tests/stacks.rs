//! Calls from threads with small stacks are rejected before the guest runs, instead of crashing the
//! process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::thread;

use callbox::policy::{Limits, Policy};
use callbox::wasm::{Config, Engine, PreparedCall};
use callbox::{Blame, CallSite, Shape, Status, StatusCode};

/// Recurses until the stack limit.
const RECURSION: &str = r#"(module
  (memory (export "memory") 1)
  (func $f (export "f") (param i32) (result i32) (i32.add (call $f (local.get 0)) (i32.const 1))))"#;

/// Does nothing.
const EMPTY: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "f") (param i32) (result i32) (i32.const 0)))"#;

fn prepare(text: &str, stack_bytes: usize) -> PreparedCall {
    let config = Config {
        policy: Policy {
            limits: Limits {
                stack_bytes,
                instances: 4,
                ..Limits::default()
            },
            ..Policy::default()
        },
        ..Config::default()
    };
    let engine = Engine::with_config(config).unwrap();
    let module = engine.load(&wat::parse_str(text).unwrap()).unwrap();
    let nothing = Shape::tuple(Vec::new()).unwrap();
    let site = CallSite::new("f", Vec::new(), nothing);
    module.prepare_call(site).unwrap()
}

fn call_on(stack: usize, prepared: &PreparedCall) -> Result<(), Status> {
    thread::scope(|scope| {
        let caller = thread::Builder::new().stack_size(stack);
        let call = || prepared.call(&[], &mut []);
        caller.spawn_scoped(scope, call).unwrap().join().unwrap()
    })
}

/// A thread may get a larger stack than it requests, one that another thread left. The limit is
/// therefore larger than any stack in use.
#[test]
fn a_stack_that_is_smaller_than_the_limit_is_refused() {
    for text in [EMPTY, RECURSION] {
        let prepared = prepare(text, 2 << 20);
        for stack in [128 << 10, 2 << 20] {
            let err = call_on(stack, &prepared).unwrap_err();
            assert_eq!(
                (err.code(), err.blame()),
                (StatusCode::ResourceExhausted, Blame::Caller)
            );
            let message = err.message();
            let needed = (2 << 20) + (128 << 10);
            let expected = format!("expected a thread with {needed} bytes of stack left, found ");
            assert!(message.contains(&expected), "{message}");
        }
    }
}

#[test]
fn a_stack_that_does_is_taken_to_its_limit() {
    let limit = 512 << 10;
    call_on(1 << 20, &prepare(EMPTY, limit)).unwrap();
    let err = call_on(1 << 20, &prepare(RECURSION, limit)).unwrap_err();
    assert_eq!(
        (err.code(), err.blame()),
        (StatusCode::ResourceExhausted, Blame::Guest)
    );
}

/// Recurses as often as its operand says, and then calls the host: 0 to 4 multiply matrices of the
/// element type of that number, 5 sorts, 6 transforms a prime number of points, 7 takes a gradient,
/// 8 takes sines, 9 sets a failure, 10 grows the memory, and 11 traps.
const DEEP: &str = r#"(module
  (import "callbox:ffi/maths@1.0.0" "gemm" (func $gemm (param i32)))
  (import "callbox:ffi/maths@1.0.0" "argsort-rows" (func $sort (param i32 i32 i32 i32 i32 i32)))
  (import "callbox:ffi/maths@1.0.0" "fft-rows-f64" (func $fft (param i32 i32 i32 i32 i32 i32)))
  (import "callbox:ffi/maths@1.0.0" "rms-norm-rows-gradient"
    (func $gradient (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 f32)))
  (import "callbox:ffi/maths@1.0.0" "map" (func $map (param i32 i32 i32 i32 i32)))
  (import "callbox:ffi/api@1.0.0" "set-failure" (func $fail (param i32 i32 i32 i32)))
  (memory (export "memory") 160)
  (func $matrix (param $at i32) (param $data i32)
    (i32.store (local.get $at) (local.get $data))
    (i32.store offset=4 (local.get $at) (i32.const 2097152))
    (i32.store offset=12 (local.get $at) (i32.const 300))
    (i32.store offset=16 (local.get $at) (i32.const 1)))
  (func $product (param $number i32)
    (call $matrix (i32.const 1024) (i32.const 1048576))
    (call $matrix (i32.const 1044) (i32.const 3145728))
    (call $matrix (i32.const 1064) (i32.const 5242880))
    (i32.store offset=1084 (i32.const 0) (i32.const 1))
    (i32.store offset=1088 (i32.const 0) (i32.const 300))
    (i32.store offset=1092 (i32.const 0) (i32.const 300))
    (i32.store offset=1096 (i32.const 0) (i32.const 300))
    (i32.store8 offset=1100 (i32.const 0) (local.get $number))
    (call $gemm (i32.const 1024)))
  (func $act (param $what i32)
    (if (i32.lt_u (local.get $what) (i32.const 5)) (then (call $product (local.get $what))))
    (if (i32.eq (local.get $what) (i32.const 5)) (then
      (call $sort (i32.const 0) (i32.const 1048576) (i32.const 200000) (i32.const 200000)
        (i32.const 3145728) (i32.const 1000))))
    (if (i32.eq (local.get $what) (i32.const 6)) (then
      (call $fft (i32.const 0) (i32.const 1048576) (i32.const 20014) (i32.const 10007)
        (i32.const 3145728) (i32.const 20014))))
    (if (i32.eq (local.get $what) (i32.const 7)) (then
      (call $gradient (i32.const 1048576) (i32.const 4096) (i32.const 2097152) (i32.const 1024)
        (i32.const 3145728) (i32.const 4096) (i32.const 4194304) (i32.const 4096)
        (i32.const 5242880) (i32.const 1024) (f32.const 0))))
    (if (i32.eq (local.get $what) (i32.const 8)) (then
      (call $map (i32.const 6) (i32.const 1048576) (i32.const 8192) (i32.const 2097152)
        (i32.const 8192))))
    (if (i32.eq (local.get $what) (i32.const 9)) (then
      (call $fail (i32.const 3) (i32.const 0) (i32.const 65536) (i32.const 0))))
    (if (i32.eq (local.get $what) (i32.const 10)) (then
      (drop (memory.grow (i32.const 100)))))
    (if (i32.eq (local.get $what) (i32.const 11)) (then (unreachable))))
  (func $down (param $depth i32) (param $what i32) (result i32)
    (if (i32.eqz (local.get $depth)) (then
      (call $act (local.get $what))
      (return (i32.const 0))))
    (i32.add (call $down (i32.sub (local.get $depth) (i32.const 1)) (local.get $what))
      (i32.const 1)))
  (func (export "f") (param $frame i32) (result i32)
    (local $operand i32)
    (local.set $operand (i32.load (i32.load offset=8 (local.get $frame))))
    (drop (call $down (i32.load (local.get $operand)) (i32.load offset=4 (local.get $operand))))
    (i32.const 0)))"#;

fn deep(deterministic: bool) -> PreparedCall {
    let policy = Policy {
        deterministic,
        ..Policy::default()
    };
    let engine = Engine::with_config(Config {
        policy,
        ..Config::default()
    });
    let module = engine.unwrap().load(&wat::parse_str(DEEP).unwrap());
    let nothing = Shape::tuple(Vec::new()).unwrap();
    let site = CallSite::new("f", vec!["s32[2]".parse().unwrap()], nothing);
    module.unwrap().prepare_call(site).unwrap()
}

fn go_down(prepared: &PreparedCall, depth: u32, what: u32) -> Result<(), Status> {
    let operand: Vec<u8> = [depth, what].iter().flat_map(|n| n.to_le_bytes()).collect();
    prepared.call(&[&operand], &mut [])
}

/// Calls from deeper and deeper in the thread's stack, until a call is refused.
#[inline(never)]
fn descend(prepared: &PreparedCall, depth: u32, what: u32, calls: u32) -> u32 {
    let used = std::hint::black_box([0_u8; 2 << 10]);
    let called = go_down(prepared, depth, what);
    let is_refused = called.is_err_and(|status| status.blame() == Blame::Caller);
    let calls = if is_refused {
        calls
    } else {
        descend(prepared, depth, what, calls + 1)
    };
    std::hint::black_box(used);
    calls
}

#[test]
fn a_guest_at_the_end_of_its_stack_may_call_the_host() {
    for deterministic in [false, true] {
        let prepared = deep(deterministic);
        let (mut within, mut past) = (0, 1 << 20);
        while past - within > 1 {
            let depth = within + (past - within) / 2;
            match go_down(&prepared, depth, 12) {
                Ok(()) => within = depth,
                Err(_) => past = depth,
            }
        }
        for what in 0..12 {
            // The last functions of the guest need some stack, too.
            let outcome = |depth| go_down(&prepared, depth, what).map_err(|status| status.code());
            let exhausted = Err(StatusCode::ResourceExhausted);
            let deepest = (within - 64..=within)
                .rev()
                .find(|&d| outcome(d) != exhausted);
            let depth = deepest.unwrap();
            let calls = thread::scope(|scope| {
                let caller = thread::Builder::new().stack_size(704 << 10);
                let calls = || descend(&prepared, depth, what, 0);
                caller.spawn_scoped(scope, calls).unwrap().join().unwrap()
            });
            assert!(calls > 0, "{what}");
        }
    }
}
