//! Leaves the real-time scheduling that a worker inherited. What it runs would keep the threads of
//! its parent from the processors, whatever its priority.

#![allow(
    unsafe_code,
    reason = "the policy of a thread is read and set by system calls without a safe wrapper"
)]

use std::io;

/// Gives this thread, and those that it starts, the usual policy in place of a real-time one.
pub(super) fn leave_real_time() -> io::Result<()> {
    let this_thread = 0;
    // SAFETY: `sched_getscheduler` accesses no memory of this process.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, this_thread) };
    let is_real_time = [libc::SCHED_FIFO, libc::SCHED_RR]
        .map(i64::from)
        .contains(&policy);
    if !is_real_time {
        return Ok(());
    }
    // The parameter of the usual policy: the kernel's structure is one number.
    let priority: libc::c_int = 0;
    let usual = libc::SCHED_OTHER;
    let set = libc::SYS_sched_setscheduler;
    // SAFETY: `sched_setscheduler` reads one `int`, which lives until the call returns, and writes
    // nothing.
    match unsafe { libc::syscall(set, this_thread, usual, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
