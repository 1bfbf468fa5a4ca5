//! Guests that leave canaries wherever they can, and guests that look for them. The engines have a
//! single instance slot, so that both use the same one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use callbox::policy::{Grants, Isolation, Limits, LogLevel, Policy, Traps};
use callbox::wasm::{Config, Engine, Module, PreparedCall};
use callbox::{CallOptions, CallSite, CancelToken, Deadline, Result, StatusCode};

/// The maximum number of memory pages: more than a freed slot keeps, and more than is cleared in
/// one piece.
const PAGES: i64 = 192;

/// The maximum number of table elements.
const ELEMENTS: usize = 1000;

/// The canary. Operands contain it masked only.
const CANARY: i64 = 0x7e57_c0de_5eed_cafe;
const MASK: i64 = 0x0123_4567_89ab_cdef;

/// The target `f` takes an s64[4]: whether to look, the masked canary, how to end, and the number
/// of pages to grow to.
///
/// When it does not look, it fills its memory, table and global, logs, and ends. When it looks, it
/// counts: canaries in memory before and after growing, nonzero words in new pages, table elements
/// that are not null, and a nonzero global.
const MODULE: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (import "callbox:ffi/api@1.0.0" "set-failure" (func $fail (param i32 i32 i32 i32)))
  (memory (export "memory") 2)
  (table $t 4 1000 funcref)
  (global $g (mut i64) (i64.const 0))
  (elem declare func $deep)
  VARIANT
  (func $deep (param i32) (result i32) (i32.add (call $deep (local.get 0)) (i32.const 1)))
  (func $end (result i32) (i32.shl (memory.size) (i32.const 16)))
  (func $count (param $from i32) (param $word i64) (param $equal i32) (result i64)
    (local $n i64)
    (if (i32.eq (local.get $from) (call $end)) (then (return (i64.const 0))))
    (loop
      (local.set $n (i64.add (local.get $n) (i64.extend_i32_u
        (i32.eq (local.get $equal) (i64.eq (i64.load (local.get $from)) (local.get $word))))))
      (local.set $from (i32.add (local.get $from) (i32.const 8)))
      (br_if 0 (i32.lt_u (local.get $from) (call $end))))
    (local.get $n))
  (func $elements (result i64)
    (local $i i32) (local $n i64)
    (loop
      (if (i32.eqz (ref.is_null (table.get $t (local.get $i))))
        (then (local.set $n (i64.add (local.get $n) (i64.const 1)))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if 0 (i32.lt_u (local.get $i) (table.size $t))))
    (local.get $n))
  (func $fill (param $word i64)
    (local $at i32)
    (loop
      (i64.store (local.get $at) (local.get $word))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if 0 (i32.lt_u (local.get $at) (call $end))))
    (table.fill $t (i32.const 0) (ref.func $deep) (table.size $t))
    (global.set $g (local.get $word)))
  (func $grow (param $pages i32)
    (drop (memory.grow (i32.sub (local.get $pages) (memory.size))))
    (drop (table.grow $t (ref.null func) (i32.sub (i32.const 1000) (table.size $t)))))
  (func $finish (param $how i32) (result i32)
    (if (i32.eq (local.get $how) (i32.const 1)) (then (return (i32.const 9))))
    (if (i32.eq (local.get $how) (i32.const 2)) (then (unreachable)))
    (if (i32.eq (local.get $how) (i32.const 3)) (then (drop (i32.load (i32.const -8)))))
    (if (i32.eq (local.get $how) (i32.const 4)) (then (drop (call $deep (i32.const 0)))))
    (if (i32.eq (local.get $how) (i32.const 5)) (then
      (call $fail (i32.const 10) (i32.const 0) (i32.const 8) (i32.const 0))
      (unreachable)))
    (if (i32.ge_s (local.get $how) (i32.const 6)) (then (loop (br 0))))
    (i32.const 0))
  (func (export "f") (param $frame i32) (result i32)
    (local $x i32) (local $out i32) (local $end i32)
    (local $how i32) (local $looks i32) (local $pages i32) (local $canary i64)
    (local.set $x (i32.load (i32.load offset=8 (local.get $frame))))
    (local.set $out (i32.load (i32.load offset=16 (local.get $frame))))
    (local.set $looks (i32.wrap_i64 (i64.load (local.get $x))))
    (local.set $canary (i64.xor (i64.load offset=8 (local.get $x)) (i64.const 0x0123456789abcdef)))
    (local.set $how (i32.wrap_i64 (i64.load offset=16 (local.get $x))))
    (local.set $pages (i32.wrap_i64 (i64.load offset=24 (local.get $x))))
    (local.set $end (call $end))
    (if (i32.eqz (local.get $looks)) (then
      (call $grow (local.get $pages))
      (call $fill (local.get $canary))
      (call $log (i32.const 2) (i32.const 0) (i32.const 0))
      (return (call $finish (local.get $how)))))
    (i64.store (local.get $out) (call $count (i32.const 0) (local.get $canary) (i32.const 1)))
    (call $grow (local.get $pages))
    (i64.store offset=8 (local.get $out) (call $count (i32.const 0) (local.get $canary) (i32.const 1)))
    (i64.store offset=16 (local.get $out) (call $count (local.get $end) (i64.const 0) (i32.const 0)))
    (i64.store offset=24 (local.get $out) (call $elements))
    (i64.store offset=32 (local.get $out) (i64.extend_i32_u (i64.ne (global.get $g) (i64.const 0))))
    (i32.const 0)))"#;

