//! Failures of functions that a target calls back and ignores: those that it cannot ignore. A case
//! cannot time a cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use callbox::call::Platform;
use callbox::policy::{Grants, Limits, LogLevel, Policy};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::wasm::{Config, Engine};
use callbox::{Blame, CallOptions, CancelToken, Literal, Registry, Status, StatusCode};

/// `ignore` calls the first function of its frame with its own s32[] operand and result, and
/// succeeds in any case. `loop_if` returns 7 if its operand is 0; otherwise it logs and loops.
const MODULE: &str = r#"(module
  (import "callbox:ffi/api@1.1.0" "log" (func $log (param i32 i32 i32)))
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "ignore") (param $frame i32) (result i32)
    (drop (call $call
      (i32.load (i32.load offset=60 (local.get $frame)))
      (i32.load offset=8 (local.get $frame)) (i32.const 1)
      (i32.load offset=16 (local.get $frame)) (i32.const 1)))
    (i32.const 0))
  (func (export "loop_if") (param $frame i32) (result i32)
    (if (i32.load (i32.load (i32.load offset=8 (local.get $frame)))) (then
      (call $log (i32.const 2) (i32.const 0) (i32.const 0))
      (loop (br 0))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.const 7))
    (i32.const 0)))"#;

/// `main` calls `outer`, which calls `inner`, both through a target that ignores failures.
const PROGRAM: &str = r#"HloModule callbacks

inner {
  x = s32[] parameter(0)
  ROOT r = s32[] custom-call(x), custom_call_target="loop_if", api_version=API_VERSION_TYPED_FFI
}

outer {
  x = s32[] parameter(0)
  ROOT r = s32[] custom-call(x), custom_call_target="ignore", called_computations={inner}, api_version=API_VERSION_TYPED_FFI
}

ENTRY main {
  x = s32[] parameter(0)
  ROOT y = s32[] custom-call(x), custom_call_target="ignore", called_computations={outer}, api_version=API_VERSION_TYPED_FFI
}"#;

/// Returns the executable, and a counter of calls of `loop_if` that began to loop.
fn fixture() -> (Executable, Arc<AtomicUsize>) {
    let loops = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&loops);
    let policy = Policy {
        limits: Limits {
            deadline: Some(Duration::from_secs(60)),
            ..Limits::default()
        },
        grants: Grants::log(LogLevel::Trace),
        ..Policy::default()
    };
    let executable = compiled(Config {
        policy,
        log: Some(Arc::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        })),
        ..Config::default()
    });
    (executable, loops)
}

fn compiled(config: Config) -> Executable {
    let engine = Engine::with_config(config).unwrap();
    let module = engine.load(&wat::parse_str(MODULE).unwrap()).unwrap();
    let mut registry = Registry::new();
    registry.register_module(module).unwrap();
    let program = Program::from_hlo_text(PROGRAM).unwrap();
    Executable::compile(&program, &registry, Platform::Host).unwrap()
}

fn run(executable: &Executable, x: i32, cancel: &CancelToken) -> Result<i32, Status> {
    let options = ExecuteOptions {
        call: CallOptions {
            cancel: Some(cancel.clone()),
            ..CallOptions::default()
        },
        ..ExecuteOptions::default()
    };
    let result = executable.execute(0, &[Literal::scalar(x)], &options)?;
    let bytes = result.leaves().next().unwrap().1.try_into().unwrap();
    Ok(i32::from_le_bytes(bytes))
}

#[test]
fn a_cancelled_execution_ends_in_the_function_that_was_called_back() {
    let (executable, loops) = fixture();
    let token = CancelToken::new();
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&executable, 1, &token));
        while loops.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        token.cancel();
        running.join().unwrap()
    });
    // The targets in between could not turn the cancellation into a success.
    let status = outcome.unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::Cancelled, Blame::Caller),
        "{status}"
    );
    assert_eq!(loops.load(Ordering::SeqCst), 1);
    // A cancelled token stops an execution before it begins, and does not affect other executions.
    let outcome = run(&executable, 0, &token);
    assert_eq!(outcome.unwrap_err().code(), StatusCode::Cancelled);
    assert_eq!(run(&executable, 0, &CancelToken::new()), Ok(7));
}

/// Whether there is room for the function's instance depends on other calls.
#[test]
fn a_deterministic_target_learns_of_no_lack_in_a_function() {
    let run_in = |deterministic| {
        let mut policy = Policy {
            deterministic,
            ..Policy::default()
        };
        policy.limits.executable_instances = 1;
        let executable = compiled(Config {
            policy,
            ..Config::default()
        });
        run(&executable, 0, &CancelToken::new())
    };
    assert!(run_in(false).is_ok());
    let status = run_in(true).unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::ResourceExhausted, Blame::Caller),
        "{status}"
    );
}
