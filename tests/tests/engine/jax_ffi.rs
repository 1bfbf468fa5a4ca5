//! FFI calls with the guest of the proposal's example, and with modules defined here.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use callbox::call::{CallOptions, CallSite, Platform, PreparedCalls, Signature, TargetModule};
use callbox::policy::{Grants, LogLevel, Policy};
use callbox::wasm::{Config, Engine, Module};
use callbox::{Blame, Literal, Result, Shape, StaticInfo, Status, StatusCode};
use callbox_tests::jax_ffi::{FfiCall, FfiCalls, Function};

const ADD_N: &str = include_str!("../../../host/callbox/examples/add_n_jax.wat");

/// An object that counts its calls. `make` logs "make", and fails for empty bytes; `free` logs
/// "free". `count` returns the number of calls, and fails, traps or succeeds as the operand says
/// (1, 2, 0).
const COUNTER: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "set-failure" (func $set_failure (param i32 i32 i32 i32)))
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "make" "free" "no")
  (func (export "jax-ffi-api") (result i32) (i32.const 64))
  (func (export "make") (param $data i32) (param $size i32) (result i32)
    (call $log (i32.const 2) (i32.const 16) (i32.const 4))
    (if (i32.eqz (local.get $size)) (then (return (i32.const 0))))
    (i32.store (i32.const 128) (i32.load (local.get $data)))
    (i32.const 128))
  (func (export "free") (param i32)
    (if (i32.ne (local.get 0) (i32.const 128)) (then unreachable))
    (call $log (i32.const 2) (i32.const 20) (i32.const 4)))
  (func (export "count") (param $api i32) (param $status i32) (param $info i32) (param $outputs i32) (param $inputs i32)
    (local $what i32)
    (local.set $what (i32.load (i32.load (local.get $inputs))))
    (if (i32.eq (local.get $what) (i32.const 2)) (then unreachable))
    (if (i32.eq (local.get $what) (i32.const 1))
      (then (call $set_failure (i32.const 13) (i32.const 24) (i32.const 2) (i32.const 1))))
    (i32.store (local.get $info) (i32.add (i32.load (local.get $info)) (i32.const 1)))
    (i32.store (i32.load (local.get $outputs)) (i32.load (local.get $info)))))"#;

type Log = Arc<Mutex<Vec<String>>>;

fn engine() -> (Engine, Log) {
    let log = Log::default();
    let sink = Arc::clone(&log);
    let engine = Engine::with_config(Config {
        policy: Policy {
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        },
        log: Some(Arc::new(move |record| {
            sink.lock().unwrap().push(record.message.to_owned());
        })),
        ..Config::default()
    });
    (engine.unwrap(), log)
}

/// Waits for the log's messages: a dropped instance runs its destructors in the background.
#[track_caller]
fn comes(log: &Log, expected: &[&str]) {
    let until = Instant::now() + Duration::from_secs(20);
    while log.lock().unwrap().len() < expected.len() && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    let found = log.lock().unwrap().clone();
    assert_eq!(found, expected);
}

/// Loads the guest with this metadata for its target.
fn load(engine: &Engine, text: &str, metadata: &str) -> Arc<Module> {
    let text = text.trim_end().strip_suffix(')').unwrap();
    let metadata = metadata.replace('"', "\\\"");
    let text = if metadata.is_empty() {
        format!("{text})")
    } else {
        format!("{text} (@custom \"callbox.targets\" \"{metadata}\"))")
    };
    engine.load(&wat::parse_str(text).unwrap()).unwrap()
}

fn call_of(name: &str, module: Arc<dyn TargetModule>) -> FfiCall {
    let mut call = FfiCalls::new().call(name).unwrap();
    call.register_function(Function::new(module, name).unwrap(), "cpu")
        .unwrap();
    call
}

fn n(n: f32) -> Option<StaticInfo> {
    Some(StaticInfo::Value(n.to_le_bytes().to_vec()))
}

