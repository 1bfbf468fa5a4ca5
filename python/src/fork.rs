//! Holds locks while the process forks.
//!
//! A thread that a forked child does not have would keep a lock there for ever. The threads that
//! hold those below do so for a short time, in which they neither wait for the GIL nor fork. What a
//! child goes on with is whole for that, and what each process has of its own needs no such care
//! ([`PerProcess`](callbox::wasm::PerProcess)).
#![allow(
    unsafe_code,
    reason = "only handlers that libc calls run right before and after a fork"
)]

use std::any::Any;
use std::cell::RefCell;

use crate::{exit, failures, record, registry, site, stats};

type Guard = Box<dyn Any>;

thread_local! {
    /// Held by a thread that forks, and then by that of the child.
    static HELD: RefCell<Vec<Guard>> = const { RefCell::new(Vec::new()) };
}

/// Holds the locks at each fork from now on.
pub(crate) fn hold_locks() {
    // SAFETY: the handlers must never be unloaded, and CPython never unloads an extension. In the
    // child, which may do only what is async-signal-safe, they store to atomics, wake threads by a
    // system call, and free memory: libc keeps its allocator whole over forks.
    unsafe {
        libc::pthread_atfork(Some(hold), Some(release), Some(begin_child));
    }
}

extern "C" fn hold() {
    let (loaded, modules) = registry::locked();
    let guards: [Guard; 6] = [
        Box::new(loaded),
        Box::new(modules),
        Box::new(stats::totals()),
        Box::new(record::current()),
        Box::new(failures::last()),
        Box::new(site::last_failures()),
    ];
    // A thread that is ending has no state, and a child of it has what luck leaves it.
    let _ = HELD.try_with(|held| held.borrow_mut().extend(guards));
}

extern "C" fn begin_child() {
    exit::forget_others();
    release();
}

extern "C" fn release() {
    let _ = HELD.try_with(RefCell::take);
}
