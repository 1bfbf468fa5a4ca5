//! Random modules from wasm-smith, and arbitrary bytes: they are loaded and their targets called
//! under tight limits. Each call ends in time with a status or results, and a healthy call on the
//! same engine then works.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arbitrary::Unstructured;
use callbox::call::{ApiVersion, Signature};
use callbox::policy::{Grants, Isolation, Limits, LogLevel, Policy, Traps};
use callbox::wasm::{Config, Engine, Module, PreparedCall};
use callbox::{
    Attribute, Blame, CallOptions, CallSite, Deadline, Dictionary, ElementType, Shape, Status,
    StatusCode,
};

use super::metadata::check_refusal;
use crate::Target;
use crate::outcome::Outcome;

/// The target.
pub const TARGET: Target = Target {
    name: "module",
    run,
    max_len: 4096,
    executions: 500,
    words: &[
        "\0asm",
        "memory",
        "cabi_realloc",
        "_initialize",
        "callbox:ffi/api@1.1.0",
        "callbox:ffi/maths@1.0.0",
        "callbox.targets",
    ],
};

/// The deadline of a call. Most calls run out of fuel before.
const DEADLINE: Duration = Duration::from_millis(500);

/// The time after which a call hangs, far above its deadline.
const HANGS: Duration = Duration::from_secs(20);