/// How a filling guest ends. The discriminants are those of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Returns = 0,
    Fails = 1,
    Traps = 2,
    OutOfBounds = 3,
    StackOverflow = 4,
    Panics = 5,
    Deadline = 6,
    Cancelled = 7,
    /// The log sink panics.
    HostPanics = 8,
}

const ENDINGS: [Ending; 9] = [
    Ending::Returns,
    Ending::Fails,
    Ending::Traps,
    Ending::OutOfBounds,
    Ending::StackOverflow,
    Ending::Panics,
    Ending::Deadline,
    Ending::Cancelled,
    Ending::HostPanics,
];

impl Ending {
    fn code(self) -> Option<StatusCode> {
        match self {
            Self::Returns | Self::HostPanics => None,
            Self::Fails => Some(StatusCode::FailedPrecondition),
            Self::Traps | Self::Panics => Some(StatusCode::Aborted),
            Self::OutOfBounds => Some(StatusCode::OutOfRange),
            Self::StackOverflow => Some(StatusCode::ResourceExhausted),
            Self::Deadline => Some(StatusCode::DeadlineExceeded),
            Self::Cancelled => Some(StatusCode::Cancelled),
        }
    }

    /// Returns whether the instance is reused.
    fn keeps_the_instance(self) -> bool {
        matches!(self, Self::Returns | Self::Fails)
    }
}

/// The counts of a looking guest.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sighting {
    before_growth: i64,
    after_growth: i64,
    not_zero: i64,
    elements: i64,
    global: i64,
}

/// An engine with a single instance slot.
struct Fixture {
    engine: Engine,
    token: Arc<Mutex<CancelToken>>,
    panics: Arc<AtomicBool>,
    filled: Arc<AtomicBool>,
}

