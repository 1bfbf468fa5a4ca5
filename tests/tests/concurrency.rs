//! Executables and prepared calls used from many threads at once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use callbox::call::Platform;
use callbox::policy::{Grants, Limits, LogLevel, Policy};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::wasm::{Config, Engine, Module, PreparedCall};
use callbox::{
    Blame, CallOptions, CallSite, CancelToken, Deadline, Literal, Registry, Status, StatusCode,
};

const THREADS: usize = 8;

/// The number of additions in the module's loop.
const ROUNDS: i32 = 1000;

/// A target `f` of an s32[2]. By its first element it returns the second times 1000 (0), traps (1),
/// reports a failure (2), or logs and loops until stopped (3).
///
/// It computes the product slowly in guest memory, so that two calls sharing an instance would
/// disturb each other.
const MODULE: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (func (export "f") (param $frame i32) (result i32)
    (local $x i32) (local $out i32) (local $i i32)
    (local.set $x (i32.load (i32.load offset=8 (local.get $frame))))
    (local.set $out (i32.load (i32.load offset=16 (local.get $frame))))
    ;; What is written before a failure is nothing that the caller sees.
    (i32.store (local.get $out) (i32.const -1))
    (if (i32.eq (i32.load (local.get $x)) (i32.const 1)) (then (unreachable)))
    (if (i32.eq (i32.load (local.get $x)) (i32.const 2)) (then (return (i32.const 9))))
    (if (i32.eq (i32.load (local.get $x)) (i32.const 3)) (then
      (call $log (i32.const 2) (i32.const 0) (i32.const 0))
      (loop (br 0))))
    ;; A word of this module's memory, which only one call may use at a time.
    (i32.store (i32.const 0) (i32.const 0))
    (loop
      (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.load offset=4 (local.get $x))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if 0 (i32.lt_u (local.get $i) (i32.const 1000))))
    (i32.store (local.get $out) (i32.load (i32.const 0)))
    (i32.const 0)))"#;

/// The module, and a counter of calls that began to loop.
struct Fixture {
    module: Arc<Module>,
    loops: Arc<AtomicUsize>,
}

impl Fixture {
    fn new(instances: u32) -> Self {
        let limits = Limits {
            instances,
            deadline: Some(Duration::from_secs(60)),
            ..Limits::default()
        };
        let loops = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&loops);
        let config = Config {
            policy: Policy {
                limits,
                grants: Grants::log(LogLevel::Trace),
                ..Policy::default()
            },
            log: Some(Arc::new(move |_| {
                counter.fetch_add(1, Ordering::SeqCst);
            })),
            ..Config::default()
        };
        let engine = Engine::with_config(config).unwrap();
        let module = engine.load(&wat::parse_str(MODULE).unwrap()).unwrap();
        Self { module, loops }
    }

    fn prepare(&self) -> PreparedCall {
        let site = CallSite::new(
            "f",
            vec!["s32[2]".parse().unwrap()],
            "s32[]".parse().unwrap(),
        );
        self.module.prepare_call(site).unwrap()
    }

    fn compile(&self, text: &str) -> Executable {
        let mut registry = Registry::new();
        registry.register_module(self.module.clone()).unwrap();
        let program = Program::from_hlo_text(text).unwrap();
        Executable::compile(&program, &registry, Platform::Host).unwrap()
    }

    /// Waits until `count` calls are looping.
    fn wait_for_loops(&self, count: usize) {
        let begun = Instant::now();
        while self.loops.load(Ordering::SeqCst) < count {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "expected {count} calls to loop"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Calls, and checks that a failed call left its result unchanged.
fn call(prepared: &PreparedCall, options: &CallOptions, x: [i32; 2]) -> Result<i32, Status> {
    const UNTOUCHED: [u8; 4] = [0xa5; 4];
    let operand = [x[0].to_le_bytes(), x[1].to_le_bytes()].concat();
    let mut result = UNTOUCHED;
    let outcome = prepared.call_with(options, &[&operand], &mut [&mut result]);
    if outcome.is_err() {
        assert_eq!(result, UNTOUCHED);
    }
    outcome.map(|()| i32::from_le_bytes(result))
}

fn with_token(token: &CancelToken) -> CallOptions {
    CallOptions {
        cancel: Some(token.clone()),
        ..CallOptions::default()
    }
}

fn with_deadline(milliseconds: u64) -> CallOptions {
    CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(milliseconds))),
        ..CallOptions::default()
    }
}

