//! The guests of the scenes, and calls of them.

use std::sync::Arc;

use callbox::CallSite;
use callbox::policy::Policy;
use callbox::wasm::{Config, Engine, Module, PreparedCall};

/// `grow` adds pages to its memory and returns their old number, or -1, if what it wrote into the
/// first page before is still there. `count` returns how often its instance was called.
pub(crate) const GUEST: &str = r#"(module
  (memory (export "memory") 2)
  (table 8 funcref)
  (global $calls (mut i32) (i32.const 0))
  (func $operand (param $frame i32) (result i32)
    (i32.load (i32.load (i32.load offset=8 (local.get $frame)))))
  (func $return (param $frame i32) (param $value i32) (result i32)
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (local.get $value))
    (i32.const 0))
  (func (export "grow") (param $frame i32) (result i32)
    (local $pages i32)
    (i32.store (i32.const 60000) (i32.const 77))
    (local.set $pages (memory.grow (call $operand (local.get $frame))))
    (if (i32.ne (local.get $pages) (i32.const -1))
      (then (i32.store (i32.mul (local.get $pages) (i32.const 65536)) (i32.const 1))))
    (if (i32.ne (i32.load (i32.const 60000)) (i32.const 77)) (then unreachable))
    (call $return (local.get $frame) (local.get $pages)))
  (func (export "count") (param $frame i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (call $return (local.get $frame) (global.get $calls))))"#;

/// The first call returns at once. Later ones transform 65,521 points until they are stopped, for
/// which the host takes 11 MiB.
pub(crate) const TRANSFORMS: &str = r#"(module
  (import "callbox:ffi/maths@1.0.0" "fft-rows-f64"
    (func $fft (param i32 i32 i32 i32 i32 i32)))
  (memory (export "memory") 64)
  (global $calls (mut i32) (i32.const 0))
  (global i32 (i32.const NUMBER))
  (func (export "f") (param i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (if (i32.eq (global.get $calls) (i32.const 1)) (then (return (i32.const 0))))
    (loop $again
      (call $fft (i32.const 0) (i32.const 65536) (i32.const 131042)
        (i32.const 65521) (i32.const 2097152) (i32.const 131042))
      (br $again))
    (i32.const 0)))"#;

/// Grows its memory by as much as it gets.
pub(crate) const HOLDS: &str = r#"(module
  (memory (export "memory") 1)
  (global i32 (i32.const NUMBER))
  (func (export "f") (param i32) (result i32)
    (local $pages i32)
    (local.set $pages (i32.const 8192))
    (loop $again
      (br_if $again (i32.ne (memory.grow (local.get $pages)) (i32.const -1)))
      (local.set $pages (i32.shr_u (local.get $pages) (i32.const 1)))
      (br_if $again (local.get $pages)))
    (i32.const 0)))"#;

/// Grows its memory by so much, or returns RESOURCE_EXHAUSTED.
pub(crate) const RETURNS: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "f") (param i32) (result i32)
    (if (result i32) (i32.eq (memory.grow (i32.const PAGES)) (i32.const -1))
      (then (i32.const 8)) (else (i32.const 0)))))"#;

/// Its start takes some 12 million units of fuel, and grows its memory by 40 MiB, or gives up.
pub(crate) const STARTS: &str = r#"(module
  (memory (export "memory") PAGES)
  (func $start (local $rounds i32)
    (local.set $rounds (i32.const 1500000))
    (loop $again
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
    (if (i32.eq (memory.grow (i32.const 640)) (i32.const -1)) (then unreachable)))
  (start $start)
  (func (export "f") (param i32) (result i32) (i32.const 0)))"#;

/// Its start takes some 6 million units of fuel, as each call does, and grows.
pub(crate) const STARTS_AND_WORKS: &str = r#"(module
  (memory (export "memory") 1)
  (func $work (local $rounds i32)
    (local.set $rounds (i32.const 800000))
    (loop $again
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1))))))
  (func $start
    (call $work)
    (if (i32.eq (memory.grow (i32.const 640)) (i32.const -1)) (then unreachable)))
  (start $start)
  (func (export "f") (param i32) (result i32) (call $work) (i32.const 0)))"#;

/// Its allocator grows its memory, or gives up. Its state is deleted until that is stopped.
pub(crate) const ALLOCATES: &str = r#"(module
  (memory (export "memory") 1)
  (global i32 (i32.const NUMBER))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $pages i32)
    (local.set $pages (memory.grow (i32.const PAGES)))
    (if (i32.eq (local.get $pages) (i32.const -1)) (then unreachable))
    (i32.mul (local.get $pages) (i32.const 65536)))
  (func (export "f.instantiate") (param $frame i32) (result i32) (i32.const 0))
  (func (export "f.instantiate.drop") (param i32) (loop $on (br $on)))
  (func (export "f") (param i32) (result i32) (i32.const 0)))"#;

pub(crate) fn engine(policy: Policy) -> callbox::Result<Engine> {
    Engine::with_config(Config {
        policy,
        ..Config::default()
    })
}

pub(crate) fn prepare(engine: &Engine, target: &str) -> callbox::Result<PreparedCall> {
    let module = engine.load(&wat::parse_str(GUEST).unwrap())?;
    let shape = || "s32[]".parse().unwrap();
    module.prepare_call(CallSite::new(target, vec![shape()], shape()))
}

pub(crate) fn call(call: &PreparedCall, x: i32) -> callbox::Result<i32> {
    let mut result = [0; 4];
    call.call(&[&x.to_le_bytes()], &mut [&mut result])?;
    Ok(i32::from_le_bytes(result))
}

/// A module that differs from those with other numbers.
pub(crate) fn numbered(text: &str, number: usize) -> Vec<u8> {
    wat::parse_str(text.replace("NUMBER", &number.to_string())).unwrap()
}

/// A call of the target `f` of a module.
pub(crate) fn without_operands(engine: &Engine, text: &str, number: usize) -> PreparedCall {
    call_of(&engine.load(&numbered(text, number)).unwrap())
}

/// A call of the target `f` of a module that was loaded.
pub(crate) fn call_of(module: &Arc<Module>) -> PreparedCall {
    let site = CallSite::new("f", vec![], "s32[]".parse().unwrap());
    module.prepare_call(site).unwrap()
}