impl Fixture {
    fn new(isolation: Isolation, traps: Traps) -> Self {
        let token = Arc::<Mutex<CancelToken>>::default();
        let panics = Arc::<AtomicBool>::default();
        let filled = Arc::<AtomicBool>::default();
        let sink = {
            let (token, panics) = (Arc::clone(&token), Arc::clone(&panics));
            let filled = Arc::clone(&filled);
            move |_: &callbox::wasm::LogRecord<'_>| {
                filled.store(true, Ordering::SeqCst);
                token.lock().unwrap().cancel();
                if panics.load(Ordering::SeqCst) {
                    std::panic::resume_unwind(Box::new("the sink is full"));
                }
            }
        };
        let policy = Policy {
            limits: Limits {
                memory_bytes: (PAGES as usize) << 16,
                table_elements: ELEMENTS,
                instances: 1,
                executable_instances: 1,
                ..Limits::default()
            },
            isolation,
            traps,
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        };
        let engine = Engine::with_config(Config {
            policy,
            log: Some(Arc::new(sink)),
            ..Config::default()
        });
        Self {
            engine: engine.unwrap(),
            token,
            panics,
            filled,
        }
    }

    /// Returns the module, or a variant with the same behaviour.
    fn module(&self, variant: &str) -> Arc<Module> {
        let text = MODULE.replace("VARIANT", variant);
        self.engine.load(&wat::parse_str(text).unwrap()).unwrap()
    }

    /// Fills everything with canaries, and ends in this way.
    fn leave(&self, call: &PreparedCall, ending: Ending) {
        let token = CancelToken::new();
        *self.token.lock().unwrap() = token.clone();
        self.panics
            .store(ending == Ending::HostPanics, Ordering::SeqCst);
        for milliseconds in [100, 1000, 10_000] {
            self.filled.store(false, Ordering::SeqCst);
            let options = match ending {
                Ending::Deadline => CallOptions {
                    deadline: Some(Deadline::After(Duration::from_millis(milliseconds))),
                    ..CallOptions::default()
                },
                Ending::Cancelled => CallOptions {
                    cancel: Some(token.clone()),
                    ..CallOptions::default()
                },
                _ => CallOptions::default(),
            };
            // Run on a separate thread, because the sink's panic unwinds it.
            let outcome =
                thread::scope(|scope| scope.spawn(|| run(call, 0, ending, &options)).join());
            match outcome {
                Ok(outcome) => assert_eq!(
                    outcome.as_ref().err().map(callbox::Status::code),
                    ending.code(),
                    "{outcome:?}"
                ),
                Err(_) => assert_eq!(ending, Ending::HostPanics),
            }
            // A slow machine may be stopped before it has filled everything; then try again.
            if self.filled.load(Ordering::SeqCst) {
                break;
            }
        }
        assert!(self.filled.load(Ordering::SeqCst), "{ending:?}: not filled");
        self.panics.store(false, Ordering::SeqCst);
    }
}

fn prepare(module: &Arc<Module>) -> PreparedCall {
    let operand = "s64[4]".parse().unwrap();
    let site = CallSite::new("f", vec![operand], "s64[5]".parse().unwrap());
    module.prepare_call(site).unwrap()
}

/// Looks for canaries.
fn look(call: &PreparedCall) -> Sighting {
    let found = run(call, 1, Ending::Returns, &CallOptions::default()).unwrap();
    let [before_growth, after_growth, not_zero, elements, global] = found;
    Sighting {
        before_growth,
        after_growth,
        not_zero,
        elements,
        global,
    }
}

/// Checks that nearly all memory, and everything else that a guest can fill, holds the canary.
fn assert_everywhere(found: &Sighting, why: &str) {
    // Frame and buffers are rewritten for each call.
    let nearly_all = (PAGES << 16) / 8 - 100;
    assert!(found.before_growth > nearly_all, "{why}: {found:?}");
    assert_eq!(found.elements, ELEMENTS as i64, "{why}");
    assert_eq!(found.global, 1, "{why}");
}

fn run(call: &PreparedCall, looks: i64, ending: Ending, options: &CallOptions) -> Result<[i64; 5]> {
    let operand = [looks, CANARY ^ MASK, ending as i64, PAGES].map(i64::to_le_bytes);
    let mut result = [0; 40];
    call.call_with(options, &[&operand.concat()], &mut [&mut result])?;
    let mut words = [0; 5];
    for (word, bytes) in std::iter::zip(&mut words, result.chunks_exact(8)) {
        *word = i64::from_le_bytes(bytes.try_into().unwrap());
    }
    Ok(words)
}

/// Checks that no byte, element or global reaches another instance, however the filling guest
/// ended.
pub(crate) fn nothing_is_left(isolation: Isolation, traps: Traps) {
    let fixture = Fixture::new(isolation, traps);
    let module = fixture.module("");
    let other_module = fixture.module(r#"(func (export "other") (unreachable))"#);
    let nothing = Sighting::default();
    for ending in ENDINGS {
        let why = format!("{isolation:?}, {traps:?}, {ending:?}");
        // Use the only slot for another executable of the same module, and for another module.
        for of in [&module, &other_module] {
            let first = prepare(&module);
            fixture.leave(&first, ending);
            assert_eq!(look(&prepare(of)), nothing, "{why}: another's");
        }
        let call = prepare(&module);
        fixture.leave(&call, ending);
        let found = look(&call);
        // If the same instance is reused, looking must find the canaries.
        if isolation == Isolation::Executable && ending.keeps_the_instance() {
            assert_everywhere(&found, &why)
        } else {
            assert_eq!(found, nothing, "{why}: the next call's")
        }
    }
}
