//! The ticker: one thread per engine, which stops the guests that are over ([`stop`](crate::stop)).
//!
//! It ticks every millisecond while guests run, and slows down while none does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use callbox_core::values::Result;

use crate::failure::host_exhausted;
use crate::fork;
use crate::stop::{Lease, Watches};

/// The time between ticks while guests run.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The time between ticks while no guest runs.
const IDLE_TICK: Duration = Duration::from_millis(50);

/// The ticks without a guest after which the ticker slows down.
const IDLE_AFTER: u32 = 64;

/// Stops an engine's guests until it is dropped.
pub(crate) struct Ticker {
    activity: Arc<Activity>,
    watches: Arc<Watches>,
    thread: Option<JoinHandle<()>>,
    /// The process in which the thread runs.
    generation: u32,
}

/// The state that the thread shares with the engine's calls.
#[derive(Debug, Default)]
struct Activity {
    /// A guest has run since the last tick.
    busy: AtomicBool,
    /// The thread ticks slowly.
    idle: AtomicBool,
    stopped: AtomicBool,
}

impl Ticker {
    pub(crate) fn start() -> Result<Self> {
        fork::watch();
        let activity = Arc::<Activity>::default();
        let watches = Arc::new(Watches::new());
        let thread = thread::Builder::new()
            .name("callbox-ticker".to_owned())
            .spawn({
                let (activity, watches) = (Arc::clone(&activity), Arc::clone(&watches));
                move || run(&activity, &watches)
            })
            .map_err(|error| {
                host_exhausted(format!("expected to start the ticker's thread: {error}"))
            })?;
        Ok(Self {
            activity,
            watches,
            thread: Some(thread),
            generation: fork::generation(),
        })
    }

    /// Leases a watch for an instance of this process.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller, if there is no address space left.
    pub(crate) fn lease(&self, engine: &wasmtime::Engine) -> Result<Lease> {
        self.watches.lease(engine)
    }

    /// Notes that a guest runs. While the ticker ticks, this costs two loads from a cache line that
    /// is written at most once per tick.
    #[inline]
    pub(crate) fn note_activity(&self) {
        if !self.activity.busy.load(Ordering::Relaxed) {
            self.activity.busy.store(true, Ordering::SeqCst);
        }
        // If the thread is going idle at this moment, either this load sees `idle` or the thread
        // sees `busy`.
        if self.activity.idle.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Whether the thread runs in this process, rather than in one that this was forked from.
    #[inline]
    pub(crate) fn is_in_this_process(&self) -> bool {
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
        self.activity.stopped.store(true, Ordering::Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            if self.is_in_this_process() {
                // The thread cannot panic, and there would be nothing to clean up if it did.
                let _ = thread.join();
            } else {
                // The thread does not exist here, and joining it would hang.
                std::mem::forget(thread);
            }
        }
    }
}

fn run(activity: &Activity, watches: &Watches) {
    let mut next = Instant::now();
    let mut quiet_ticks = 0;
    let mut is_running = false;
    while !activity.stopped.load(Ordering::Relaxed) {
        if activity.busy.swap(false, Ordering::Relaxed) | is_running {
            quiet_ticks = 0;
        } else {
            quiet_ticks += 1;
        }
        let idle = quiet_ticks >= IDLE_AFTER;
        activity.idle.store(idle, Ordering::SeqCst);
        if idle && !activity.busy.load(Ordering::SeqCst) {
            quiet_ticks = IDLE_AFTER;
            thread::park_timeout(IDLE_TICK);
            next = Instant::now();
        } else {
            next += TICK;
            thread::sleep(next.saturating_duration_since(Instant::now()));
            // After a pause of the whole process, missed ticks are not made up for.
            next = next.max(Instant::now().checked_sub(TICK).unwrap_or(next));
        }
        is_running = watches.tick();
    }
}
