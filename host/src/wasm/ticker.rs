//! The ticker: one thread for each engine that advances its epoch, by which running guests notice that time passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::fork;
use crate::values::{Blame, Result, Status, StatusCode};

/// From one tick to the next while guests run.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// From one tick to the next while none does.
const IDLE_TICK: Duration = Duration::from_millis(50);

/// Ticks without a guest after which the ticker slows down.
const IDLE_AFTER: u32 = 64;

/// Advances an engine's epoch until it is dropped.
#[derive(Debug)]
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that the thread runs in.
    generation: u32,
}

#[derive(Debug, Default)]
struct Shared {
    /// A guest has run since the last tick.
    busy: AtomicBool,
    /// The thread ticks slowly.
    idle: AtomicBool,
    stopped: AtomicBool,
}

impl Ticker {
    pub(super) fn start(engine: &wasmtime::Engine) -> Result<Self> {
        fork::watch();
        let shared = Arc::<Shared>::default();
        let weak = engine.weak();
        let thread = thread::Builder::new()
            .name("callbox-ticker".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || run(&shared, &weak)
            })
            .map_err(|error| {
                Status::new(
                    StatusCode::ResourceExhausted,
                    Blame::Host,
                    format!("expected to start the ticker's thread: {error}"),
                )
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
            generation: fork::generation(),
        })
    }

    /// Notes that a guest runs. Cheap while the ticker ticks: two loads of a line that is written at most once a tick.
    #[inline]
    pub(super) fn note_activity(&self) {
        if !self.shared.busy.load(Ordering::Relaxed) {
            self.shared.busy.store(true, Ordering::SeqCst);
        }
        // Should the thread go idle just now, either this sees it or it sees `busy`.
        if self.shared.idle.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Whether the thread runs in this process, and not in one that this was forked from.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.generation == fork::generation()
    }

    #[cold]
    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            if !self.is_here() {
                // A thread that is not there can't be waited for.
                std::mem::forget(thread);
                return;
            }
            thread.thread().unpark();
            // The thread does nothing that can panic; if it did, there is nothing to clean up.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, engine: &wasmtime::EngineWeak) {
    let mut next = Instant::now();
    let mut quiet_ticks = 0;
    while !shared.stopped.load(Ordering::Relaxed) {
        match shared.busy.swap(false, Ordering::Relaxed) {
            true => quiet_ticks = 0,
            false => quiet_ticks += 1,
        }
        let idle = quiet_ticks >= IDLE_AFTER;
        shared.idle.store(idle, Ordering::SeqCst);
        match idle && !shared.busy.load(Ordering::SeqCst) {
            true => {
                quiet_ticks = IDLE_AFTER;
                thread::park_timeout(IDLE_TICK);
                next = Instant::now();
            }
            false => {
                next += TICK;
                thread::sleep(next.saturating_duration_since(Instant::now()));
                // After a pause of the whole process, ticks that were missed are not made up for.
                next = next.max(Instant::now().checked_sub(TICK).unwrap_or(next));
            }
        }
        match engine.upgrade() {
            Some(engine) => engine.increment_epoch(),
            None => return,
        }
    }
}
