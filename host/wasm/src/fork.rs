//! Detects forks: an engine does not outlive one.
//!
//! Threads do not survive in a forked child, and without the ticker's thread nothing interrupts a
//! guest. A call of an engine from before the fork therefore fails. libc tells the child of the
//! fork (`pthread_atfork`), because asking the kernel for the process id costs more than a call.

#![allow(
    unsafe_code,
    reason = "only a handler that libc calls in the child can notice a fork"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once};

use callbox_core::locks::locked;

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

/// A list of this process. A forked child has another one: a thread that it does not have may hold
/// the lock of this one. There are more than forks nest.
pub(crate) struct PerProcess<T>([Mutex<Vec<T>>; 1024]);

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self([const { Mutex::new(Vec::new()) }; 1024])
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        locked(&self.0[generation() as usize % self.0.len()])
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
