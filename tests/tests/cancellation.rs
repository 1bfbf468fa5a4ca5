//! One of 64 concurrent calls is stopped or traps; the results of the others stay the same bit for
//! bit.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and prints what it measured"
)]

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use callbox::policy::{Grants, Isolation, Limits, LogLevel, Policy, Traps};
use callbox::wasm::{Config, Engine, LogRecord, PreparedCall};
use callbox::{CallOptions, CallSite, CancelToken, Deadline, Result, Shape, StatusCode};

const CALLS: usize = 64;

/// A target `f` of an s64[2] logs when it begins. A first element of 1 makes it trap and 2 makes it
/// loop; it logs before either. Otherwise it computes from the second element as a seed, in memory,
/// a global and locals, and logs halfway. The result depends on all of that state, and so shows any
/// disturbance.
const MODULE: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 3)
  (data (i32.const 0) "beganhalf stop ")
  (global $sum (mut f64) (f64.const 0))
  (func $say (param $what i32) (call $log (i32.const 2) (local.get $what) (i32.const 5)))
  (func $work (param $x f64) (param $rounds i32) (result f64)
    (local $at i32)
    (loop
      (local.set $x (f64.mul (f64.mul (f64.const 3.99) (local.get $x)) (f64.sub (f64.const 1) (local.get $x))))
      (local.set $at (i32.add (i32.const 65536) (i32.and (i32.shl (local.get $rounds) (i32.const 3)) (i32.const 0xfff8))))
      (f64.store (local.get $at) (f64.add (f64.mul (f64.load (local.get $at)) (f64.const 0.5)) (local.get $x)))
      (global.set $sum (f64.add (global.get $sum) (f64.load (local.get $at))))
      (br_if 0 (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
    (memory.copy (i32.const 98304) (i32.const 65536) (i32.const 32768))
    (local.get $x))
  (func (export "f") (param $frame i32) (result i32)
    (local $in i32) (local $out i32) (local $x f64)
    (local.set $in (i32.load (i32.load offset=8 (local.get $frame))))
    (local.set $out (i32.load (i32.load offset=16 (local.get $frame))))
    (call $say (i32.const 0))
    (if (i32.eq (i32.load (local.get $in)) (i32.const 1)) (then
      (call $say (i32.const 10)) (unreachable)))
    (if (i32.eq (i32.load (local.get $in)) (i32.const 2)) (then
      (call $say (i32.const 10)) (loop (br 0))))
    (memory.fill (i32.const 65536) (i32.const 0) (i32.const 131072))
    (global.set $sum (f64.const 0))
    (local.set $x (f64.div (f64.const 1) (f64.convert_i64_s (i64.load offset=8 (local.get $in)))))
    (local.set $x (call $work (local.get $x) (i32.const 20000)))
    (call $say (i32.const 5))
    (local.set $x (call $work (local.get $x) (i32.const 20000)))
    (f64.store (local.get $out) (local.get $x))
    (f64.store offset=8 (local.get $out) (global.get $sum))
    (f64.store offset=16 (local.get $out) (f64.load (i32.const 65544)))
    (f64.store offset=24 (local.get $out) (f64.load (i32.const 98312)))
    (i32.const 0)))"#;

/// Blocks guests in their log messages, so that all calls are in progress when one is stopped.
#[derive(Default)]
struct Stage {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    /// Whether calls pass without blocking.
    is_open: bool,
    began: usize,
    half: usize,
    is_over: bool,
}

impl Stage {
    fn hear(&self, record: &LogRecord<'_>) {
        let mut counts = self.counts.lock().unwrap();
        if counts.is_open {
            return;
        }
        match record.message.trim_end() {
            "began" => {
                counts.began += 1;
                drop(self.wait(counts, |counts| counts.began == CALLS));
            }
            "half" => {
                counts.half += 1;
                drop(self.wait(counts, |counts| counts.is_over));
            }
            _ => drop(self.wait(counts, |counts| counts.half == CALLS - 1)),
        }
    }

    fn wait<'c>(
        &self,
        counts: MutexGuard<'c, Counts>,
        until: impl Fn(&Counts) -> bool,
    ) -> MutexGuard<'c, Counts> {
        self.changed.notify_all();
        let limit = Duration::from_secs(60);
        let waited = self
            .changed
            .wait_timeout_while(counts, limit, |counts| !until(counts));
        let (counts, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "not all calls came so far");
        counts
    }

    /// Resets the stage.
    fn set(&self, is_open: bool) {
        *self.counts.lock().unwrap() = Counts {
            is_open,
            ..Counts::default()
        };
    }

    /// Releases the other calls after one has been stopped.
    fn end(&self) {
        self.counts.lock().unwrap().is_over = true;
        self.changed.notify_all();
    }
}