fn by_reference(argument: &[u8]) -> Option<StaticInfo> {
    Some(StaticInfo::Reference {
        constructor: "make".to_owned(),
        destructor: "free".to_owned(),
        argument: argument.to_vec(),
    })
}

/// What the guest said in a failure's message.
fn said(status: &Status) -> &str {
    let (_, quoted) = status.message().split_once("the guest says \"").unwrap();
    quoted.strip_suffix('"').unwrap()
}

#[test]
fn the_proposals_example() {
    let (engine, _) = engine();
    let add_n = call_of("add_n", load(&engine, ADD_N, ""));
    let x = Literal::scalar(4.0_f32);
    let y = add_n.invoke(std::slice::from_ref(&x), n(4.0), x.shape());
    assert_eq!(y.unwrap().to_vec::<f32>().unwrap(), [8.0]);
    let err = add_n
        .invoke(std::slice::from_ref(&x), n(-1.0), x.shape())
        .unwrap_err();
    assert_eq!(
        (err.code(), said(&err), err.recoverable()),
        (StatusCode::Internal, "Info must be >= 0", false)
    );
}

#[test]
fn names_are_unique() {
    let mut calls = FfiCalls::new();
    calls.call("f").unwrap();
    calls.call("g").unwrap();
    let err = calls.call("f").unwrap_err();
    assert_eq!(
        (err.code(), err.message()),
        (
            StatusCode::AlreadyExists,
            "expected a name that no FFI call has, found \"f\" for the second time"
        )
    );
    for name in ["", "$f"] {
        assert_eq!(
            calls.call(name).unwrap_err().code(),
            StatusCode::InvalidArgument
        );
    }
}

/// A CUDA module with one target, which is never called.
#[derive(Debug)]
struct CudaModule(Vec<Signature>);

impl TargetModule for CudaModule {
    fn identity(&self) -> &str {
        "cuda"
    }

    fn platform(&self) -> Platform {
        Platform::Cuda
    }

    fn targets(&self) -> &[Signature] {
        &self.0
    }

    fn prepare(
        self: Arc<Self>,
        _: Vec<CallSite>,
        _: &CallOptions,
    ) -> Result<Box<dyn PreparedCalls>> {
        Err(Status::internal("not called"))
    }
}

#[test]
fn the_kind_of_a_function_is_checked_when_it_is_registered() {
    let (engine, _) = engine();
    let module = load(&engine, ADD_N, "");
    let signature = module.targets()[0].clone();
    let cuda = Function::new(Arc::new(CudaModule(vec![signature])), "add_n").unwrap();
    let cpu = Function::new(module, "add_n").unwrap();
    let mut call = FfiCalls::new().call("add_n").unwrap();
    for (function, platform, message) in [
        (
            &cuda,
            "cpu",
            "FFI call \"add_n\": expected a function of the kind JAX_FFI_CALL_CPU for the platform \"cpu\", found JAX_FFI_CALL_CUDA",
        ),
        (
            &cpu,
            "cuda",
            "FFI call \"add_n\": expected a function of the kind JAX_FFI_CALL_CUDA for the platform \"cuda\", found JAX_FFI_CALL_CPU",
        ),
        (
            &cpu,
            "tpu",
            "FFI call \"add_n\": expected the platform Host, Cpu or CUDA, found \"tpu\"",
        ),
    ] {
        let err = call
            .register_function(function.clone(), platform)
            .unwrap_err();
        assert_eq!(
            (err.code(), err.message()),
            (StatusCode::InvalidArgument, message)
        );
    }
    let x = Literal::scalar(1.0_f32);
    let err = call
        .invoke(std::slice::from_ref(&x), n(1.0), x.shape())
        .unwrap_err();
    assert_eq!(
        (err.code(), err.message()),
        (
            StatusCode::NotFound,
            "FFI call \"add_n\": expected a function for the platform Host, found none"
        )
    );
    call.register_function(cuda, "cuda").unwrap();
    call.register_function(cpu.clone(), "cpu").unwrap();
    call.register_function(cpu, "Host").unwrap();
}