/// The imports of modules that have any.
const IMPORTS: &str = r#"(module
    (import "callbox:ffi/api@1.0.0" "version" (func (result i32)))
    (import "callbox:ffi/api@1.0.0" "set-failure" (func (param i32 i32 i32 i32)))
    (import "callbox:ffi/api@1.0.0" "set-success" (func))
    (import "callbox:ffi/api@1.0.0" "log" (func (param i32 i32 i32)))
    (import "callbox:ffi/api@1.1.0" "call-function" (func (param i32 i32 i32 i32 i32) (result i32)))
    (import "callbox:ffi/api@1.1.0" "function-message" (func (param i32 i32) (result i32)))
    (import "callbox:ffi/api@1.1.0" "user-data" (func (param i32 i32 i32 i32) (result i64)))
    (import "callbox:ffi/maths@1.0.0" "map" (func (param i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "map-f64" (func (param i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "convert" (func (param i32 i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "fft-rows" (func (param i32 i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "fft-rows-f64" (func (param i32 i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "softmax-rows" (func (param i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "reduce-rows" (func (param i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "dot-rows" (func (param i32 i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "argsort-rows" (func (param i32 i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "argsort-rows-f64" (func (param i32 i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "softmax-rows-f64" (func (param i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "reduce-rows-f64" (func (param i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "dot-rows-f64" (func (param i32 i32 i32 i32 i32 i32)))
    (import "callbox:ffi/maths@1.0.0" "rms-norm-rows" (func (param i32 i32 i32 i32 i32 i32 f32)))
    (import "callbox:ffi/maths@1.0.0" "rms-norm-rows-gradient"
      (func (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 f32)))
    (import "callbox:ffi/maths@1.0.0" "gemm" (func (param i32))))"#;

/// The possible exports.
const EXPORTS: [&str; 4] = [
    r#"(module (memory (export "memory") 1)
        (func (export "f") (param i32) (result i32) unreachable))"#,
    r#"(module (memory (export "memory") 1 4)
        (func (export "f") (param i32) (result i32) unreachable)
        (func (export "f.instantiate") (param i32) (result i32) unreachable)
        (func (export "f.instantiate.drop") (param i32) unreachable)
        (func (export "f.prepare") (param i32) (result i32) unreachable)
        (func (export "f.initialize") (param i32) (result i32) unreachable)
        (func (export "_initialize") unreachable))"#,
    r#"(module (memory (export "memory") 1)
        (func (export "original") (param i32 i32) unreachable)
        (func (export "returning") (param i32 i32 i32) unreachable)
        (func (export "unified") (param i32 i32 i32 i32 i32) unreachable))"#,
    r#"(module (memory (export "memory") 2)
        (func (export "f") (param i32) (result i32) unreachable)
        (func (export "unified") (param i32 i32 i32 i32 i32) unreachable)
        (func (export "jax-ffi-api") (result i32) unreachable)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable))"#,
];

/// The first byte says how to interpret the rest.
fn run(input: &[u8]) -> Outcome {
    let Some((&kind, rest)) = input.split_first() else {
        return Outcome::of("too few bytes");
    };
    let host = &hosts()[usize::from(kind >> 1 & 1)];
    let began = Instant::now();
    let outcome = match kind & 1 {
        0 => match smith(kind, rest) {
            Some((wasm, is_plain)) => load(host, &wasm, is_plain),
            None => Outcome::of("too few bytes"),
        },
        _ => load(host, rest, false),
    };
    let took = began.elapsed();
    assert!(took < HANGS, "it took {took:?}");
    host.check_health();
    outcome
}

/// Generates a valid module. Also returns whether it uses only enabled features.
fn smith(kind: u8, bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
    let parsed = |text: &str| wat::parse_str(text).unwrap();
    // Sometimes a disabled proposal is used, which must be rejected.
    let is_plain = kind >> 5 < 6;
    let needs_more = kind >> 5 == 7;
    let config = wasm_smith::Config {
        exports: Some(parsed(EXPORTS[usize::from(kind >> 2 & 3)])),
        available_imports: Some(parsed(IMPORTS)),
        max_imports: if kind >> 4 & 1 == 0 { 4 } else { 0 },
        max_funcs: 6,
        max_instructions: 80,
        max_memory32_bytes: 8 << 16,
        max_table_elements: 100,
        max_tables: 1,
        // In addition to the exported memory.
        max_memories: 0,
        max_data_segments: 4,
        max_element_segments: 4,
        max_types: 12,
        max_globals: 8,
        reference_types_enabled: !is_plain,
        exceptions_enabled: needs_more,
        gc_enabled: needs_more,
        memory64_enabled: needs_more,
        threads_enabled: needs_more,
        wide_arithmetic_enabled: needs_more,
        ..wasm_smith::Config::default()
    };
    let module = wasm_smith::Module::new(config, &mut Unstructured::new(bytes)).ok()?;
    Some((module.to_bytes(), is_plain))
}

/// Loads a possible module and calls its targets.
fn load(host: &Host, wasm: &[u8], is_plain: bool) -> Outcome {
    match host.engine.load(wasm) {
        Ok(module) => call_all(&module),
        Err(status) => {
            check_refusal(&status, &host.engine.policy().limits);
            // wasm-smith cannot restrict reference types to functions, the only ones enabled.
            let is_known = status.code() == StatusCode::ResourceExhausted
                || status.message().contains("gc types");
            assert!(
                !is_plain || is_known,
                "a module that needs no more than there is: {status}"
            );
            Outcome::failure(&status)
        }
    }
}

fn call_all(module: &Arc<Module>) -> Outcome {
    let mut outcomes = Vec::new();
    for target in &module.info().targets {
        for &version in &target.api_versions {
            outcomes.push(call(module, target, version));
        }
    }
    Outcome::of(outcomes)
}

/// Calls a target twice. The second call reuses the instance, or has a new one if the first failed.
fn call(module: &Arc<Module>, target: &Signature, version: ApiVersion) -> Vec<Outcome> {
    let shape = |text: &str| text.parse::<Shape>().unwrap();
    let mut site = CallSite::new(
        &target.name,
        vec![shape("f32[4]"), shape("s32[2]")],
        shape("(f32[4], s32[2])"),
    );
    site.api_version = version;
    match version {
        ApiVersion::TypedFfi => {
            site.attributes = Dictionary::from([("n".to_owned(), Attribute::scalar(4_i32))]);
        }
        _ => site.opaque = b"opaque".to_vec(),
    }
    let prepared = match module.prepare_call(site) {
        Ok(prepared) => prepared,
        Err(status) => {
            check_failure(module, &status);
            return vec![Outcome::failure(&status)];
        }
    };
    (0..2).map(|_| call_once(module, &prepared)).collect()
}

fn call_once(module: &Arc<Module>, prepared: &PreparedCall) -> Outcome {
    let mut results = (vec![0x5a; 16], vec![0x5a; 8]);
    let options = CallOptions {
        deadline: Some(Deadline::After(DEADLINE)),
        ..CallOptions::default()
    };
    let called = prepared.call_with(
        &options,
        &[&[1; 16], &[2; 8]],
        &mut [&mut results.0, &mut results.1],
    );
    match called {
        Ok(()) => Outcome::of("results"),
        Err(status) => {
            check_failure(module, &status);
            let untouched = (vec![0x5a; 16], vec![0x5a; 8]);
            assert!(
                results == untouched,
                "results of a call that failed: {status}"
            );
            Outcome::failure(&status)
        }
    }
}

/// Checks that a failed call blames the guest and that its message is safe to print.
fn check_failure(module: &Arc<Module>, status: &Status) {
    assert_ne!(status.code(), StatusCode::Ok);
    assert_eq!(status.blame(), Blame::Guest, "{status}");
    let steers = |c: char| {
        c.is_control() && c != '\n' && c != '\t' || ('\u{202a}'..='\u{202e}').contains(&c)
    };
    assert!(
        !status.message().chars().any(steers),
        "{:?}",
        status.message()
    );
    let frames = status.backtrace().map_or(&[][..], |b| b.frames());
    assert!(
        frames.len() <= 20,
        "{} frames of {:?}",
        frames.len(),
        module.info().sha256
    );
}

/// An engine, with a call on it that must keep working.
struct Host {
    engine: Engine,
    healthy: PreparedCall,
}

impl Host {
    fn new(traps: Traps, isolation: Isolation) -> Self {
        let policy = Policy {
            limits: Limits {
                memory_bytes: 1 << 20,
                table_elements: 200,
                stack_bytes: 128 << 10,
                fuel: 300_000,
                instances: 8,
                message_bytes: 256,
                log_bytes: 1 << 10,
                ..Limits::default()
            },
            deterministic: true,
            traps,
            isolation,
            grants: Grants::log(LogLevel::Info),
            ..Policy::default()
        };
        let log = Arc::new(|_: &callbox::wasm::LogRecord| {});
        let engine = Engine::with_config(Config {
            policy,
            log: Some(log),
            ..Config::default()
        });
        let engine = engine.unwrap();
        let wasm = wat::parse_str(include_str!("echo.wat")).unwrap();
        let shape = Shape::array(ElementType::S32, &[2]).unwrap();
        let site = CallSite::new("echo", vec![shape.clone()], shape);
        let healthy = engine.load(&wasm).unwrap().prepare_call(site).unwrap();
        Self { engine, healthy }
    }

    fn check_health(&self) {
        let operand = [1, 2, 3, 4, 5, 6, 7, 8];
        let mut result = [0; 8];
        self.healthy.call(&[&operand], &mut [&mut result]).unwrap();
        assert_eq!(result, operand);
    }
}

fn hosts() -> &'static [Host; 2] {
    static HOSTS: OnceLock<[Host; 2]> = OnceLock::new();
    HOSTS.get_or_init(|| {
        [
            Host::new(Traps::Signals, Isolation::Executable),
            Host::new(Traps::Explicit, Isolation::Fresh),
        ]
    })
}
