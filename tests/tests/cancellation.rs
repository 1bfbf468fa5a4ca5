//! One of 64 calls at once is stopped, or traps: the others give the very bits that they give undisturbed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use callbox::policy::{Grants, Isolation, Limits, LogLevel, Policy, Traps};
use callbox::wasm::{Config, Engine, LogRecord, PreparedCall};
use callbox::{CallOptions, CallSite, CancelToken, Deadline, Result, Shape, StatusCode};

const CALLS: usize = 64;

/// A target `f` of an s64[2] that says that it began, and then by the first element: 1 traps and 2 loops; both say so before. Otherwise it
/// computes with the second element as its seed, in memory, a global and locals; says when half is done; and goes on. The result depends on
/// all of it, and so would on whatever was disturbed.
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

/// Holds guests back where they speak, so that all are in the middle of their calls when one is stopped.
#[derive(Default)]
struct Stage {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    /// Nobody is held back.
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

    /// Begins anew.
    fn set(&self, is_open: bool) {
        *self.counts.lock().unwrap() = Counts {
            is_open,
            ..Counts::default()
        };
    }

    /// The call that is stopped is: the others go on.
    fn end(&self) {
        self.counts.lock().unwrap().is_over = true;
        self.changed.notify_all();
    }
}

/// A call site, and where its calls are held back.
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

    /// What each call gives by itself.
    fn undisturbed(&self) -> Vec<[u8; 32]> {
        self.stage.set(true);
        let results = (0..CALLS).map(|seed| self.call(0, seed, &CallOptions::default()));
        results.collect::<Result<_>>().unwrap()
    }

    /// All calls at once, of which one is stopped when all others are in the middle of theirs.
    fn disturb(&self, victim: usize, how: Stop, expected: &[[u8; 32]]) {
        self.stage.set(false);
        let token = CancelToken::new();
        let options = how.options(&token);
        thread::scope(|scope| {
            let calls: Vec<_> = (0..CALLS)
                .map(|seed| match seed == victim {
                    true => scope.spawn(|| {
                        let outcome = self.call(how.what(), victim, &options);
                        self.stage.end();
                        outcome
                    }),
                    false => scope.spawn(move || self.call(0, seed, &CallOptions::default())),
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

/// What becomes of the one call.
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
            // It passes while the call is held back for the others, and ends it when it goes on.
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
    // The results say which call they are of.
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

/// A tight loop is stopped soon after its deadline. The bound is wide, for a machine that is busy: how soon it is, `cargo xtask latency`
/// measures; here a stop that takes seconds would be seen.
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
            // A call reads no clock before its first tick, of a millisecond, and may end that much early.
            assert!(took + Duration::from_millis(1) >= deadline, "{took:?}");
            took.saturating_sub(deadline)
        })
        .collect();
    overruns.sort();
    let median = overruns[overruns.len() / 2];
    assert!(median < Duration::from_millis(100), "{overruns:?}");
}
