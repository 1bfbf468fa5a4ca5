//! The signals of traps, on threads that block them.
//!
//! The kernel ends a process whose thread blocks the signal of its own fault, whatever the handler.
//! Servers block all signals on most of their threads, and new threads inherit the mask.
#![allow(unsafe_code, reason = "changes the thread's mask of signals")]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;

thread_local! {
    static ARE_TAKEN: Cell<bool> = const { Cell::new(false) };
}

/// Has this thread take the signals of traps. Looks once for each thread: to block them later is to
/// end the process at a trap.
#[inline]
pub(crate) fn take_traps() {
    if !ARE_TAKEN.get() {
        unblock();
    }
}

#[cold]
fn unblock() {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set before the other functions read it, and a null
    // pointer asks for no earlier mask. Another mask has no effect on memory.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            libc::sigaddset(signals.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, signals.as_ptr(), ptr::null_mut());
    }
    ARE_TAKEN.set(true);
}
