//! What guests leave of a limited address space to the process that runs them.
//!
//! Under `RLIMIT_AS`, guests together could take all that the limit leaves. Then the process would
//! end where it takes memory itself, or where its main thread needs more stack. A memory, a table or
//! a module is therefore refused where less than [`RESERVE`] would be left.

use std::fmt;
use std::sync::Mutex;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use callbox_core::locks::locked;
use callbox_core::values::Result;

use crate::allocation::{Allocation, SLOT};
use crate::compiler::COMPACT_MEMORY;
use crate::failure::{caller_exhausted, host_exhausted};

/// The bytes that guests leave: for the stack of the main thread, which grows, for what calls need
/// of the host's memory, and for what threads take that look at the same time.
pub(crate) const RESERVE: u64 = 128 << 20;

/// The most time between a look at what is left and the mapping that it is for.
const SOON: Duration = Duration::from_millis(100);

/// The address space that guests of an engine share with the process.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    allocation: Allocation,
    /// `RLIMIT_AS`. Workers cannot ask for it later.
    limit: Option<u64>,
}

/// What was refused for the lack of address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    wanted: u64,
    left: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, left, reserve) = (self.wanted >> 20, self.left >> 20, RESERVE >> 20);
        write!(
            f,
            "expected {wanted} MiB of address space beside {reserve} MiB that are left to the process, found {left} MiB under RLIMIT_AS"
        )
    }
}

impl AddressSpace {
    /// The address space of an engine with this allocation. Pools have all of theirs.
    pub(crate) fn of(allocation: Allocation) -> Self {
        let limit = match allocation {
            Allocation::Pooled => None,
            Allocation::OnDemand | Allocation::Compact => limit(),
        };
        Self { allocation, limit }
    }

    /// Makes sure that a memory of so many bytes can be reserved, where so many are reserved
    /// already, and returns how many will be.
    #[inline]
    pub(crate) fn reserve_memory(&self, bytes: usize, reserved: u64) -> Result<u64, Shortage> {
        if self.limit.is_none() || bytes as u64 <= reserved {
            return Ok(reserved);
        }
        let wanted = match self.allocation {
            Allocation::Pooled => return Ok(reserved),
            Allocation::OnDemand => SLOT,
            Allocation::Compact => COMPACT_MEMORY.saturating_add(bytes as u64),
        };
        self.claim(wanted)?;
        Ok(wanted)
    }

    /// Makes sure that so many bytes can be mapped soon.
    pub(crate) fn claim(&self, wanted: u64) -> Result<(), Shortage> {
        /// What threads are about to map. They have mapped what they wanted before.
        static CLAIMS: Mutex<Vec<Claim>> = Mutex::new(Vec::new());
        let Some(limit) = self.limit else {
            return Ok(());
        };
        let own = thread::current().id();
        let mut claims = locked(&CLAIMS);
        claims.retain(|claim| claim.thread != own && claim.at.elapsed() < SOON);
        let claimed: u64 = claims.iter().map(|claim| claim.bytes).sum();
        let left = limit.saturating_sub(address_space_in_use().saturating_add(claimed));
        if left < wanted.saturating_add(RESERVE) {
            return Err(Shortage { wanted, left });
        }
        claims.push(Claim {
            thread: own,
            at: Instant::now(),
            bytes: wanted,
        });
        Ok(())
    }

    /// Makes sure that there is room for an instance and its stop word.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller.
    pub(crate) fn check_instance(&self) -> Result<()> {
        let wanted = match self.allocation {
            Allocation::OnDemand => 2 * SLOT,
            // The memory counts when it is made.
            Allocation::Pooled | Allocation::Compact => 0,
        };
        self.claim(wanted).map_err(|shortage| {
            caller_exhausted(format!("no room for one more instance: {shortage}"))
        })
    }

    /// Makes sure that there is room to load modules.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the host.
    pub(crate) fn check(&self) -> Result<()> {
        self.claim(0)
            .map_err(|shortage| host_exhausted(format!("no room for the module: {shortage}")))
    }
}

/// What a thread is about to map.
struct Claim {
    thread: ThreadId,
    at: Instant,
    bytes: u64,
}

/// The bytes of address space that `RLIMIT_AS` still leaves; `None` without such a limit.
pub(crate) fn address_space_left() -> Option<u64> {
    Some(limit()?.saturating_sub(address_space_in_use()))
}

/// `RLIMIT_AS`.
fn limit() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::As).current;
    #[cfg(not(unix))]
    None
}

/// The bytes of address space that this process uses, on Linux; 0 elsewhere.
#[doc(hidden)]
#[must_use]
#[allow(
    clippy::disallowed_methods,
    reason = "the kernel tells a process its size in this file alone"
)]
pub fn address_space_in_use() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:"))
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