/// A call site, and the stage of its calls.
struct Fixture {
    call: PreparedCall,
    stage: Arc<Stage>,
}

impl Fixture {
    fn new(isolation: Isolation, traps: Traps) -> Self {
        let stage = Arc::<Stage>::default();
        let sink = Arc::clone(&stage);
        let policy = Policy {
            limits: Limits {
                instances: CALLS as u32,
                deadline: Some(Duration::from_secs(120)),
                ..Limits::default()
            },
            isolation,
            traps,
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        };
        let engine = Engine::with_config(Config {
            policy,
            log: Some(Arc::new(move |record| sink.hear(record))),
            ..Config::default()
        });
        let module = engine
            .unwrap()
            .load(&wat::parse_str(MODULE).unwrap())
            .unwrap();
        let operand = "s64[2]".parse().unwrap();
        let site = CallSite::new("f", vec![operand], "f64[4]".parse().unwrap());
        Self {
            call: module.prepare_call(site).unwrap(),
            stage,
        }
    }

    fn call(&self, what: i64, seed: usize, options: &CallOptions) -> Result<[u8; 32]> {
        let operand = [what.to_le_bytes(), (seed as i64 + 3).to_le_bytes()].concat();
        let mut result = [0xa5; 32];
        let outcome = self
            .call
            .call_with(options, &[&operand], &mut [&mut result]);
        if outcome.is_err() {
            assert_eq!(
                result, [0xa5; 32],
                "a failed call leaves its results as they were"
            );
        }
        outcome.map(|()| result)
    }

    /// Returns the result of each call on its own.
    fn undisturbed(&self) -> Vec<[u8; 32]> {
        self.stage.set(true);
        let results = (0..CALLS).map(|seed| self.call(0, seed, &CallOptions::default()));
        results.collect::<Result<_>>().unwrap()
    }

    /// Runs all calls concurrently and stops one when all others are in progress.
    fn disturb(&self, victim: usize, how: Stop, expected: &[[u8; 32]]) {
        self.stage.set(false);
        let token = CancelToken::new();
        let options = how.options(&token);
        thread::scope(|scope| {
            let calls: Vec<_> = (0..CALLS)
                .map(|seed| {
                    if seed == victim {
                        scope.spawn(|| {
                            let outcome = self.call(how.what(), victim, &options);
                            self.stage.end();
                            outcome
                        })
                    } else {
                        scope.spawn(move || self.call(0, seed, &CallOptions::default()))
                    }
                })
                .collect();
            if how == Stop::Cancel {
                let stage = &self.stage;
                let counts = stage.counts.lock().unwrap();
                drop(stage.wait(counts, |counts| counts.half == CALLS - 1));
                token.cancel();
            }
            for (seed, call) in calls.into_iter().enumerate() {
                match call.join().unwrap() {
                    Err(status) => {
                        assert_eq!((seed, status.code()), (victim, how.code()), "{status}");
                    }
                    Ok(result) => {
                        assert_ne!(seed, victim);
                        assert_eq!(result, expected[seed], "call {seed}, {how:?}");
                    }
                }
            }
        });
    }
}

