//! Closes what a worker inherited: descriptors that the code around callbox opened without saying that they are not to be inherited.

#![allow(
    unsafe_code,
    reason = "a descriptor that nobody here opened can only be closed by its number"
)]

use std::io;

/// Closes all descriptors but standard input, output and error.
pub(super) fn close_others() -> io::Result<()> {
    let (first, last, flags) = (3_u32, u32::MAX, 0_u32);
    // SAFETY: `close_range` touches no memory of this process. That it closes descriptors which something here owns is ruled out by
    // when it is called: first of all in the program, as `worker_main` demands, when nothing was opened yet.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
