//! Detects forks: an engine does not outlive one.
//!
//! Threads do not survive in a forked child, and without the ticker's thread nothing interrupts a
//! guest. A call of an engine from before the fork therefore fails. libc tells the child of the
//! fork (`pthread_atfork`), because asking the kernel for the process id costs more than a call.

#![allow(
    unsafe_code,
    reason = "only a handler that libc calls in the child can notice a fork"
)]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the first process that made an engine and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Identifies this process among its forks.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether this process is a fork of one that made an engine.
pub(crate) fn is_child() -> bool {
    generation() != 0
}

/// The forks that may nest before a child takes what a process before it had.
pub(crate) const NESTED_FORKS: usize = 1024;

/// A value of this process. A forked child has another one: a thread that it does not have may hold
/// the lock of this one.
pub(crate) struct PerProcess<T>(pub(crate) [T; NESTED_FORKS]);

impl<T> PerProcess<T> {
    pub(crate) fn get(&self) -> &T {
        &self.0[generation() as usize % NESTED_FORKS]
    }
}

/// Counts forks from now on.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(unix)]
        // SAFETY: `pthread_atfork` requires a handler that is async-signal-safe and never unloaded.
        // `in_child` only adds to an atomic, and is a function of this program. If registering
        // fails, forks go unnoticed: deadlines then do not hold in children, nothing else changes.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(unix)]
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
