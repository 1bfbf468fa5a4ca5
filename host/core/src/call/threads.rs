//! Threads that help with calls.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::locks::locked;

/// Work for another thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// Threads that help with calls: those of a pool that the embedder has, or a [`ThreadPool`].
///
/// A call whose elements or pieces are independent offers the same job several times and begins to
/// work itself. A job that starts after the call has ended returns at once, so that a call never
/// waits for a job that has not started. It waits for those that have, and each of them is stopped
/// when the call is. A job runs code of guests: it takes the stack that
/// [`Limits::stack_bytes`](crate::policy::Limits::stack_bytes) says, or does not help.
pub trait Threads: fmt::Debug + Send + Sync {
    /// The number of threads that can run jobs at one time.
    fn count(&self) -> usize;

    /// Has a thread run the job, or drops the job if none is free. Returns without waiting.
    fn run(&self, job: Job);

    /// How long it may take until a thread runs a job. A call that will probably end before that,
    /// for the bytes it copies, asks for no help.
    fn waking(&self) -> Duration {
        AWAKE
    }
}

/// A pool of threads, each of which starts when it is first needed. They end when the pool is
/// dropped.
pub struct ThreadPool {
    count: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether there is something to do, for threads that wait without sleeping. Changes with
    /// `state`.
    has_jobs: AtomicBool,
}

#[derive(Default)]
struct State {
    /// At most one for each idle thread.
    jobs: VecDeque<Job>,
    started: usize,
    /// The threads that wait, asleep or not.
    idle: usize,
    asleep: usize,
    is_closed: bool,
}

/// The processors that this process may use, when it first asked: 1 if the system does not say.
///
/// Asking takes tens of microseconds, because the answer is read from the files of control groups.
#[must_use]
pub fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get().unwrap_or_else(|| {
        // Not in the initializer: a child that is forked meanwhile would wait for it for ever.
        let found = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        PROCESSORS.get_or_init(|| found)
    })
}

/// How long a thread waits awake before it sleeps: as long as waking it may take where its
/// processor sleeps as well, in which time a call copies some 500 KiB.
pub(super) const AWAKE: Duration = Duration::from_micros(50);

/// The stack of a thread: twice what a call takes by the default limits, and more than is usual.
const STACK: usize = 2 << 20;

impl ThreadPool {
    /// A pool of at most this many threads.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self {
            count,
            shared: Arc::default(),
        }
    }
}

impl Threads for ThreadPool {
    fn count(&self) -> usize {
        self.count
    }

    fn run(&self, job: Job) {
        let mut state = self.shared.state();
        if state.jobs.len() < state.idle {
            state.jobs.push_back(job);
            self.shared.has_jobs.store(true, Ordering::Relaxed);
            // Those that are awake take the others.
            let wakes = state.jobs.len() > state.idle - state.asleep;
            drop(state);
            if wakes {
                self.shared.changed.notify_one();
            }
        } else if state.started < self.count {
            state.started += 1;
            drop(state);
            self.shared.start(job);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Starts a thread. Drops the job if that is impossible.
    fn start(self: &Arc<Self>, job: Job) {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("callbox-helper".to_owned());
        let started = thread.stack_size(STACK).spawn(move || shared.work(job));
        if started.is_err() {
            self.state().started -= 1;
        }
    }

    fn work(&self, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            // A panic is the call's, which reports it.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(job)) {
                std::mem::forget(payload);
            }
            next = self.next();
        }
    }

    /// Waits for a job. `None` once the pool is closed.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        state.idle += 1;
        let until = Instant::now() + AWAKE;
        let job = loop {
            if state.is_closed {
                break None;
            }
            if let Some(job) = state.jobs.pop_front() {
                self.has_jobs
                    .store(!state.jobs.is_empty(), Ordering::Relaxed);
                break Some(job);
            }
            if Instant::now() < until {
                drop(state);
                while !self.has_jobs.load(Ordering::Relaxed) && Instant::now() < until {
                    std::hint::spin_loop();
                }
                state = self.state();
            } else {
                state.asleep += 1;
                let waited = self.changed.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                state.asleep -= 1;
            }
        };
        state.idle -= 1;
        job
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.state().is_closed = true;
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