/// Runs `work` with each thread's index, in threads that start together.
fn in_threads(work: impl Fn(usize) + Sync) {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                work(number);
            });
        }
    });
}

#[test]
fn calls_at_once_do_not_see_each_other() {
    let prepared = Fixture::new(64).prepare();
    in_threads(|number| {
        for round in 0..200 {
            let y = (number * 1000 + round) as i32;
            assert_eq!(
                call(&prepared, &CallOptions::default(), [0, y]),
                Ok(y * ROUNDS)
            );
        }
    });
}

#[test]
fn faults_among_healthy_calls_disturb_none() {
    let prepared = Fixture::new(64).prepare();
    in_threads(|number| {
        for round in 0..100 {
            let y = (number * 1000 + round) as i32;
            let kind = (number + round) as i32 % 4;
            let options = match kind {
                // A call that the machine does not run for so long is not called at all.
                3 => with_deadline(40),
                _ => CallOptions::default(),
            };
            let outcome = call(&prepared, &options, [kind, y]);
            let code = outcome
                .as_ref()
                .map_err(|status| (status.code(), status.blame()))
                .copied();
            let expected = match kind {
                0 => Ok(y * ROUNDS),
                1 => Err((StatusCode::Aborted, Blame::Guest)),
                2 => Err((StatusCode::FailedPrecondition, Blame::Guest)),
                _ => Err((StatusCode::DeadlineExceeded, Blame::Guest)),
            };
            assert_eq!(code, expected, "{outcome:?}");
        }
    });
    assert_eq!(
        call(&prepared, &CallOptions::default(), [0, 5]),
        Ok(5 * ROUNDS)
    );
}

#[test]
fn cancelling_one_call_leaves_the_others() {
    let fixture = Fixture::new(64);
    let prepared = &fixture.prepare();
    let tokens: Vec<CancelToken> = (0..THREADS).map(|_| CancelToken::new()).collect();
    thread::scope(|scope| {
        let mut calls: Vec<_> = tokens
            .iter()
            .map(|token| {
                scope.spawn(move || call(prepared, &with_token(token), [3, 0]).unwrap_err())
            })
            .collect();
        fixture.wait_for_loops(THREADS);
        tokens[0].cancel();
        let status = calls.remove(0).join().unwrap();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::Cancelled, Blame::Caller)
        );
        let message = status.message();
        assert!(
            message.ends_with(": target \"f\" was cancelled"),
            "{status}"
        );
        // The others keep looping for many ticks, while healthy calls on the same call site
        // succeed.
        thread::sleep(Duration::from_millis(30));
        assert_eq!(
            call(prepared, &CallOptions::default(), [0, 2]),
            Ok(2 * ROUNDS)
        );
        assert!(calls.iter().all(|call| !call.is_finished()));
        tokens[1..].iter().for_each(CancelToken::cancel);
        for call in calls {
            assert_eq!(call.join().unwrap().code(), StatusCode::Cancelled);
        }
    });
}

#[test]
fn a_cancelled_token_stops_a_call_before_it_begins() {
    let prepared = Fixture::new(2).prepare();
    let token = CancelToken::new();
    token.cancel();
    // The call is cancelled before the target could trap.
    let status = call(&prepared, &with_token(&token), [1, 0]).unwrap_err();
    assert_eq!(status.code(), StatusCode::Cancelled);
    assert_eq!(
        call(&prepared, &CallOptions::default(), [0, 2]),
        Ok(2 * ROUNDS)
    );
}

