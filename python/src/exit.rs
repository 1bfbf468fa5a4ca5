//! The interpreter's end, while other threads call.
//!
//! CPython up to 3.13 ends a thread that wants the GIL back after that by `pthread_exit`, wherever it is; and where it is in the middle of
//! Rust, the process aborts. PyO3 has such a thread wait instead, where it asks for the GIL itself. But a call also runs code of Python's, which gives the
//! GIL away and asks for it back on its own. So when the end begins, it waits for calls to get out of there, and no thread but the one that ends begins another.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long the end waits at most: the part of a call that it waits for takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the interpreter is ending.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The thread that ends it.
static ENDED_BY: Mutex<Option<ThreadId>> = Mutex::new(None);

/// How many calls are in the middle of what they do with the GIL.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// A call that has the GIL, or will ask for it.
pub(crate) struct Inside(());

impl Inside {
    /// Begins the part of a call that has the GIL. When the interpreter is ending, threads stay here.
    #[inline]
    pub(crate) fn enter(py: Python<'_>) -> Self {
        if ENDING.load(Ordering::Relaxed) {
            stay(py);
        }
        // The GIL is held since the flag was looked at, and whoever sets it holds it, too.
        INSIDE.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// Does something without the GIL, while which the interpreter may end.
    #[inline]
    pub(crate) fn detach<T: Send>(
        self,
        py: Python<'_>,
        work: impl FnOnce() -> T + Send,
    ) -> (Self, T) {
        let outside = self;
        let done = py.detach(move || {
            drop(outside);
            work()
        });
        (Self::enter(py), done)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cold]
fn stay(py: Python<'_>) {
    let ended_by = *ENDED_BY.lock().unwrap_or_else(PoisonError::into_inner);
    if ended_by == Some(thread::current().id()) {
        return;
    }
    py.detach(|| {
        loop {
            thread::park();
        }
    })
}

/// What `atexit` calls.
#[pyfunction]
pub(crate) fn end(py: Python<'_>) {
    *ENDED_BY.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
    ENDING.store(true, Ordering::Relaxed);
    let until = Instant::now() + PATIENCE;
    while INSIDE.load(Ordering::Relaxed) > 0 && Instant::now() < until {
        py.detach(|| thread::sleep(Duration::from_micros(200)));
    }
}
