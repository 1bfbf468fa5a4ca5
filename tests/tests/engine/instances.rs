//! When instances are created, pooled and dropped, depending on the engine's policy.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use callbox::call::Platform;
use callbox::policy::{Grants, Isolation, Limits, LogLevel, Policy};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::wasm::{Config, Engine, LogRecord, Module, PreparedCall};
use callbox::{
    Attribute, Blame, CallOptions, CallSite, Deadline, Dictionary, Literal, Registry, Result,
    Status, StatusCode,
};

/// A target `f` of an s32[] that returns how often its instance was called. It logs first if its
/// operand is not 0.
const COUNTER: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (global $calls (mut i32) (i32.const 0))
  (func (export "f") (param $frame i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (if (i32.load (i32.load (i32.load offset=8 (local.get $frame))))
      (then (call $log (i32.const 2) (i32.const 0) (i32.const 0))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (global.get $calls))
    (i32.const 0)))"#;

const PROGRAM: &str = r#"HloModule m
ENTRY main {
  x = s32[] parameter(0)
  ROOT y = s32[] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI
}"#;

type Sink = fn(&LogRecord<'_>);

fn engine(instances: u32, isolation: Isolation, sink: Sink) -> Engine {
    let limits = Limits {
        instances,
        ..Limits::default()
    };
    Engine::with_config(Config {
        policy: Policy {
            limits,
            isolation,
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        },
        log: Some(Arc::new(sink)),
        ..Config::default()
    })
    .unwrap()
}

fn ignore(_: &LogRecord<'_>) {}

/// Panics without printing a message.
fn fail(_: &LogRecord<'_>) {
    resume_unwind(Box::new("the sink is full"));
}

fn load(engine: &Engine, text: &str) -> Arc<Module> {
    engine.load(&wat::parse_str(text).unwrap()).unwrap()
}

fn prepare(module: &Arc<Module>) -> PreparedCall {
    let shape = || "s32[]".parse().unwrap();
    let site = CallSite::new("f", vec![shape()], shape());
    module.prepare_call(site).unwrap()
}

fn call_with(call: &PreparedCall, options: &CallOptions, x: i32) -> Result<i32> {
    let mut result = [0; 4];
    call.call_with(options, &[&x.to_le_bytes()], &mut [&mut result])?;
    Ok(i32::from_le_bytes(result))
}

fn call(call: &PreparedCall, x: i32) -> Result<i32> {
    call_with(call, &CallOptions::default(), x)
}

fn deadline(deadline: Deadline) -> CallOptions {
    CallOptions {
        deadline: Some(deadline),
        ..CallOptions::default()
    }
}

#[test]
fn idle_instances_make_way() {
    let engine = engine(2, Isolation::Executable, ignore);
    let mut registry = Registry::new();
    registry.register_module(load(&engine, COUNTER)).unwrap();
    let program = Program::from_hlo_text(PROGRAM).unwrap();
    let executables =
        [(); 3].map(|()| Executable::compile(&program, &registry, Platform::Host).unwrap());
    for _ in 0..3 {
        for executable in &executables {
            let inputs = [Literal::scalar(0_i32)];
            executable
                .execute(0, &inputs, &ExecuteOptions::default())
                .unwrap();
        }
    }
}

/// A target of an s32[] that returns the attribute whose name comes first, an s32, and in the upper
/// 16 bits how often its instance was called.
const ECHO: &str = r#"(module
  (memory (export "memory") 1)
  (global $calls (mut i32) (i32.const 0))
  (func (export "f") (param $frame i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame)))
      (i32.or (i32.shl (global.get $calls) (i32.const 16))
        (i32.load (i32.load offset=8 (i32.load offset=24 (local.get $frame))))))
    (i32.const 0))
  (func (export "staged") (param i32) (result i32) (i32.const 0))
  (func (export "staged.instantiate") (param i32) (result i32) (i32.const 0)))"#;

fn attributes(value: i32) -> Dictionary {
    let attribute = Attribute::Scalar(Literal::scalar(value));
    [("a".to_owned(), attribute)].into_iter().collect()
}

#[test]
fn call_sites_that_differ_in_their_attributes_share_instances() {
    let module = load(&engine(2, Isolation::Executable, ignore), ECHO);
    let shape = || "s32[]".parse().unwrap();
    let site = CallSite::new("f", vec![shape()], shape()).with_attributes(attributes(0));
    let first = module.prepare_call(site).unwrap();
    assert_eq!(call(&first, 0), Ok(1 << 16));
    for value in 1..1000 {
        let other = first.with_attributes(attributes(value)).unwrap().unwrap();
        assert_eq!(call(&other, 0), Ok((2 * value) << 16 | value));
        assert_eq!(call(&first, 0), Ok((2 * value + 1) << 16));
    }
}

