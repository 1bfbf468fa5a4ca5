//! The module that the soak calls, whose target does what its operand asks for, reached in three
//! ways.

use std::cell::Cell;
use std::sync::Arc;

use callbox::call::Platform;
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::wasm::{LogRecord, Module, PreparedCall};
use callbox::{CallOptions, CallSite, Literal, Registry, Status};

/// The module. The target `f` takes a deed and a number; `through` passes its operand and result to
/// the function that its call site names, and fails as the function does.
///
/// `f` computes the product slowly and in guest memory, so that two calls sharing an instance would
/// disturb each other. Before a failure it writes to the result, which the caller must not see. The
/// word at address 4 counts the calls that the instance has served.
const MODULE: &str = r#"(module
  (import "callbox:ffi/api@1.1.0" "log" (func $log (param i32 i32 i32)))
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "a note")

  (func $sum (param $y i32)
    (local $i i32)
    (i32.store (i32.const 0) (i32.const 0))
    (loop
      (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (local.get $y)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if 0 (i32.lt_u (local.get $i) (i32.const 1000)))))

  ;; Takes 4 pages more and writes to each, if the host gives them.
  (func $grow
    (local $at i32) (local $end i32)
    (local.set $at (memory.grow (i32.const 4)))
    (if (i32.eq (local.get $at) (i32.const -1)) (then (return)))
    (local.set $at (i32.shl (local.get $at) (i32.const 16)))
    (local.set $end (i32.add (local.get $at) (i32.const 0x40000)))
    (loop
      (i32.store (local.get $at) (i32.const 0x5a5a5a5a))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if 0 (i32.lt_u (local.get $at) (local.get $end)))))

  (func $note (call $log (i32.const 2) (i32.const 16) (i32.const 6)))

  (func (export "f") (param $frame i32) (result i32)
    (local $x i32) (local $deed i32) (local $out i32)
    (local.set $x (i32.load (i32.load offset=8 (local.get $frame))))
    (local.set $deed (i32.load (local.get $x)))
    (local.set $out (i32.load (i32.load offset=16 (local.get $frame))))
    (i32.store (i32.const 4) (i32.add (i32.load (i32.const 4)) (i32.const 1)))
    (i32.store (local.get $out) (i32.const -1))
    (if (i32.eq (local.get $deed) (i32.const 1)) (then (unreachable)))
    (if (i32.eq (local.get $deed) (i32.const 2)) (then (return (i32.const 9))))
    (if (i32.eq (local.get $deed) (i32.const 3)) (then (loop (br 0))))
    (if (i32.eq (local.get $deed) (i32.const 4)) (then (call $grow)))
    (if (i32.eq (local.get $deed) (i32.const 5)) (then (call $note) (call $note) (call $note)))
    (if (i32.eq (local.get $deed) (i32.const 6)) (then
      (i32.store (local.get $out) (i32.load (i32.const 4)))
      (return (i32.const 0))))
    (call $sum (i32.load offset=4 (local.get $x)))
    (i32.store (local.get $out) (i32.load (i32.const 0)))
    (i32.const 0))

  (func (export "through") (param $frame i32) (result i32)
    (call $call
      (i32.load (i32.load offset=60 (local.get $frame)))
      (i32.load offset=8 (local.get $frame)) (i32.const 1)
      (i32.load offset=16 (local.get $frame)) (i32.const 1))))"#;

/// Calls `f` ten times, each time with the remainder of the previous result. The first element (the
/// deed) stays the same, so a failure is that of the first call.
const LOOP: &str = r#"HloModule soak_loop

body {
  state = (s32[], s32[2]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = s32[2] get-tuple-element(state), index=1
  y = s32[] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI
  one = s32[] constant(1)
  next = s32[] add(i, one)
  modulus = s32[] constant(100003)
  term = s32[] remainder(y, modulus)
  cell = s32[1] reshape(term)
  deed = s32[1] slice(x), slice={[0:1]}
  pair = s32[2] concatenate(deed, cell), dimensions={0}
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

/// Calls `f` through a function of the program that a target calls back.
const CALLBACK: &str = r#"HloModule soak_callback

inner {
  x = s32[2] parameter(0)
  ROOT r = s32[] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI
}

ENTRY main {
  x = s32[2] parameter(0)
  ROOT y = s32[] custom-call(x), custom_call_target="through", called_computations={inner}, api_version=API_VERSION_TYPED_FFI
}
"#;

thread_local! {
    /// The number of messages that guests logged on this thread. A call logs on its calling thread.
    static MESSAGES: Cell<usize> = const { Cell::new(0) };
}

/// The deeds of `f`, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Return the number times 1,000.
    Add = 0,
    Trap = 1,
    /// Return FAILED_PRECONDITION.
    Fail = 2,
    Loop = 3,
    /// As `Add`, after growing the memory.
    Grow = 4,
    /// As `Add`, with three log messages.
    Log = 5,
    /// Return how many calls the instance has served, this one included.
    Count = 6,
}

/// The ways to reach `f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Call,
    Loop,
    Callback,
}

