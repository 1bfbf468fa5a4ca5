//! Measures how long a stopped call takes to return.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use callbox::call::Platform;
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::wasm::Engine;
use callbox::{CallOptions, CancelToken, Deadline, Literal, Registry, Status, StatusCode};

use crate::load_text;

/// The interval at which the engine's ticker checks running calls.
pub const TICK: Duration = Duration::from_millis(1);

/// A guest that never returns by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The name in the report.
    pub name: &'static str,
    /// The body of the target, as WebAssembly text.
    body: &'static str,
    /// The number of concurrent calls. 0 means one per processor.
    pub threads: usize,
    /// The least time that a call runs before it is stopped.
    warm_up: Duration,
    /// Divides the requested number of kills, for guests whose calls are slow.
    pub one_in: usize,
}

const SOON: Duration = Duration::from_micros(1500);

const PLAIN: Guest = Guest {
    name: "tight loop",
    body: "(loop (br 0))",
    threads: 1,
    warm_up: SOON,
    one_in: 1,
};

/// All guests, in the order of the report.
pub const GUESTS: &[Guest] = &[
    PLAIN,
    Guest {
        name: "nested calls",
        body: "(loop (drop (call $nest (i32.const 20))) (br 0))",
        ..PLAIN
    },
    Guest {
        name: "recursion, 1,000 deep and back",
        body: "(loop (drop (call $nest (i32.const 1000))) (br 0))",
        ..PLAIN
    },
    Guest {
        name: "stores over 64 MiB",
        body: "(call $grow (i32.const 1024))
               (loop (i32.store (local.get $at) (local.get $at))
                 (local.set $at (i32.and (i32.add (local.get $at) (i32.const 4160)) (i32.const 0x3ffffff)))
                 (br 0))",
        ..PLAIN
    },
    Guest {
        name: "memory.fill of 1,000 MiB, again and again",
        body: "(call $grow (i32.const 16000))
               (loop (memory.fill (i32.const 0) (i32.const 7) (i32.shl (memory.size) (i32.const 16))) (br 0))",
        ..PLAIN
    },
    Guest {
        name: "memory.copy of 496 MiB, again and again",
        body: "(call $grow (i32.const 16000))
               (loop (memory.copy (i32.const 0x1f400000) (i32.const 0) (i32.const 0x1f000000)) (br 0))",
        ..PLAIN
    },
    Guest {
        name: "256 MiB filled, then a tight loop",
        body: "(call $grow (i32.const 4096))
               (memory.fill (i32.const 0) (i32.const 7) (i32.const 0x10000000)) (loop (br 0))",
        warm_up: Duration::from_millis(400),
        one_in: 20,
        ..PLAIN
    },
    Guest {
        name: "calls back into the program",
        body: "(loop (drop (call $call
                 (i32.load (i32.load offset=60 (local.get $frame)))
                 (i32.load offset=8 (local.get $frame)) (i32.const 1)
                 (i32.load offset=16 (local.get $frame)) (i32.const 1))) (br 0))",
        ..PLAIN
    },
    Guest {
        name: "tight loop, one for each processor",
        threads: 0,
        ..PLAIN
    },
    Guest {
        name: "tight loop, 8 at one time",
        threads: 8,
        ..PLAIN
    },
];

const PROGRAM: &str = r#"HloModule kills
inner {
  x = s32[] parameter(0)
  ROOT r = s32[] add(x, x)
}
ENTRY main {
  x = s32[] parameter(0)
  ROOT y = s32[] custom-call(x), custom_call_target="f", called_computations={inner}, api_version=API_VERSION_TYPED_FFI
}"#;