#[test]
fn a_platform_has_one_function() {
    let (engine, _) = engine();
    let mut call = call_of("add_n", load(&engine, ADD_N, ""));
    let other = load(&engine, COUNTER, "");
    let err = call
        .register_function(Function::new(other, "count").unwrap(), "cpu")
        .unwrap_err();
    assert_eq!(err.code(), StatusCode::AlreadyExists);
}

#[test]
fn functions_of_other_conventions_are_refused() {
    let (engine, _) = engine();
    let module = engine
        .load(&wat::parse_str(include_str!("../../../host/callbox/examples/negate.wat")).unwrap())
        .unwrap();
    let err = Function::new(Arc::clone(&module) as Arc<dyn TargetModule>, "negate").unwrap_err();
    assert_eq!(
        (err.code(), err.message()),
        (
            StatusCode::InvalidArgument,
            "expected a function (api, status, static_info, outputs, inputs) for an FFI call, found \"negate\" of API_VERSION_TYPED_FFI"
        )
    );
    let err = Function::new(module, "negated").unwrap_err();
    assert_eq!(err.code(), StatusCode::NotFound);
}

#[test]
fn static_information_by_reference_is_made_once_and_taken_back_once() {
    let (engine, log) = engine();
    let count = call_of("count", load(&engine, COUNTER, ""));
    let scalar: Shape = "s32[]".parse().unwrap();
    let compiled = count
        .compile(
            vec![scalar.clone()],
            by_reference(&5_i32.to_le_bytes()),
            scalar,
        )
        .unwrap();
    assert_eq!(*log.lock().unwrap(), ["make"]);
    let call = |what: i32| {
        let y = compiled.call(&[Literal::scalar(what)], &CallOptions::default());
        y.map(|y| y.to_vec::<i32>().unwrap()[0])
    };
    assert_eq!(call(0), Ok(6));
    // A failure that the function reports leaves the object as the function left it.
    let err = call(1).unwrap_err();
    assert_eq!((said(&err), err.recoverable()), ("no", true));
    assert_eq!(call(0), Ok(8));
    assert_eq!(*log.lock().unwrap(), ["make"]);
    drop(compiled);
    comes(&log, &["make", "free"]);
}

#[test]
fn a_trap_takes_the_object_with_its_instance() {
    let (engine, log) = engine();
    let count = call_of("count", load(&engine, COUNTER, ""));
    let scalar: Shape = "s32[]".parse().unwrap();
    let compiled = count
        .compile(
            vec![scalar.clone()],
            by_reference(&5_i32.to_le_bytes()),
            scalar,
        )
        .unwrap();
    let call = |what: i32| compiled.call(&[Literal::scalar(what)], &CallOptions::default());
    assert_eq!(call(2).unwrap_err().code(), StatusCode::Aborted);
    // The next instance makes its own object. The first instance runs nothing any more.
    assert_eq!(call(0).unwrap().to_vec::<i32>().unwrap(), [6]);
    drop(compiled);
    comes(&log, &["make", "make", "free"]);
}

#[test]
fn a_constructor_that_makes_nothing_fails_the_compilation() {
    let (engine, log) = engine();
    let count = call_of("count", load(&engine, COUNTER, ""));
    let compile = |info| {
        let scalar: Shape = "s32[]".parse().unwrap();
        count
            .compile(vec![scalar.clone()], info, scalar)
            .unwrap_err()
    };
    let err = compile(by_reference(&[]));
    assert_eq!(
        (err.code(), err.blame()),
        (StatusCode::Internal, Blame::Guest)
    );
    assert_eq!(*log.lock().unwrap(), ["make"]);
    let err = compile(Some(StaticInfo::Reference {
        constructor: "free".to_owned(),
        destructor: "free".to_owned(),
        argument: Vec::new(),
    }));
    assert_eq!(
        err.message(),
        "FFI call \"count\": expected the constructor \"free\" to be an exported function (i32, i32) -> i32, found (i32)"
    );
}