#[test]
fn call_sites_with_stages_or_long_attributes_have_instances_of_their_own() {
    let module = load(&engine(2, Isolation::Executable, ignore), ECHO);
    let shape = || "s32[]".parse().unwrap();
    let prepare = |target| {
        let site = CallSite::new(target, vec![shape()], shape()).with_attributes(attributes(0));
        module.prepare_call(site).unwrap()
    };
    let staged = prepare("staged").with_attributes(attributes(1));
    assert!(staged.unwrap().is_none());
    let long = Attribute::String(vec![0; 1 << 20]);
    let long = [("a".to_owned(), long)].into_iter().collect();
    assert!(prepare("f").with_attributes(long).unwrap().is_none());
}

#[test]
fn a_panic_of_the_sink_drops_the_instance() {
    let call_site = prepare(&load(&engine(2, Isolation::Executable, fail), COUNTER));
    assert_eq!(call(&call_site, 0), Ok(1));
    assert_eq!(call(&call_site, 0), Ok(2));
    let panicked = catch_unwind(AssertUnwindSafe(|| call(&call_site, 1)));
    assert!(panicked.is_err(), "{panicked:?}");
    assert_eq!(call(&call_site, 0), Ok(1));
    assert_eq!(call(&call_site, 0), Ok(2));
}

#[test]
fn an_idle_instance_makes_way_after_a_panic_too() {
    let module = load(&engine(1, Isolation::Executable, fail), COUNTER);
    let (one, other) = (prepare(&module), prepare(&module));
    let panicked = catch_unwind(AssertUnwindSafe(|| call(&one, 1)));
    assert!(panicked.is_err(), "{panicked:?}");
    assert_eq!(call(&one, 0), Ok(1));
    assert_eq!(call(&other, 0), Ok(1));
}

#[test]
fn the_same_file_under_another_policy_is_another_module() {
    let mut registry = Registry::new();
    let module = load(&engine(2, Isolation::Executable, ignore), COUNTER);
    registry
        .register("f", Arc::clone(&module) as _, "f")
        .unwrap();
    registry.register("f", module, "f").unwrap();
    let fresh = load(&engine(2, Isolation::Fresh, ignore), COUNTER);
    let status = registry.register("f", fresh, "f").unwrap_err();
    assert_eq!(status.code(), StatusCode::AlreadyExists);
}

#[test]
fn a_past_deadline_keeps_the_instance() {
    let call_site = prepare(&load(&engine(2, Isolation::Executable, ignore), COUNTER));
    let past = deadline(Deadline::At(Instant::now()));
    let refused = |status: Status| {
        assert_eq!(status.code(), StatusCode::DeadlineExceeded);
        assert_eq!(status.blame(), Blame::Caller);
        let (module, message) = status.message().split_once(": ").unwrap();
        assert!(module.starts_with("module "), "{status}");
        message.to_owned()
    };
    let status = call_with(&call_site, &past, 0).unwrap_err();
    assert_eq!(
        refused(status),
        "the module was not called: its deadline had passed"
    );
    assert_eq!(call(&call_site, 0), Ok(1));
    let status = call_with(&call_site, &past, 0).unwrap_err();
    assert_eq!(
        refused(status),
        "target \"f\" was not called: its deadline had passed"
    );
    assert_eq!(call(&call_site, 0), Ok(2));
}

#[test]
fn a_start_that_loops_is_stopped() {
    let text = r#"(module (memory (export "memory") 1)
        (func $start (loop (br 0))) (start $start)
        (func (export "f") (param i32) (result i32) (i32.const 0)))"#;
    let call_site = prepare(&load(&engine(2, Isolation::Executable, ignore), text));
    let options = deadline(Deadline::After(Duration::from_millis(300)));
    let status = call_with(&call_site, &options, 0).unwrap_err();
    assert_eq!(status.code(), StatusCode::DeadlineExceeded);
    assert_eq!(status.blame(), Blame::Guest);
}

/// Memories of 8 MiB and more are freed in the background, so that the call waits for them.
#[test]
fn a_deadline_that_passes_while_an_instance_makes_way_is_what_is_reported() {
    let engine = engine(1, Isolation::Executable, ignore);
    let of_pages = |pages: u32| {
        let memory = format!("(memory (export \"memory\") {pages})");
        let text = COUNTER.replace("(memory (export \"memory\") 1)", &memory);
        prepare(&load(&engine, &text))
    };
    let call_sites = [of_pages(160), of_pages(161)];
    for micros in 0..1000 {
        let options = deadline(Deadline::After(Duration::from_micros(micros / 4)));
        for call_site in &call_sites {
            if let Err(status) = call_with(call_site, &options, 0) {
                assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
            }
        }
    }
}