/// How the one call is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Cancel,
    Deadline,
    Trap,
}

impl Stop {
    fn what(self) -> i64 {
        match self {
            Self::Trap => 1,
            _ => 2,
        }
    }

    fn options(self, token: &CancelToken) -> CallOptions {
        CallOptions {
            cancel: (self == Self::Cancel).then(|| token.clone()),
            // It passes while the call is blocked, and ends the call when it continues.
            deadline: (self == Self::Deadline).then(|| Deadline::After(Duration::from_millis(20))),
            ..CallOptions::default()
        }
    }

    fn code(self) -> StatusCode {
        match self {
            Self::Cancel => StatusCode::Cancelled,
            Self::Deadline => StatusCode::DeadlineExceeded,
            Self::Trap => StatusCode::Aborted,
        }
    }
}

fn one_of_many(isolation: Isolation, traps: Traps) {
    let fixture = Fixture::new(isolation, traps);
    let expected = fixture.undisturbed();
    // The results differ from call to call.
    for (seed, result) in expected.iter().enumerate() {
        assert!(!expected[..seed].contains(result), "{seed}");
    }
    for (victim, how) in [
        (0, Stop::Cancel),
        (17, Stop::Deadline),
        (63, Stop::Trap),
        (40, Stop::Cancel),
        (5, Stop::Trap),
        (33, Stop::Deadline),
    ] {
        fixture.disturb(victim, how, &expected);
    }
    assert_eq!(fixture.undisturbed(), expected);
}

#[test]
fn of_64_calls_one_is_stopped() {
    one_of_many(Isolation::Executable, Traps::Signals);
}

#[test]
fn of_64_calls_with_explicit_traps_one_is_stopped() {
    one_of_many(Isolation::Executable, Traps::Explicit);
}

#[test]
fn of_64_fresh_calls_one_is_stopped() {
    one_of_many(Isolation::Fresh, Traps::Signals);
}

#[test]
fn of_64_fresh_calls_with_explicit_traps_one_is_stopped() {
    one_of_many(Isolation::Fresh, Traps::Explicit);
}

/// Deadlines of 64 concurrent calls pass about when the calls end. The next call in the same
/// instance has no deadline, and none stops it.
fn next_to_deadlines(traps: Traps) {
    const ROUNDS: usize = 10;
    let fixture = Fixture::new(Isolation::Executable, traps);
    let expected = fixture.undisturbed();
    thread::scope(|scope| {
        for (seed, expected) in expected.iter().enumerate() {
            let fixture = &fixture;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let micros = (seed * 37 + round * 211) % 2000;
                    let options = CallOptions {
                        deadline: Some(Deadline::After(Duration::from_micros(micros as u64))),
                        ..CallOptions::default()
                    };
                    match fixture.call(0, seed, &options) {
                        Ok(result) => assert_eq!(result, *expected),
                        Err(status) => {
                            assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
                        }
                    }
                    let next = fixture.call(0, seed, &CallOptions::default());
                    assert_eq!(next.unwrap(), *expected);
                }
            });
        }
    });
}

#[test]
fn a_stop_never_reaches_the_next_call() {
    next_to_deadlines(Traps::Signals);
}

#[test]
fn a_stop_with_explicit_traps_never_reaches_the_next_call() {
    next_to_deadlines(Traps::Explicit);
}