const PURE: &str = r#"{"name":"add_n","api_version":"API_VERSION_JAX_FFI","traits":["pure"]}"#;

#[test]
fn a_pure_function_is_mapped_over_a_batch() {
    let (engine, _) = engine();
    let add_n = call_of("add_n", load(&engine, ADD_N, PURE));
    let x = Literal::array(&[3], &[1.0_f32, 2.0, 3.0]).unwrap();
    let one: Shape = "f32[]".parse().unwrap();
    let map = |axes: &[Option<usize>], operands: &[Literal]| {
        let mapped = add_n.vmap(axes)?;
        mapped.invoke(operands, n(10.0), &one, &CallOptions::default())
    };
    let y = map(&[Some(0)], std::slice::from_ref(&x)).unwrap();
    assert_eq!(y.shape().to_string(), "f32[3]");
    assert_eq!(y.to_vec::<f32>().unwrap(), [11.0, 12.0, 13.0]);

    let nothing = Literal::array::<f32>(&[0], &[]).unwrap();
    let y = map(&[Some(0)], &[nothing]).unwrap();
    assert_eq!(y.shape().to_string(), "f32[0]");

    for (axes, operands, message) in [
        (
            &[None][..],
            std::slice::from_ref(&x),
            "FFI call \"add_n\": expected at least one operand to have the batch, found none",
        ),
        (
            &[Some(1)],
            std::slice::from_ref(&x),
            "FFI call \"add_n\": operand 0: expected a dimension 1 for the batch, found f32[3]",
        ),
        (
            &[Some(0), None],
            std::slice::from_ref(&x),
            "FFI call \"add_n\": expected 2 operands, found 1",
        ),
        (
            &[Some(0), Some(0)],
            &[x.clone(), Literal::array(&[2], &[1.0_f32, 2.0]).unwrap()],
            "FFI call \"add_n\": operand 1: expected a batch of 3, found 2 in dimension 0 of f32[2]",
        ),
    ] {
        let err = map(axes, operands).unwrap_err();
        assert_eq!(
            (err.code(), err.message()),
            (StatusCode::InvalidArgument, message)
        );
    }
}

#[test]
fn the_batch_may_be_any_dimension_and_its_failures_say_where() {
    let (engine, _) = engine();
    let add_n = call_of("add_n", load(&engine, ADD_N, PURE));
    // Adds to the first element of each column, and leaves the rest of the result unchanged.
    let x = Literal::array(&[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let column: Shape = "f32[2]".parse().unwrap();
    let map = |info| {
        let mapped = add_n.vmap(&[Some(1)]).unwrap();
        mapped.invoke(
            std::slice::from_ref(&x),
            info,
            &column,
            &CallOptions::default(),
        )
    };
    let y = map(n(10.0)).unwrap();
    assert_eq!(y.shape().to_string(), "f32[3,2]");
    let firsts: Vec<_> = y.to_vec::<f32>().unwrap().into_iter().step_by(2).collect();
    assert_eq!(firsts, [11.0, 12.0, 13.0]);
    let err = map(n(-1.0)).unwrap_err();
    assert!(
        err.message()
            .starts_with("FFI call \"add_n\": batch element 0: ")
    );
    assert_eq!(said(&err), "Info must be >= 0");
}

#[test]
fn a_function_that_is_not_declared_pure_is_not_mapped() {
    let (engine, _) = engine();
    let add_n = call_of("add_n", load(&engine, ADD_N, ""));
    let err = add_n.vmap(&[Some(0)]).unwrap_err();
    assert_eq!(
        (err.code(), err.message()),
        (
            StatusCode::FailedPrecondition,
            "FFI call \"add_n\": expected a function that declares the trait \"pure\", without which calls cannot be mapped over a batch, found \"add_n\", which does not"
        )
    );
}
