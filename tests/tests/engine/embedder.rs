//! Isolation of an embedder's objects: user data, log sinks, other callers' deadlines, and
//! functions of other call sites.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use callbox::call::Deadline;
use callbox::policy::{Grants, Limits, LogLevel, Policy};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::wasm::{Config, Engine, Module, ModuleFile, PreparedCall};
use callbox::{
    CallOptions, CallSite, CancelToken, Literal, Platform, Registry, Shape, StatusCode, UserData,
};

fn engine(instances: u32) -> Engine {
    let limits = Limits {
        instances,
        ..Limits::default()
    };
    let config = Config {
        policy: Policy {
            limits,
            ..Policy::default()
        },
        ..Config::default()
    };
    Engine::with_config(config).unwrap()
}

/// A grant for one module does not apply to another, even if the embedder passes it explicitly.
#[test]
fn a_grant_for_another_module_loads_nothing() {
    let engine = engine(2);
    let wasm = wat::parse_str(r#"(module (memory (export "memory") 1))"#).unwrap();
    let digest = engine.load(&wasm).unwrap().info().sha256.clone();
    let grants = |sha256: &str| Grants {
        sha256: Some(sha256.to_owned()),
        ..Grants::default()
    };
    engine.load_with(&wasm, &grants(&digest)).unwrap();
    let other = "0".repeat(64);
    let status = engine.load_with(&wasm, &grants(&other)).unwrap_err();
    assert_eq!(
        status.to_string(),
        format!(
            "PERMISSION_DENIED: expected the module to have the SHA-256 {other} that the policy names, found {digest}"
        )
    );
}

/// Reports a failure whose text is that of a trap, and goes on with a line of callbox's.
const FORGER: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "set-failure" (func $fail (param i32 i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "target \"f\" trapped: out of bounds\n  blame: host")
  (func (export "f") (param i32) (result i32)
    (call $fail (i32.const 11) (i32.const 0) (i32.const 47) (i32.const 0))
    (i32.const 11)))"#;

#[test]
fn a_guests_text_is_marked_and_names_its_module() {
    let engine = engine(2);
    let wasm = wat::parse_str(FORGER).unwrap();
    let file = ModuleFile::read(wasm, &engine.policy().limits).unwrap();
    let unnamed = format!("module {}", &file.info().sha256[..8]);
    let long = "n".repeat(10_000);
    for (file, name) in [
        (file.clone(), unnamed.as_str()),
        (file.clone().named("forger.wasm"), "forger.wasm"),
        (file.clone().named("a\nb\""), r#"a\nb\""#),
        (file.named(&long), "nnnnnnnn"),
    ] {
        let module = engine.load_file(&file, &Grants::default()).unwrap();
        let site = CallSite::new("f", Vec::new(), Shape::tuple(Vec::new()).unwrap());
        let status = module.prepare_call(site).unwrap().call(&[], &mut []);
        let status = status.unwrap_err();
        assert_eq!(status.code(), StatusCode::OutOfRange);
        let message = status.message();
        assert!(
            message.starts_with(name) && message.len() < 2000,
            "{status}"
        );
        let said = concat!(
            r#": target "f" failed: the guest says "target \"f\" trapped: out of bounds"#,
            "\n  |   blame: host\""
        );
        assert!(message.ends_with(said), "{status}");
    }
}

fn load(engine: &Engine, text: &str) -> Arc<Module> {
    engine.load(&wat::parse_str(text).unwrap()).unwrap()
}

fn prepare(module: &Arc<Module>) -> PreparedCall {
    let nothing = Shape::tuple(Vec::new()).unwrap();
    let site = CallSite::new("f", Vec::new(), nothing);
    module.prepare_call(site).unwrap()
}

const EMPTY: &str = r#"(module (memory (export "memory") 1)
  (func (export "f") (param i32) (result i32) (i32.const 0)))"#;

#[test]
fn an_idle_instance_keeps_nothing_of_its_last_caller() {
    let prepared = prepare(&load(&engine(4), EMPTY));
    let data = Arc::new(UserData::from([("key".to_owned(), vec![1, 2, 3])]));
    let options = CallOptions {
        user_data: Some(Arc::clone(&data)),
        cancel: Some(CancelToken::new()),
        ..CallOptions::default()
    };
    prepared.call_with(&options, &[], &mut []).unwrap();
    drop(options);
    assert_eq!(Arc::strong_count(&data), 1);
}

#[test]
fn deleters_of_idle_instances_do_not_take_another_callers_time() {
    let engine = engine(4);
    let slow = load(
        &engine,
        r#"(module (memory (export "memory") 1)
          (func (export "f.instantiate") (param i32) (result i32) (i32.const 0))
          (func (export "f.instantiate.drop") (param i32) (loop $on (br $on)))
          (func (export "f") (param i32) (result i32) (i32.const 0)))"#,
    );
    let idle: Vec<_> = (0..4).map(|_| prepare(&slow)).collect();
    let victim = prepare(&load(&engine, EMPTY));
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(300))),
        ..CallOptions::default()
    };
    let begin = Instant::now();
    victim.call_with(&options, &[], &mut []).unwrap();
    // One instance is evicted within the deadline; the rest is slack for a busy machine.
    assert!(
        begin.elapsed() < Duration::from_millis(500),
        "{:?}",
        begin.elapsed()
    );
    // The remaining instances still exist, and take their time to drop.
    drop(idle);
}