/// A deadline stops a tight loop promptly. The bound is wide for busy machines and only catches
/// delays of seconds; `cargo xtask latency` measures the latency.
#[test]
fn a_deadline_stops_a_loop_soon() {
    let mut policy = Policy::default();
    policy.limits.instances = 2;
    let engine = Engine::with_config(Config {
        policy,
        ..Config::default()
    });
    let text = r#"(module
      (memory (export "memory") 1)
      (func (export "f") (param i32) (result i32) (loop $on (br $on)) (unreachable)))"#;
    let module = engine
        .unwrap()
        .load(&wat::parse_str(text).unwrap())
        .unwrap();
    let site = CallSite::new("f", Vec::new(), Shape::tuple(Vec::new()).unwrap());
    let call = module.prepare_call(site).unwrap();
    let deadline = Duration::from_millis(5);
    let options = CallOptions {
        deadline: Some(Deadline::After(deadline)),
        ..CallOptions::default()
    };
    let mut overruns: Vec<_> = (0..50)
        .map(|_| {
            let begin = Instant::now();
            let status = call.call_with(&options, &[], &mut []).unwrap_err();
            let took = begin.elapsed();
            assert_eq!(status.code(), StatusCode::DeadlineExceeded);
            // A call reads no clock before its first tick of one millisecond, and may end that much
            // early.
            assert!(took + Duration::from_millis(1) >= deadline, "{took:?}");
            took.saturating_sub(deadline)
        })
        .collect();
    overruns.sort();
    let median = overruns[overruns.len() / 2];
    assert!(median < Duration::from_millis(100), "{overruns:?}");
}

/// `fill` writes 400 MiB, and runs on. `spin` runs on. `nothing` returns at once.
const LARGE: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "fill") (param i32) (result i32)
    (if (i32.eq (memory.grow (i32.const 6399)) (i32.const -1)) (then unreachable))
    (memory.fill (i32.const 65536) (i32.const 1) (i32.const 419364864))
    (loop (br 0)) (unreachable))
  (func (export "spin") (param i32) (result i32) (loop (br 0)) (unreachable))
  (func (export "nothing") (param i32) (result i32) (i32.const 0)))"#;

/// How late calls returned after their deadline, and how long short calls took, at the most, while
/// this many calls of 400 MiB were stopped at one time and their memory was freed.
fn lateness(large: usize) -> (Duration, Duration) {
    let engine = Engine::new().unwrap();
    let module = engine.load(&wat::parse_str(LARGE).unwrap()).unwrap();
    let prepare = |target| {
        let nothing = Shape::tuple(Vec::new()).unwrap();
        let site = CallSite::new(target, Vec::new(), nothing);
        module.prepare_call(site).unwrap()
    };
    let until = |at| CallOptions {
        deadline: Some(Deadline::At(at)),
        ..CallOptions::default()
    };
    let stop = Instant::now() + Duration::from_secs(4);
    let calls: Vec<_> = (0..large).map(|_| prepare("fill")).collect();
    let (spin, nothing) = (prepare("spin"), prepare("nothing"));
    thread::scope(|scope| {
        for call in &calls {
            scope.spawn(|| {
                let status = call.call_with(&until(stop), &[], &mut []).unwrap_err();
                assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
            });
        }
        let late = scope.spawn(|| {
            let mut late = Duration::ZERO;
            // The first of these calls is stopped together with the large ones.
            let mut end = stop;
            while end < stop + Duration::from_secs(1) {
                spin.call_with(&until(end), &[], &mut []).unwrap_err();
                late = late.max(end.elapsed());
                end = Instant::now() + Duration::from_millis(5);
            }
            late
        });
        let mut longest = Duration::ZERO;
        thread::sleep(stop.saturating_duration_since(Instant::now()));
        while stop.elapsed() < Duration::from_secs(1) {
            let began = Instant::now();
            nothing.call(&[], &mut []).unwrap();
            longest = longest.max(began.elapsed());
            thread::sleep(Duration::from_micros(200));
        }
        (late.join().unwrap(), longest)
    })
}

/// Their memory, 3.1 GiB, is freed in the background, where it holds up other threads for a moment.
#[test]
fn stopped_calls_of_much_memory_hold_up_others_little() {
    let (alone, beside) = (lateness(0), lateness(8));
    eprintln!("late and longest: alone {alone:?}, beside eight calls of 400 MiB {beside:?}");
    assert!(beside.0 < Duration::from_secs(2), "{alone:?}, {beside:?}");
    assert!(beside.1 < Duration::from_secs(2), "{alone:?}, {beside:?}");
}