/// A deadline applies to its own call: a short one neither ends nor waits for a concurrent call
/// with a longer one.
#[test]
fn deadlines_are_each_calls_own() {
    let prepared = Fixture::new(64).prepare();
    let loops = |milliseconds: u64| {
        let begun = Instant::now();
        let status = call(&prepared, &with_deadline(milliseconds), [3, 0]).unwrap_err();
        let end = format!(": target \"f\" ran past its deadline of {milliseconds}ms");
        assert!(status.message().ends_with(&end), "{status}");
        (Instant::now(), begun.elapsed())
    };
    thread::scope(|scope| {
        let long = scope.spawn(|| loops(500));
        let short = scope.spawn(|| loops(20));
        let (short, long) = (short.join().unwrap(), long.join().unwrap());
        assert!(short.0 < long.0, "the short one ended first");
        // The clock starts at the first tick, up to one millisecond later.
        assert!(short.1 >= Duration::from_millis(18), "{:?}", short.1);
        assert!(long.1 >= Duration::from_millis(498), "{:?}", long.1);
    });
}

#[test]
fn instances_are_limited_and_given_back() {
    let fixture = Fixture::new(1);
    let prepared = &fixture.prepare();
    let token = CancelToken::new();
    thread::scope(|scope| {
        let options = with_token(&token);
        let holder = scope.spawn(move || call(prepared, &options, [3, 0]));
        fixture.wait_for_loops(1);
        let status = call(prepared, &CallOptions::default(), [0, 1]).unwrap_err();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::ResourceExhausted, Blame::Caller)
        );
        assert!(
            status
                .message()
                .contains("expected at most 1 instances at one time, found more"),
            "{status}"
        );
        token.cancel();
        assert_eq!(
            holder.join().unwrap().unwrap_err().code(),
            StatusCode::Cancelled
        );
    });
    for y in 0..10 {
        assert_eq!(
            call(prepared, &CallOptions::default(), [0, y]),
            Ok(y * ROUNDS)
        );
    }
}

const PROGRAM: &str = r#"HloModule concurrent

body {
  state = (s32[], s32[2]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = s32[2] get-tuple-element(state), index=1
  y = s32[] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI
  one = s32[] constant(1)
  next = s32[] add(i, one)
  zero = s32[1] constant({0})
  modulus = s32[] constant(100003)
  term = s32[] remainder(y, modulus)
  cell = s32[1] reshape(term)
  pair = s32[2] concatenate(zero, cell), dimensions={0}
  ROOT out = (s32[], s32[2]) tuple(next, pair)
}

condition {
  state = (s32[], s32[2]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  ten = s32[] constant(10)
  ROOT less = pred[] compare(i, ten), direction=LT
}

ENTRY main {
  x = s32[2] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], s32[2]) tuple(zero, x)
  loop = (s32[], s32[2]) while(start), condition=condition, body=body
  ROOT result = s32[2] get-tuple-element(loop), index=1
}
"#;

/// Computes the program's result.
fn reference(mut y: i32) -> i32 {
    for _ in 0..10 {
        y = (y * ROUNDS) % 100_003;
    }
    y
}

#[test]
fn an_executable_gives_the_same_from_every_thread() {
    let executable = Fixture::new(64).compile(PROGRAM);
    in_threads(|number| {
        for round in 0..20 {
            let y = (number * 100 + round) as i32;
            let x = Literal::array(&[2], &[0, y]).unwrap();
            let result = executable
                .execute(0, &[x], &ExecuteOptions::default())
                .unwrap();
            assert_eq!(result.to_vec::<i32>().unwrap(), [0, reference(y)]);
        }
    });
}

#[test]
fn a_failing_execution_leaves_the_others() {
    let executable = Fixture::new(64).compile(PROGRAM);
    in_threads(|number| {
        for round in 0..20 {
            let y = (number * 100 + round) as i32;
            let kind = (number % 2) as i32;
            let x = Literal::array(&[2], &[kind, y]).unwrap();
            match executable.execute(0, &[x], &ExecuteOptions::default()) {
                Ok(result) => assert_eq!(result.to_vec::<i32>().unwrap(), [0, reference(y)]),
                Err(status) => {
                    assert_eq!((kind, status.code()), (1, StatusCode::Aborted), "{status}")
                }
            }
        }
    });
}