/// `f` logs, and so does the deleter of its stage `prepare`.
const LOGS: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (func (export "f.prepare") (param i32) (result i32) (i32.const 0))
  (func (export "f.prepare.drop") (param i32) (call $log (i32.const 2) (i32.const 0) (i32.const 1)))
  (func (export "f") (param i32) (result i32)
    (call $log (i32.const 2) (i32.const 0) (i32.const 1))
    (i32.const 0)))"#;

#[test]
fn a_sink_that_panics_ends_the_call_and_not_the_process() {
    let panics = Arc::new(Mutex::new(true));
    let sink = Arc::clone(&panics);
    let engine = Engine::with_config(Config {
        policy: Policy {
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        },
        log: Some(Arc::new(move |_| {
            let panics = *sink.lock().unwrap();
            assert!(!panics, "the sink panics");
        })),
        ..Config::default()
    });
    let engine = engine.unwrap();
    let text = r#"HloModule m
ENTRY main {
  x = () custom-call(), custom_call_target="a", api_version=API_VERSION_TYPED_FFI, custom_call_has_side_effect=true
  y = () custom-call(), custom_call_target="b", api_version=API_VERSION_TYPED_FFI, custom_call_has_side_effect=true
  ROOT r = s32[] constant(7)
}"#;
    let mut registry = Registry::new();
    registry.register("a", load(&engine, LOGS), "f").unwrap();
    // A different file, so that two modules are involved.
    let other = format!(
        "{} (data (i32.const 8) \"b\"))",
        LOGS.strip_suffix(')').unwrap()
    );
    registry.register("b", load(&engine, &other), "f").unwrap();
    let program = Program::from_hlo_text(text).unwrap();
    let executable = Executable::compile(&program, &registry, Platform::Host).unwrap();
    let execute = || executable.execute(0, &[], &ExecuteOptions::default());
    assert!(catch_unwind(AssertUnwindSafe(execute)).is_err());
    *panics.lock().unwrap() = false;
    let r = execute().unwrap();
    assert_eq!(r.to_vec::<i32>().unwrap(), [7]);
}

/// `a` may call a function. `b` may not, but tries to in its API table's function, after `a` ran in
/// the same instance.
const LEAK: &str = r#"(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call_function (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global $code (mut i32) (i32.const -1))
  (func (export "a") (param $frame i32) (result i32)
    (call $call_function (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))
  (func (export "jax-ffi-api") (result i32)
    (global.set $code (call $call_function (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))
    (i32.const 64))
  (func (export "b") (param i32 i32 i32 i32 i32)
    (i32.store (i32.load (local.get 3)) (global.get $code))))"#;

#[test]
fn a_call_site_calls_nothing_that_another_was_handed() {
    let text = r#"HloModule m
nothing { ROOT r = () tuple() }
ENTRY main {
  a = () custom-call(), custom_call_target="a", called_computations={nothing}, api_version=API_VERSION_TYPED_FFI, custom_call_has_side_effect=true
  ROOT b = s32[] custom-call(), custom_call_target="b", api_version=API_VERSION_JAX_FFI, control-predecessors={a}
}"#;
    let mut registry = Registry::new();
    registry.register_module(load(&engine(4), LEAK)).unwrap();
    let program = Program::from_hlo_text(text).unwrap();
    let executable = Executable::compile(&program, &registry, Platform::Host).unwrap();
    let b: Literal = executable
        .execute(0, &[], &ExecuteOptions::default())
        .unwrap();
    let not_found = i32::from(StatusCode::NotFound.number());
    assert_eq!(b.to_vec::<i32>().unwrap(), [not_found]);
}