/// The module, prepared for each way.
pub(super) struct Subject {
    call: PreparedCall,
    looping: Executable,
    callback: Executable,
}

/// Assembles the module.
pub(super) fn module() -> Vec<u8> {
    wat::parse_str(MODULE).expect("the soak's module is WebAssembly text")
}

/// A log sink that counts messages.
pub(super) fn sink(record: &LogRecord<'_>) {
    if record.message == "a note" {
        MESSAGES.set(MESSAGES.get() + 1);
    }
}

impl Subject {
    pub(super) fn new(module: &Arc<Module>) -> Result<Self, Status> {
        let mut registry = Registry::new();
        registry.register_module(module.clone())?;
        let compile = |text: &str| {
            let program = Program::from_hlo_text(text)?;
            Executable::compile(&program, &registry, Platform::Host)
        };
        Ok(Self {
            call: prepare(module)?,
            looping: compile(LOOP)?,
            callback: compile(CALLBACK)?,
        })
    }

    /// Calls `f` and checks the result.
    ///
    /// The outer error is a problem, the inner one the call's status.
    pub(super) fn run(
        &self,
        way: Way,
        (deed, number): (Deed, i32),
        options: &CallOptions,
    ) -> Result<Result<i32, Status>, String> {
        MESSAGES.set(0);
        let outcome = match way {
            Way::Call => call(&self.call, (deed, number), options)?,
            Way::Loop => execute(&self.looping, (deed, number), options),
            Way::Callback => execute(&self.callback, (deed, number), options),
        };
        let messages = MESSAGES.take();
        let expected = match (deed, way, &outcome) {
            (Deed::Log, Way::Loop, Ok(_)) => 30,
            (Deed::Log, _, Ok(_)) => 3,
            _ => 0,
        };
        if messages == expected {
            Ok(outcome)
        } else {
            Err(format!(
                "expected {expected} messages of {deed:?}, found {messages}"
            ))
        }
    }
}

/// Prepares the call site of `f` alone.
pub(super) fn prepare(module: &Arc<Module>) -> Result<PreparedCall, Status> {
    let shape = |text: &str| text.parse().expect("the soak's shapes are shapes");
    module.prepare_call(CallSite::new("f", vec![shape("s32[2]")], shape("s32[]")))
}

/// Calls the site, and checks that a failure leaves the caller's result unchanged.
pub(super) fn call(
    prepared: &PreparedCall,
    (deed, number): (Deed, i32),
    options: &CallOptions,
) -> Result<Result<i32, Status>, String> {
    const UNTOUCHED: [u8; 4] = [0xa5; 4];
    let operand = [(deed as i32).to_le_bytes(), number.to_le_bytes()].concat();
    let mut result = UNTOUCHED;
    let outcome = prepared.call_with(options, &[&operand], &mut [&mut result]);
    match outcome {
        Err(status) if result != UNTOUCHED => Err(format!(
            "expected the caller's result to be left alone, found it written to by a call that failed: {status}"
        )),
        outcome => Ok(outcome.map(|()| i32::from_le_bytes(result))),
    }
}

fn execute(
    executable: &Executable,
    (deed, number): (Deed, i32),
    options: &CallOptions,
) -> Result<i32, Status> {
    let x = Literal::array(&[2], &[deed as i32, number])?;
    let options = ExecuteOptions {
        call: options.clone(),
        ..ExecuteOptions::default()
    };
    let result = executable.execute(0, &[x], &options)?;
    // The result is a scalar, or the loop's pair, whose second element counts.
    Ok(result.to_vec::<i32>()?.last().copied().unwrap_or_default())
}

/// Computes the expected result of `f`. Returns `None` for deeds without a result, or whose result
/// only the instance knows.
pub(super) fn expected(way: Way, deed: Deed, number: i32) -> Option<i32> {
    let times = |number: i32| number.wrapping_mul(1000);
    match (deed, way) {
        (Deed::Trap | Deed::Fail | Deed::Loop | Deed::Count, _) => None,
        (_, Way::Call | Way::Callback) => Some(times(number)),
        (_, Way::Loop) => Some((0..10).fold(number, |y, _| times(y) % 100_003)),
    }
}
