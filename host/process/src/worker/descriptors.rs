//! Closes descriptors that a worker inherited because the embedder opened them without CLOEXEC.

#![allow(
    unsafe_code,
    reason = "an inherited descriptor has no owner and can only be closed by its number"
)]

use std::io;

/// Closes all descriptors but standard input, output and error.
pub(super) fn close_others() -> io::Result<()> {
    let (first, last, flags) = (3_u32, u32::MAX, 0_u32);
    // SAFETY: `close_range` accesses no memory of this process. No live value owns a descriptor
    // from 3 on: `worker_main` and `confine` require that the program calls them before it opens
    // anything.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
