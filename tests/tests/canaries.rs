//! No data of one executable, or of one fresh call, is visible to another. Guests leave canary
//! values and look for them across the reuse of memory, traps, cancellation and growth.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod canary;

use callbox::call::Platform;
use callbox::policy::{Isolation, Policy, Traps};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::wasm::{Config, Engine};
use callbox::{Literal, Registry};

#[test]
fn nothing_is_left_for_another_executable() {
    canary::nothing_is_left(Isolation::Executable, Traps::Signals);
}

#[test]
fn nothing_is_left_for_another_executable_with_explicit_traps() {
    canary::nothing_is_left(Isolation::Executable, Traps::Explicit);
}

#[test]
fn nothing_is_left_for_another_fresh_call() {
    canary::nothing_is_left(Isolation::Fresh, Traps::Signals);
}

#[test]
fn nothing_is_left_for_another_fresh_call_with_explicit_traps() {
    canary::nothing_is_left(Isolation::Fresh, Traps::Explicit);
}

/// `take` copies a long operand full of canaries to its result. `look` counts the canaries in all
/// of its memory.
const NEIGHBOURS: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "take") (param $frame i32) (result i32)
    (local $x i32) (local $i i32)
    (local.set $x (i32.load (i32.load offset=8 (local.get $frame))))
    (loop
      (i64.store
        (i32.add (i32.load (i32.load offset=16 (local.get $frame))) (local.get $i))
        (i64.load (i32.add (local.get $x) (local.get $i))))
      (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 8))) (i32.const 1024))))
    (i32.const 0))
  (func (export "look") (param $frame i32) (result i32)
    (local $at i32) (local $n i64) (local $canary i64)
    (local.set $canary (i64.xor
      (i64.load (i32.load (i32.load offset=8 (local.get $frame)))) (i64.const 0x0123456789abcdef)))
    (loop
      (local.set $n (i64.add (local.get $n) (i64.extend_i32_u
        (i64.eq (i64.load (local.get $at)) (local.get $canary)))))
      (br_if 0 (i32.lt_u
        (local.tee $at (i32.add (local.get $at) (i32.const 8)))
        (i32.shl (memory.size) (i32.const 16)))))
    (i64.store (i32.load (i32.load offset=16 (local.get $frame))) (local.get $n))
    (i32.const 0)))"#;

const PROGRAM: &str = r#"HloModule neighbours
ENTRY main {
  masked = s64[1] parameter(0)
  data = s64[128] parameter(1)
  taken = s64[128] custom-call(data), custom_call_target="take", api_version=API_VERSION_TYPED_FFI, custom_call_has_side_effect=true
  found = s64[1] custom-call(masked), custom_call_target="look", api_version=API_VERSION_TYPED_FFI, control-predecessors={taken}
  ROOT out = (s64[1], s64[128]) tuple(found, taken)
}"#;

/// Returns how many canaries `look` finds after `take`, another call site of the same executable,
/// ran.
fn neighbours(isolation: Isolation) -> i64 {
    let engine = Engine::with_config(Config {
        policy: Policy {
            isolation,
            ..Policy::default()
        },
        ..Config::default()
    });
    let module = engine
        .unwrap()
        .load(&wat::parse_str(NEIGHBOURS).unwrap())
        .unwrap();
    let mut registry = Registry::new();
    registry.register_module(module).unwrap();
    let program = Program::from_hlo_text(PROGRAM).unwrap();
    let executable = Executable::compile(&program, &registry, Platform::Host).unwrap();
    let canary = 0x7e57_c0de_5eed_cafe_i64;
    let inputs = [
        Literal::array(&[1], &[canary ^ 0x0123_4567_89ab_cdef]).unwrap(),
        Literal::array(&[128], &[canary; 128]).unwrap(),
    ];
    let result = executable
        .execute(0, &inputs, &ExecuteOptions::default())
        .unwrap();
    result.into_elements()[0].to_vec::<i64>().unwrap()[0]
}

/// Call sites of one executable can see each other's data in the arena, unless each call has a
/// fresh instance.
#[test]
fn call_sites_share_an_arena_only_within_an_executable() {
    assert!(neighbours(Isolation::Executable) > 0);
    assert_eq!(neighbours(Isolation::Fresh), 0);
}
