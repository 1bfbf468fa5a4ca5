//! System calls as an intruder would make them.
#![allow(
    unsafe_code,
    reason = "mappings with rare flags, and other processes' clocks, have no safe interface"
)]

use std::ffi::c_void;
use std::io;
use std::mem;
use std::ptr;

use libc::{c_int, clockid_t};

/// Memory that was mapped, and stays mapped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: *mut c_void,
    bytes: usize,
}

/// Maps memory that can be written, with these flags; private, unless they say that it is shared.
pub(super) fn map(bytes: usize, flags: c_int) -> io::Result<Mapping> {
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let private = if flags & libc::MAP_SHARED == 0 {
        libc::MAP_PRIVATE
    } else {
        0
    };
    let flags = flags | private | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel chooses, which nothing refers to.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, writable, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(Mapping { start, bytes })
}

/// Makes the memory read-only, as after it was filled.
pub(super) fn make_read_only(mapping: Mapping) -> io::Result<()> {
    // SAFETY: the range is a whole mapping that nothing refers to.
    check(unsafe { libc::mprotect(mapping.start, mapping.bytes, libc::PROT_READ) })
}

/// Asks on which processors another process may run.
pub(super) fn affinity(process: i32) -> io::Result<()> {
    // SAFETY: the set is plain data, and exclusively borrowed for as long as the kernel writes it.
    check(unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::sched_getaffinity(process, mem::size_of_val(&set), &raw mut set)
    })
}

/// The number of the clock of a process's time on processors.
fn clock_of(process: i32) -> clockid_t {
    const SCHEDULED: c_int = 2;
    (!process << 3) | SCHEDULED
}

/// Reads how long another process has run.
pub(super) fn clock(process: i32) -> io::Result<()> {
    // SAFETY: the time is plain data, and exclusively borrowed for as long as the kernel writes it.
    check(unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(clock_of(process), &raw mut time)
    })
}

/// Asks for the resolution of that clock, which tells whether the process exists.
pub(super) fn resolution(process: i32) -> io::Result<()> {
    // SAFETY: as in `clock`.
    check(unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_getres(clock_of(process), &raw mut time)
    })
}

fn check(returned: c_int) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
