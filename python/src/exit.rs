//! Ends the interpreter while other threads are in calls.
//!
//! After finalisation, CPython up to 3.13 ends a thread that asks for the GIL with `pthread_exit`.
//! If Rust frames are on its stack, that aborts the process. PyO3 parks such a thread where it asks
//! for the GIL itself, but a call also runs Python code, which releases and takes the GIL on its
//! own. Therefore `atexit` waits until no call is in such code, and keeps other threads from
//! beginning one.
//!
//! Exit handlers that were registered before callbox's run after it, and may wait for threads that
//! are kept: so they are kept for seconds, and not for ever.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;

/// The maximum time to wait for calls, and to keep threads. The part of a call that runs Python
/// code takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the interpreter is ending.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The thread that ends the interpreter, and the time until which it keeps others.
static ENDED_BY: Mutex<Option<(ThreadId, Instant)>> = Mutex::new(None);

/// The number of calls that hold the GIL or will ask for it.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How many of them are of this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A call in the part that needs the GIL. It stays on its thread.
pub(crate) struct Inside(PhantomData<*const ()>);

impl Inside {
    /// Begins the part that needs the GIL. Keeps the thread if the interpreter is ending, unless it
    /// is in such a part already, for which the interpreter waits.
    #[inline]
    pub(crate) fn enter(py: Python<'_>) -> Self {
        if ENDING.load(Ordering::Relaxed) && DEPTH.get() == 0 {
            stay(py);
        }
        // The flag cannot have changed since: setting it needs the GIL, which this thread holds.
        Self::counted(Ordering::Relaxed)
    }

    #[inline]
    fn counted(order: Ordering) -> Self {
        INSIDE.fetch_add(1, order);
        DEPTH.set(DEPTH.get() + 1);
        Self(PhantomData)
    }

    /// Runs `work` without the GIL. The interpreter may end meanwhile.
    #[inline]
    pub(crate) fn detach<T: Send>(
        self,
        py: Python<'_>,
        work: impl FnOnce() -> T + Send,
    ) -> (Self, T) {
        // The GIL is held until the call without it begins.
        drop(self);
        let done = py.detach(work);
        (Self::enter(py), done)
    }
}

/// Converts an argument, which can run Python code.
pub(crate) fn argument<'py, T: FromPyObjectOwned<'py>>(given: &Bound<'py, PyAny>) -> PyResult<T> {
    let _inside = Inside::enter(given.py());
    given.extract().map_err(Into::into)
}

/// Runs `work` with the GIL on a thread of the extension. None if the interpreter is ending.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // `end` sets the flag before it reads the number, so that it sees this thread or this thread
    // sees the flag.
    let _inside = Inside::counted(Ordering::SeqCst);
    if ENDING.load(Ordering::SeqCst) {
        return None;
    }
    Python::try_attach(work)
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::Relaxed);
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Forgets the calls of threads that a forked child does not have.
pub(crate) fn forget_others() {
    INSIDE.store(DEPTH.get(), Ordering::Relaxed);
}

#[cold]
fn stay(py: Python<'_>) {
    let ended_by = *ENDED_BY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((thread, until)) = ended_by
        && thread != thread::current().id()
    {
        // Once the interpreter has ended, PyO3 parks the thread for ever.
        py.detach(|| thread::sleep(until.saturating_duration_since(Instant::now())));
    }
}

/// Runs at exit, called by `atexit`.
#[pyfunction]
pub(crate) fn end(py: Python<'_>) {
    let until = Instant::now() + PATIENCE;
    let ended_by = (thread::current().id(), until);
    *ENDED_BY.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended_by);
    ENDING.store(true, Ordering::SeqCst);
    while INSIDE.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        py.detach(|| thread::sleep(Duration::from_micros(200)));
    }
}