/// `_initialize`, a stage and the target each take two thirds of the deadline, so that each alone
/// would end in time.
#[test]
fn one_deadline_is_for_everything_that_a_call_runs() {
    const NAPS: u32 = 10;
    const NAP: Duration = Duration::from_millis(20);
    let text = format!(
        r#"(module
      (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
      (memory (export "memory") 1)
      (func $work (local $i i32)
        (loop
          (call $log (i32.const 2) (i32.const 0) (i32.const 0))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if 0 (i32.lt_u (local.get $i) (i32.const {NAPS})))))
      (func (export "_initialize") (call $work))
      (func (export "f.prepare") (param i32) (result i32) (call $work) (i32.const 0))
      (func (export "f") (param i32) (result i32) (call $work) (i32.const 0)))"#
    );
    let sleepy = engine(2, Isolation::Executable, |_| thread::sleep(NAP));
    let call_site = prepare(&load(&sleepy, &text));
    let options = deadline(Deadline::After(NAP * NAPS * 3 / 2));
    let status = call_with(&call_site, &options, 0).unwrap_err();
    assert_eq!(status.code(), StatusCode::DeadlineExceeded);
    assert_eq!(status.blame(), Blame::Guest);
}

/// A module whose start, `_initialize` or target `f` loops.
fn looping(start: &str, initialize: &str, target: &str) -> String {
    format!(
        r#"(module
      (memory (export "memory") 1)
      (func $start {start}) (start $start)
      (func (export "_initialize") {initialize})
      (func (export "f") (param i32) (result i32) {target} (i32.const 0)))"#
    )
}

const LOOP: &str = "(loop (br 0))";

fn all_looping() -> [String; 3] {
    [
        looping(LOOP, "", ""),
        looping("", LOOP, ""),
        looping("", "", LOOP),
    ]
}

/// The code and blame of calls of modules that loop, each with an engine whose only instance is
/// idle.
fn of_loops_in_a_full_engine(
    config: impl Fn() -> Config,
    options: &CallOptions,
    x: i32,
) -> Vec<(StatusCode, Blame)> {
    let of_loop = |text: String| {
        let engine = Engine::with_config(config()).unwrap();
        let idle = prepare(&load(&engine, DELETER));
        let looping = prepare(&load(&engine, &text));
        call(&idle, x).unwrap();
        let status = call_with(&looping, options, 0).unwrap_err();
        assert!(!status.to_string().contains("not called"), "{status}");
        (status.code(), status.blame())
    };
    all_looping().map(of_loop).to_vec()
}

/// A target `f` of an s32[], whose state has a deleter that logs.
const DELETER: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (func (export "f.instantiate") (param i32) (result i32)
    (i32.store offset=40 (local.get 0) (i32.const 16))
    (i32.const 0))
  (func (export "f.instantiate.drop") (param i32)
    (call $log (i32.const 2) (i32.const 0) (i32.const 0)))
  (func (export "f") (param i32) (result i32) (i32.const 0)))"#;

fn of_one_instance(sink: Sink, deterministic: bool) -> Config {
    Config {
        policy: Policy {
            limits: Limits {
                instances: 1,
                fuel: 1_000_000,
                ..Limits::default()
            },
            deterministic,
            isolation: Isolation::Executable,
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        },
        log: Some(Arc::new(sink)),
        ..Config::default()
    }
}

#[test]
fn a_loop_is_to_blame_although_another_instance_makes_way_first() {
    let options = deadline(Deadline::After(Duration::from_millis(300)));
    let late = (StatusCode::DeadlineExceeded, Blame::Guest);
    let each = of_loops_in_a_full_engine(|| of_one_instance(ignore, false), &options, 0);
    assert_eq!(each, [late; 3]);
    let options = CallOptions::default();
    let each = of_loops_in_a_full_engine(|| of_one_instance(ignore, true), &options, 0);
    assert_eq!(each, [late; 3]);
}

/// The deleter's log holds up the call for two thirds of its deadline.
#[test]
fn a_loop_is_not_to_blame_if_the_host_waited_for_most_of_the_time() {
    let config = || of_one_instance(|_| thread::sleep(Duration::from_millis(400)), false);
    let options = deadline(Deadline::After(Duration::from_millis(600)));
    let late = (StatusCode::DeadlineExceeded, Blame::Caller);
    let each = of_loops_in_a_full_engine(config, &options, 0);
    assert_eq!(each, [late; 3]);
}
