//! The limits of the process, and what it uses of them.

use std::fmt;
use std::fs;
use std::io;

/// Where the kernel tells a process its size. The file of the process tells none once its main
/// thread has ended.
const STATUS: &str = "/proc/thread-self/status";

/// A limit of the process.
pub(super) struct Limit {
    pub(super) name: &'static str,
    /// What it limits.
    pub(super) of: &'static str,
    /// The field of [`STATUS`] with what is used.
    used: &'static str,
    /// The bytes that guests leave.
    pub(super) reserve: u64,
}

pub(super) const LIMITS: [Limit; 2] = [
    Limit {
        name: "RLIMIT_AS",
        of: "address space",
        used: "VmSize:",
        // For the stack of the main thread, which grows, for what calls and loads need of the
        // host's memory, and for what glibc maps for a moment when a thread begins to allocate,
        // which is 128 MiB.
        reserve: 192 << 20,
    },
    Limit {
        name: "RLIMIT_DATA",
        of: "memory",
        used: "VmData:",
        // For the same, and for XLA's compiler. What is mapped for a moment does not count: nothing
        // may write to it.
        reserve: 128 << 20,
    },
];

/// Bytes for each of [`LIMITS`].
pub(crate) type Bytes = [u64; LIMITS.len()];

/// What this process uses.
pub(super) fn in_use() -> Result<Bytes, Unknown> {
    match read_status() {
        Ok(status) => Ok(LIMITS.map(|limit| size_in(&status, limit.used))),
        Err(_) if cfg!(not(target_os = "linux")) => Ok([0; LIMITS.len()]),
        Err(error) => Err(Unknown(error.raw_os_error().unwrap_or_default())),
    }
}

/// The error of the operating system that kept a process from reading what it uses: there may be no
/// `/proc`, no right to read it, or no free descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown(i32);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.0);
        write!(
            f,
            "expected {STATUS}, from which a process with RLIMIT_AS or RLIMIT_DATA reads what is left, found {error}"
        )
    }
}

pub(crate) fn plus(one: Bytes, other: Bytes) -> Bytes {
    std::array::from_fn(|number| one[number].saturating_add(other[number]))
}

/// The bytes of address space that `RLIMIT_AS` still leaves; `None` without such a limit.
pub(crate) fn address_space_left() -> Option<u64> {
    let [space, _] = limits();
    Some(space?.saturating_sub(address_space_in_use()))
}

/// Whether there is an `RLIMIT_DATA`.
pub(crate) fn is_memory_limited() -> bool {
    let [_, data] = limits();
    data.is_some()
}

/// `RLIMIT_AS` and `RLIMIT_DATA`, if there are such limits.
pub(super) fn limits() -> [Option<u64>; LIMITS.len()] {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        [Resource::As, Resource::Data].map(|resource| getrlimit(resource).current)
    }
    #[cfg(not(unix))]
    [None; LIMITS.len()]
}

/// The bytes of address space that this process uses, on Linux; 0 elsewhere.
#[doc(hidden)]
#[must_use]
pub fn address_space_in_use() -> u64 {
    let [space, _] = LIMITS;
    read_status().map_or(0, |status| size_in(&status, space.used))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the kernel tells a process its size in this file alone"
)]
fn read_status() -> io::Result<String> {
    let status = fs::read(STATUS)?;
    // The name of the process may have been cut within a character.
    Ok(String::from_utf8_lossy(&status).into_owned())
}

/// The bytes in a field of [`STATUS`].
fn size_in(status: &str, field: &str) -> u64 {
    let size = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|size| size.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    size.unwrap_or(0).saturating_mul(1 << 10)
}

/// The advice of messages about a lack of address space.
pub(crate) fn advice() -> String {
    match address_space_left() {
        Some(left) => format!(
            "the process can reserve {} MiB more of address space under RLIMIT_AS; raise that limit (`ulimit -v`), or run fewer instances at one time",
            left >> 20
        ),
        None => {
            "drop engines and executables that are not needed, or run fewer instances at one time"
                .to_owned()
        }
    }
}
