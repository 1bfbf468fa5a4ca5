//! The signal that the command line ignores.
#![allow(
    unsafe_code,
    reason = "libc alone sets what the process does on a signal"
)]

/// Lets a write past the limit on the size of files (`ulimit -f`) fail with an error. The kernel
/// would end the process otherwise.
pub(super) fn ignore_size_limit() {
    // SAFETY: `SIG_IGN` is no function that could run, and no other code of this process sets what
    // happens on this signal.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
