//! Counts the interrupts of the process.
//!
//! CPython's handler of SIGINT sets a flag, which only the main thread sees when it runs Python
//! code again. The handler here calls CPython's and counts. It is invisible to `signal.getsignal`,
//! and `signal.signal` replaces it.
#![allow(
    unsafe_code,
    reason = "installs a signal handler, which calls the one before it"
)]

use std::ffi::{c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use pyo3::prelude::*;

/// The number of interrupts since [`install`].
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The handler that [`handle`] calls, CPython's. 0 before it is known. It never changes then,
/// because a handler that another library puts before this one may call this one.
static PREVIOUS: AtomicUsize = AtomicUsize::new(0);

/// Whether [`PREVIOUS`] has three parameters.
static TAKES_INFO: AtomicBool = AtomicBool::new(false);

/// Whether this process is a forked child, where no thread watches.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The number of interrupts so far.
#[inline]
pub(super) fn count() -> u64 {
    COUNT.load(Ordering::Acquire)
}

/// Whether the process's handler is the one that counts.
pub(super) fn is_installed() -> bool {
    current().is_some_and(|action| action.sa_sigaction == own())
}

/// Installs the handler in place of CPython's. The GIL keeps `signal.signal` from running
/// meanwhile.
pub(super) fn install(_py: Python<'_>) {
    let Some(mut action) = current() else {
        return;
    };
    let known = [own(), libc::SIG_DFL, libc::SIG_IGN];
    if known.contains(&action.sa_sigaction) {
        return;
    }
    let found = action.sa_sigaction;
    let before = PREVIOUS.compare_exchange(0, found, Ordering::AcqRel, Ordering::Acquire);
    if before.is_err_and(|before| before != found) {
        return;
    }
    TAKES_INFO.store(action.sa_flags & libc::SA_SIGINFO != 0, Ordering::Release);
    action.sa_sigaction = own();
    action.sa_flags |= libc::SA_SIGINFO;
    // SAFETY: `action` is the system's own value with another handler. The handler has the three
    // parameters of SA_SIGINFO, and does only what a signal handler may: it loads and adds to
    // atomics, and calls the handler that was installed before.
    unsafe {
        libc::sigaction(libc::SIGINT, &raw const action, ptr::null_mut());
    }
}

/// Whether this process is a forked child, where no thread watches and locks may be held for ever.
#[inline]
pub(super) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Notes forks from now on.
pub(super) fn note_forks() {
    // SAFETY: the handler must be async-signal-safe and never unloaded. It only stores to an
    // atomic, and CPython never unloads an extension.
    unsafe {
        libc::pthread_atfork(None, None, Some(note_fork));
    }
}

extern "C" fn note_fork() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

fn own() -> usize {
    let handler: Handler = handle;
    handler as usize
}

/// The process's handler of SIGINT.
fn current() -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null pointer in place of a new handler, the call only writes to `action`.
    let outcome = unsafe { libc::sigaction(libc::SIGINT, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zeros is a valid value of the struct of integers, pointers and an optional
    // function, and the call has overwritten it.
    (outcome == 0).then(|| unsafe { action.assume_init() })
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS.load(Ordering::Acquire);
    if previous != 0 && TAKES_INFO.load(Ordering::Acquire) {
        // SAFETY: `install` found this value as a handler with three parameters (SA_SIGINFO).
        let previous = unsafe { mem::transmute::<usize, Handler>(previous) };
        previous(signal, info, context);
    } else if previous != 0 {
        // SAFETY: `install` found this value as a handler with one parameter.
        let previous = unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(previous) };
        previous(signal);
    }
    // After CPython has noted the signal: it must be pending when a call ends as cancelled.
    COUNT.fetch_add(1, Ordering::Release);
}
