//! The threads on which wasmtime compiles functions: rayon's, which the whole process shares.
//!
//! If rayon cannot start its threads, as under `RLIMIT_NPROC`, it panics at every later use as
//! well. This module therefore starts the threads first and hands them to rayon, which then cannot
//! fail.

use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::thread;

use callbox_core::call::processors;
use callbox_core::locks::locked;
use callbox_core::values::Result;
use rayon_core::{ThreadBuilder, ThreadPoolBuilder};

use crate::failure::host_exhausted;
use crate::fork;
use callbox_core::float_mode::FloatMode;

/// Starts the threads, unless they run. Their number is that of the processors or of rayon's
/// variable `RAYON_NUM_THREADS`, or less if not all can be started.
///
/// # Errors
/// RESOURCE_EXHAUSTED, blamed on the host, if none can be started.
pub(crate) fn start() -> Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    // Engines of a forked child compile on the calling thread.
    if fork::is_child() {
        return Ok(());
    }
    let mut started = locked(&STARTED);
    if !*started {
        hand_to_rayon(threads()?);
        *started = true;
    }
    Ok(())
}

/// Threads that wait for their part of rayon's pool.
fn threads() -> Result<Vec<Sender<ThreadBuilder>>> {
    let most = processors();
    let mut threads = Vec::new();
    for number in 0..most {
        let (sender, receiver) = mpsc::channel::<ThreadBuilder>();
        let run = move || {
            // The compiler evaluates constants, which takes the floating-point mode of guests. A
            // new thread inherits the mode of the thread that starts it.
            let _mode = FloatMode::WASM.set();
            if let Ok(part) = receiver.recv() {
                part.run();
            }
        };
        let thread = thread::Builder::new().name(format!("callbox-compiler-{number}"));
        match thread.spawn(run) {
            Ok(_) => threads.push(sender),
            Err(error) if threads.is_empty() => {
                return Err(host_exhausted(format!(
                    "cannot start a thread that compiles ({error}): raise the limit on processes and threads (`ulimit -u`)"
                )));
            }
            Err(_) => break,
        }
    }
    Ok(threads)
}

/// Builds rayon's pool from these threads. If the process has a pool already, the threads end.
fn hand_to_rayon(mut threads: Vec<Sender<ThreadBuilder>>) {
    let pool = ThreadPoolBuilder::new().num_threads(threads.len());
    let pool = pool.spawn_handler(|part| {
        // Every thread waits for its part, so that sending cannot fail.
        let _ = threads.pop().map(|thread| thread.send(part));
        Ok(())
    });
    // The only error is that a pool exists, which serves as well.
    let _ = pool.build_global();
}
