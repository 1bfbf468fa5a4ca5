//! Calls from threads with little stack: refused before the guest runs, instead of ending the process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::thread;

use callbox::wasm::{Engine, PreparedCall};
use callbox::{Blame, CallSite, Shape, Status, StatusCode};

/// Calls itself until the stack's limit.
const RECURSION: &str = r#"(module
  (memory (export "memory") 1)
  (func $f (export "f") (param i32) (result i32) (i32.add (call $f (local.get 0)) (i32.const 1))))"#;

/// Does nothing.
const EMPTY: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "f") (param i32) (result i32) (i32.const 0)))"#;

fn prepare(text: &str) -> PreparedCall {
    let module = Engine::new().unwrap().load(&wat::parse_str(text).unwrap());
    let nothing = Shape::tuple(Vec::new()).unwrap();
    let site = CallSite::new("f", Vec::new(), nothing);
    module.unwrap().prepare_call(site).unwrap()
}

fn call_on(stack: usize, text: &str) -> Result<(), Status> {
    let prepared = prepare(text);
    thread::scope(|scope| {
        let caller = thread::Builder::new().stack_size(stack);
        let call = || prepared.call(&[], &mut []);
        caller.spawn_scoped(scope, call).unwrap().join().unwrap()
    })
}

#[test]
fn a_small_stack_is_refused() {
    for text in [EMPTY, RECURSION] {
        for stack in [128 << 10, 512 << 10] {
            let err = call_on(stack, text).unwrap_err();
            assert_eq!(
                (err.code(), err.blame()),
                (StatusCode::ResourceExhausted, Blame::Caller)
            );
            let message = err.message();
            assert!(
                message.contains("655360 bytes of stack left, found"),
                "{message}"
            );
        }
    }
}

#[test]
fn a_stack_that_does_is_taken_to_its_limit() {
    call_on(1 << 20, EMPTY).unwrap();
    let err = call_on(1 << 20, RECURSION).unwrap_err();
    assert_eq!(
        (err.code(), err.blame()),
        (StatusCode::ResourceExhausted, Blame::Guest)
    );
}
