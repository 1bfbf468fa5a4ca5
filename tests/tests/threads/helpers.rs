//! Threads of several manners, which count the jobs that they are offered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use callbox::call::{Job, ThreadPool, Threads};

/// When a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// On another thread, to its end, before the caller begins: helpers do all the work.
    AtOnce,
    /// On a thread of its own.
    Beside,
    /// On a thread of its own, which begins before the caller does.
    First,
    /// On a [`ThreadPool`].
    Pool,
    /// Not before [`Counted::run_kept`].
    Kept,
    /// Never within a call: its thread takes an hour to wake.
    Asleep,
}

/// Threads that count the jobs that they are offered.
#[derive(Debug)]
pub(crate) struct Counted {
    manner: Manner,
    count: usize,
    offered: AtomicUsize,
    pool: ThreadPool,
    kept: Mutex<Vec<KeptJob>>,
}

struct KeptJob(Job);

impl std::fmt::Debug for KeptJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeptJob")
    }
}

impl Counted {
    pub(crate) fn new(manner: Manner, count: usize) -> Arc<Self> {
        Arc::new(Self {
            manner,
            count,
            offered: AtomicUsize::new(0),
            pool: ThreadPool::new(count),
            kept: Mutex::default(),
        })
    }

    /// The number of jobs since the last [`Counted::forget`].
    pub(crate) fn offered(&self) -> usize {
        self.offered.load(Ordering::Relaxed)
    }

    pub(crate) fn forget(&self) {
        self.offered.store(0, Ordering::Relaxed);
    }

    /// Runs the jobs that were kept, on the calling thread.
    pub(crate) fn run_kept(&self) -> usize {
        let kept = std::mem::take(&mut *self.kept.lock().unwrap());
        let count = kept.len();
        kept.into_iter().for_each(|job| (job.0)());
        count
    }
}

impl Threads for Counted {
    fn waking(&self) -> Duration {
        match self.manner {
            Manner::Asleep => Duration::from_secs(3600),
            _ => Duration::from_micros(50),
        }
    }

    fn count(&self) -> usize {
        self.count
    }

    fn run(&self, job: Job) {
        self.offered.fetch_add(1, Ordering::Relaxed);
        match self.manner {
            Manner::AtOnce => {
                // A panic is the call's.
                let _ = thread::spawn(job).join();
            }
            Manner::Beside => {
                thread::spawn(job);
            }
            Manner::First => {
                thread::spawn(job);
                thread::sleep(Duration::from_millis(100));
            }
            Manner::Pool => self.pool.run(job),
            Manner::Asleep => drop(job),
            Manner::Kept => self.kept.lock().unwrap().push(KeptJob(job)),
        }
    }
}