impl Guest {
    fn compile(&self, engine: &Engine) -> Executable {
        let text = format!(
            r#"(module
              (import "callbox:ffi/api@1.1.0" "call-function"
                (func $call (param i32 i32 i32 i32 i32) (result i32)))
              (memory (export "memory") 4)
              (func $grow (param i32)
                (if (i32.eq (memory.grow (local.get 0)) (i32.const -1)) (then (unreachable))))
              (func $nest (param i32) (result i32)
                (if (result i32) (local.get 0)
                  (then (i32.add (call $nest (i32.sub (local.get 0) (i32.const 1))) (i32.const 1)))
                  (else (i32.const 0))))
              (func (export "f") (param $frame i32) (result i32) (local $at i32)
                {} (i32.const 0)))"#,
            self.body
        );
        let mut registry = Registry::new();
        registry.register_module(load_text(engine, &text)).unwrap();
        let program = Program::from_hlo_text(PROGRAM).unwrap();
        Executable::compile(&program, &registry, Platform::Host).unwrap()
    }

    /// Stops about `kills` calls, divided among the threads, and returns their latencies in
    /// ascending order.
    #[must_use]
    pub fn measure(&self, engine: &Engine, by: By, kills: usize) -> Vec<Duration> {
        let executable = Arc::new(self.compile(engine));
        let threads = match self.threads {
            0 => thread::available_parallelism().unwrap().get(),
            threads => threads,
        };
        let each = (kills / self.one_in).div_ceil(threads);
        let threads: Vec<_> = (0..threads)
            .map(|number| {
                let (executable, guest) = (Arc::clone(&executable), *self);
                thread::spawn(move || {
                    by.kill(guest, &executable, number * each..(number + 1) * each)
                })
            })
            .collect();
        let mut latencies: Vec<_> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        latencies.sort_unstable();
        latencies
    }
}

/// What stops a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its deadline. The latency counts from the deadline.
    Deadline,
    /// Its cancel token. The latency counts from the cancellation.
    Cancel,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "deadline",
            Self::Cancel => "cancel",
        })
    }
}

impl By {
    fn kill(
        self,
        guest: Guest,
        executable: &Executable,
        numbers: std::ops::Range<usize>,
    ) -> Vec<Duration> {
        match self {
            Self::Deadline => numbers
                .map(|number| {
                    let deadline = Instant::now() + guest.after(number);
                    let options = CallOptions {
                        deadline: Some(Deadline::At(deadline)),
                        ..CallOptions::default()
                    };
                    stopped(executable, options, StatusCode::DeadlineExceeded);
                    deadline.elapsed()
                })
                .collect(),
            Self::Cancel => cancelled(guest, executable, numbers),
        }
    }
}

/// Runs calls that another thread cancels, and returns the latencies counted from each
/// cancellation.
fn cancelled(
    guest: Guest,
    executable: &Executable,
    numbers: std::ops::Range<usize>,
) -> Vec<Duration> {
    let (begin, begun) = mpsc::channel::<(CancelToken, Duration)>();
    let (tell, told) = mpsc::channel();
    let canceller = thread::spawn(move || {
        for (token, after) in begun {
            thread::sleep(after);
            let now = Instant::now();
            token.cancel();
            tell.send(now).unwrap();
        }
    });
    let latencies = numbers
        .map(|number| {
            let token = CancelToken::new();
            let options = CallOptions {
                cancel: Some(token.clone()),
                ..CallOptions::default()
            };
            begin.send((token, guest.after(number))).unwrap();
            stopped(executable, options, StatusCode::Cancelled);
            let returned = Instant::now();
            returned - told.recv().unwrap()
        })
        .collect();
    drop(begin);
    canceller.join().unwrap();
    latencies
}

impl Guest {
    /// Returns when to stop call `number`. The times are spread evenly over two ticks.
    fn after(&self, number: usize) -> Duration {
        const GOLDEN: f64 = 0.618_033_988_749_895;
        self.warm_up + TICK.mul_f64(2.0 * (number as f64 * GOLDEN).fract())
    }
}

fn stopped(executable: &Executable, call: CallOptions, expected: StatusCode) {
    let options = ExecuteOptions {
        call,
        ..ExecuteOptions::default()
    };
    let outcome = executable.execute(0, &[Literal::scalar(1_i32)], &options);
    assert_eq!(
        outcome.as_ref().err().map(Status::code),
        Some(expected),
        "{outcome:?}"
    );
}
