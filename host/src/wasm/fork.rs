//! Whether the process is a fork of the one that an engine was made in: threads do not live on in a forked child, the ticker
//! among them, and without it nothing stops a guest.

#![allow(
    unsafe_code,
    reason = "a child that was forked can only be told by a handler that libc calls in it"
)]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lie between the first process that made an engine and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Which process this is, among those that fork from one another.
#[inline]
pub(super) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether this process was forked from one that made an engine.
pub(super) fn is_child() -> bool {
    generation() != 0
}

/// Has forks counted from now on.
pub(super) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(unix)]
        // SAFETY: `in_child` does nothing but add to an atomic, which is async-signal-safe, as a handler that runs in the child of a
        // process with threads has to be. It is a plain function, which is there for as long as the program. Should the
        // handler find no place, forks go unnoticed: deadlines then do not hold in children, and nothing else changes.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(unix)]
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
