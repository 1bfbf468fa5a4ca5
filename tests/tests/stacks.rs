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
