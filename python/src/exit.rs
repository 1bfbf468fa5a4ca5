//! Ends the interpreter while other threads are in calls.
//!
//! After finalisation, CPython up to 3.13 ends a thread that asks for the GIL with `pthread_exit`.
//! If Rust frames are on its stack, that aborts the process. PyO3 parks such a thread where it asks
//! for the GIL itself, but a call also runs Python code, which releases and takes the GIL on its
//! own. Therefore `atexit` waits until no call is in such code, and keeps other threads from
//! beginning one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// The maximum time to wait. The part of a call that runs Python code takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the interpreter is ending.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The thread that ends the interpreter.
static ENDED_BY: Mutex<Option<ThreadId>> = Mutex::new(None);

/// The number of calls that hold the GIL or will ask for it.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// A call in the part that needs the GIL.
pub(crate) struct Inside(());

impl Inside {
    /// Begins the part that needs the GIL. Parks the thread if the interpreter is ending.
    #[inline]
    pub(crate) fn enter(py: Python<'_>) -> Self {
        if ENDING.load(Ordering::Relaxed) {
            stay(py);
        }
        // The flag cannot have changed since: setting it needs the GIL, which this thread holds.
        INSIDE.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// Runs `work` without the GIL. The interpreter may end meanwhile.
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

/// Runs `work` with the GIL on a thread of the extension. None if the interpreter is ending.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // `end` sets the flag before it reads the number, so that it sees this thread or this thread
    // sees the flag.
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let _inside = Inside(());
    if ENDING.load(Ordering::SeqCst) {
        return None;
    }
    Python::try_attach(work)
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

/// Runs at exit, called by `atexit`.
#[pyfunction]
pub(crate) fn end(py: Python<'_>) {
    *ENDED_BY.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
    ENDING.store(true, Ordering::SeqCst);
    let until = Instant::now() + PATIENCE;
    while INSIDE.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        py.detach(|| thread::sleep(Duration::from_micros(200)));
    }
}
