//! Guests and the host, each in the floating-point mode that is theirs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::hint::black_box;
use std::sync::{Arc, Mutex};

use callbox_core::call::{CallSite, TargetModule};
use callbox_core::policy::{Grants, LogLevel, Policy};
use callbox_core::values::{Result, StatusCode};

use callbox_core::float_mode::FloatMode;

use crate::{Config, Engine, LogRecord, PreparedCall};

const OTHER: FloatMode = FloatMode::FLUSHING;

/// A denormal.
const DENORMAL: f32 = 1e-40;

/// `add` returns its operand and 0.0, `start` what the start function computed of the same kind.
/// `log` logs and then adds, `trap` adds and then traps.
const GUEST: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (global $started (mut f32) (f32.const 0))
  (func $operand (param $frame i32) (result f32)
    (f32.load (i32.load (i32.load offset=8 (local.get $frame)))))
  (func $return (param $frame i32) (param $value f32) (result i32)
    (f32.store (i32.load (i32.load offset=16 (local.get $frame))) (local.get $value))
    (i32.const 0))
  (func $zero (result f32) (f32.convert_i32_s (i32.load (i32.const 60000))))
  (func $init
    (global.set $started (f32.add (f32.reinterpret_i32 (i32.const 71362)) (call $zero))))
  (start $init)
  (func (export "start") (param i32) (result i32)
    (call $return (local.get 0) (global.get $started)))
  (func $add (export "add") (param i32) (result i32)
    (call $return (local.get 0) (f32.add (call $operand (local.get 0)) (call $zero))))
  (func (export "log") (param i32) (result i32)
    (call $log (i32.const 2) (i32.const 0) (i32.const 1))
    (call $add (local.get 0)))
  (func (export "trap") (param i32) (result i32)
    (drop (call $add (local.get 0)))
    unreachable))"#;

/// The sum of a denormal and zero, as the thread's mode has it.
fn sum() -> f32 {
    black_box(DENORMAL) + black_box(0.0)
}

fn prepare(engine: &Engine, target: &str) -> PreparedCall {
    let module = engine.load(&wat::parse_str(GUEST).unwrap()).unwrap();
    assert!(module.targets().iter().any(|found| found.name == target));
    let shape = || "f32[]".parse().unwrap();
    let site = CallSite::new(target, vec![shape()], shape());
    module.prepare_call(site).unwrap()
}

fn call(call: &PreparedCall) -> Result<f32> {
    let mut result = [0; 4];
    call.call(&[&DENORMAL.to_le_bytes()], &mut [&mut result])?;
    Ok(f32::from_le_bytes(result))
}

#[test]
fn guests_compute_alike_on_every_thread() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let seen = Arc::clone(&seen);
        move |_: &LogRecord<'_>| seen.lock().unwrap().push((FloatMode::current(), sum()))
    };
    let engine = Engine::with_config(Config {
        policy: Policy {
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        },
        log: Some(Arc::new(sink)),
        ..Config::default()
    })
    .unwrap();
    // The module is compiled, started and called in the other mode.
    let other = OTHER.set();
    for target in ["add", "start", "log"] {
        let prepared = prepare(&engine, target);
        assert_eq!(
            call(&prepared).unwrap().to_bits(),
            DENORMAL.to_bits(),
            "{target}"
        );
        assert_eq!(FloatMode::current(), OTHER, "{target}");
    }
    assert_eq!(*seen.lock().unwrap(), [(OTHER, 0.0)]);
    let trapping = prepare(&engine, "trap");
    assert_eq!(call(&trapping).unwrap_err().code(), StatusCode::Aborted);
    assert_eq!(FloatMode::current(), OTHER);
    drop(other);
    let plain = prepare(&engine, "add");
    assert_eq!(call(&plain).unwrap().to_bits(), DENORMAL.to_bits());
}

#[test]
fn the_compiler_computes_constants_in_the_mode_of_guests() {
    const CONSTANT: &str = r#"(module
      (memory (export "memory") 1)
      (func (export "add") (param $frame i32) (result i32)
        (f32.store (i32.load (i32.load offset=16 (local.get $frame)))
          (f32.mul (f32.reinterpret_i32 (i32.const 71362)) (f32.const 1)))
        (i32.const 0)))"#;
    let _other = OTHER.set();
    let engine = Engine::new().unwrap();
    let module = engine.load(&wat::parse_str(CONSTANT).unwrap()).unwrap();
    let site = CallSite::new(
        "add",
        vec!["f32[]".parse().unwrap()],
        "f32[]".parse().unwrap(),
    );
    let prepared = module.prepare_call(site).unwrap();
    assert_eq!(call(&prepared).unwrap().to_bits(), DENORMAL.to_bits());
}
