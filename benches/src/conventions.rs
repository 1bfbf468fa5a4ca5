//! An empty kernel in each calling convention, and a call back into the program, beside a typed FFI
//! call.

use callbox::call::ApiVersion;
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::wasm::Engine;
use callbox::{CallSite, Literal, Platform, Registry};
use criterion::Criterion;

use crate::{EMPTY_KERNEL, floats, load_text};

/// Empty targets of the older conventions, and a target that calls the function named by its
/// attribute with its own operand and result.
const GUEST: &str = r#"(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call_function (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "original") (param i32 i32))
  (func (export "unified") (param i32 i32 i32 i32 i32))
  (func (export "jax-ffi-api") (result i32) (i32.const 8))
  (func (export "call_back") (param $frame i32) (result i32)
    (call $call_function
      ;; The first attribute's value: the function's number.
      (i32.load (i32.load offset=8 (i32.load offset=24 (local.get $frame))))
      (i32.load offset=8 (local.get $frame)) (i32.load offset=12 (local.get $frame))
      (i32.load offset=16 (local.get $frame)) (i32.load offset=20 (local.get $frame)))))"#;

/// A program with one custom call, which calls back an identity function.
const PROGRAM: &str = r#"HloModule m, frontend_attributes={callbox.exports="main,identity"}
identity {
  ROOT x = f32[128] parameter(0)
}
ENTRY main {
  x = f32[128] parameter(0)
  ROOT y = f32[128] custom-call(x), custom_call_target="call_back", api_version=API_VERSION_TYPED_FFI, backend_config={func = @identity}
}"#;

/// The same program without the callback.
const WITHOUT: &str = r#"HloModule m
ENTRY main {
  x = f32[128] parameter(0)
  ROOT y = f32[128] custom-call(x), custom_call_target="empty", api_version=API_VERSION_TYPED_FFI
}"#;

/// Measures calls with an operand and a result of 512 bytes each.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("conventions");
    let engine = Engine::new().unwrap();
    let (typed, guest) = (load_text(&engine, EMPTY_KERNEL), load_text(&engine, GUEST));
    let (x, mut y) = (vec![1; 512], vec![0; 512]);
    for (name, module, api_version) in [
        ("empty", &typed, ApiVersion::TypedFfi),
        ("original", &guest, ApiVersion::Original),
        ("unified", &guest, ApiVersion::StatusReturningUnified),
    ] {
        let shape = || "f32[128]".parse().unwrap();
        let site = CallSite {
            api_version,
            ..CallSite::new(name, vec![shape()], shape())
        };
        let call = module.prepare_call(site).unwrap();
        group.bench_function(name, |bencher| {
            bencher.iter(|| call.call(&[&x], &mut [&mut y]).unwrap());
        });
    }

    let mut registry = Registry::new();
    registry.register_module(typed).unwrap();
    registry.register_module(guest).unwrap();
    let argument = Literal::array(&[128], &floats(128)).unwrap();
    for (name, text) in [("program", WITHOUT), ("program_with_call_back", PROGRAM)] {
        let program = Program::from_hlo_text(text).unwrap();
        let executable = Executable::compile(&program, &registry, Platform::Host).unwrap();
        let options = ExecuteOptions::default();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                executable
                    .execute(0, std::slice::from_ref(&argument), &options)
                    .unwrap()
            });
        });
    }
    group.finish();
}
