//! What guests leave of a limited address space, or of limited memory, to the process that runs
//! them.
//!
//! Under `RLIMIT_AS` or `RLIMIT_DATA`, guests together could take all that the limit leaves. Then
//! the process would end where it takes memory itself, or where its main thread needs more stack. A
//! memory, a table or a module is therefore refused where less than a limit's reserve would be
//! left.
//!
//! Between a look at what is left and a mapping, other threads may look, too. What a thread is
//! about to map is therefore claimed, until it says that it has mapped it, or has run on for a
//! while: a guest that grew its memory may not call the host again before its end.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use callbox_core::locks::locked;
use callbox_core::values::{Result, Status};

use crate::allocation::{Allocation, SLOT};
use crate::compiler::COMPACT_MEMORY;
use crate::failure::{caller_exhausted, host_exhausted};
use crate::fork;
use crate::processor_time;

/// A limit of the process.
struct Limit {
    name: &'static str,
    /// What it limits.
    of: &'static str,
    /// The field of `/proc/self/status` with what is used.
    used: &'static str,
    /// The bytes that guests leave.
    reserve: u64,
}

const LIMITS: [Limit; 2] = [
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
type Bytes = [u64; LIMITS.len()];

/// The processor time after which a thread has mapped what it claimed. It takes some 20 us.
const MAPPED: Duration = Duration::from_micros(200);

/// The pauses between two looks at what is left.
const PAUSE: Duration = Duration::from_micros(200);

/// What claims, which decides what is left to the process, and how long a claim waits for those of
/// others to be mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claimant {
    /// A guest, or a copy that is made while others wait.
    Guest,
    /// A load. It also waits for memory that is being given back.
    Load,
    /// What the host computes for a guest, which takes a part of what guests leave. It maps while
    /// it runs, so that the claim lasts until it is given back.
    Work,
}

impl Claimant {
    fn patience(self) -> Duration {
        Duration::from_millis(match self {
            Self::Guest | Self::Work => 5,
            Self::Load => 100,
        })
    }

    /// The bytes that are left of a limit's reserve.
    fn leaves(self, reserve: u64) -> u64 {
        match self {
            Self::Guest | Self::Load => reserve,
            Self::Work => reserve / 2,
        }
    }
}

/// The bytes of the host's memory that a load takes beside its file, for each byte of the file, and
/// at most.
const LOAD_BYTES_PER_BYTE: u64 = 16;
const LOAD_BYTES: u64 = 64 << 20;

/// The address space that guests of an engine share with the process.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    allocation: Allocation,
    /// Workers cannot ask for them later.
    limits: [Option<u64>; LIMITS.len()],
}

/// What was refused for the lack of address space or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// The index of the limit.
    limit: usize,
    reserve: u64,
    wanted: u64,
    left: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { name, of, .. } = &LIMITS[self.limit];
        let (wanted, left, reserve) = (self.wanted >> 20, self.left >> 20, self.reserve >> 20);
        write!(
            f,
            "expected {wanted} MiB of {of} beside {reserve} MiB that are left to the process, found {left} MiB under {name}"
        )
    }
}

impl AddressSpace {
    /// The address space of an engine with this allocation.
    pub(crate) fn of(allocation: Allocation) -> Self {
        let [space, data] = limits();
        Self {
            allocation,
            // Pools have all of theirs.
            limits: [space.filter(|_| allocation != Allocation::Pooled), data],
        }
    }

    /// The address space of this process, which must not be a worker.
    fn of_process() -> Self {
        Self {
            allocation: Allocation::Compact,
            limits: limits(),
        }
    }

    /// Makes sure that a memory can grow from a size to another in bytes, where so many are
    /// reserved already. Returns how many will be, and the claim.
    #[inline]
    pub(crate) fn reserve_memory(
        &self,
        current: usize,
        desired: usize,
        reserved: u64,
    ) -> Result<(u64, Room), Shortage> {
        if self.limits == [None; LIMITS.len()] {
            return Ok((reserved, Room::default()));
        }
        let (current, desired) = (current as u64, desired as u64);
        let more = desired.saturating_sub(current);
        let is_reserved = self.allocation == Allocation::Pooled || desired <= reserved;
        let (wanted, space, data) = match self.allocation {
            _ if is_reserved => (reserved, 0, more),
            Allocation::Pooled | Allocation::OnDemand => (SLOT, SLOT, more),
            // It moves: both are there for a moment.
            Allocation::Compact => {
                let wanted = COMPACT_MEMORY.saturating_add(desired);
                (wanted, wanted, desired)
            }
        };
        if [space, data] == [0; LIMITS.len()] {
            return Ok((wanted, Room::default()));
        }
        Ok((wanted, self.claim([space, data])?))
    }

    /// Claims bytes that the calling thread is about to map.
    fn claim(&self, wanted: Bytes) -> Result<Room, Shortage> {
        self.claim_for(Claimant::Guest, wanted)
    }

    /// Claims bytes of memory that the calling thread is about to map.
    pub(crate) fn claim_memory(&self, bytes: u64) -> Result<Room, Shortage> {
        self.claim([bytes; LIMITS.len()])
    }

    /// Claims bytes of memory that the host takes to compute for a guest.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller.
    pub(crate) fn claim_for_work(&self, bytes: u64, what: &str) -> Result<Room> {
        let claimed = self.claim_for(Claimant::Work, [bytes; LIMITS.len()]);
        claimed.map_err(|shortage| caller_exhausted(format!("no memory for {what}: {shortage}")))
    }

    fn claim_for(&self, claimant: Claimant, wanted: Bytes) -> Result<Room, Shortage> {
        if self.limits == [None; LIMITS.len()] {
            return Ok(Room::default());
        }
        let until = Instant::now() + claimant.patience();
        loop {
            // Before the lock: guests that are refused again and again do not keep others from it.
            let refused = self.shortage(claimant, wanted, in_use());
            if let Some(shortage) = refused
                && claimant != Claimant::Load
            {
                return Err(shortage);
            }
            let mut claims = ledger();
            // What is mapped and no longer claimed after this counts as in use.
            let claimed = claims
                .iter()
                .fold([0; LIMITS.len()], |sum, claim| plus(sum, claim.bytes));
            let Some(shortage) = self.shortage(claimant, wanted, plus(in_use(), claimed)) else {
                return Ok(Room::new(&mut claims, claimant, wanted));
            };
            if Instant::now() >= until {
                return Err(shortage);
            }
            let before = claims.len();
            claims.retain(|claim| !claim.is_mapped());
            let waits = claims.len() == before;
            drop(claims);
            if waits {
                thread::sleep(PAUSE);
            }
        }
    }

    /// What is short where the process uses so much.
    fn shortage(&self, claimant: Claimant, wanted: Bytes, used: Bytes) -> Option<Shortage> {
        let each = self.limits.iter().zip(&LIMITS).zip(wanted.iter().zip(used));
        let mut shortages = each
            .enumerate()
            .map(|(number, ((most, limit), (wanted, used)))| {
                let left = (*most)?.saturating_sub(used);
                let reserve = claimant.leaves(limit.reserve);
                (left < wanted.saturating_add(reserve)).then_some(Shortage {
                    limit: number,
                    reserve,
                    wanted: *wanted,
                    left,
                })
            });
        shortages.find_map(|shortage| shortage)
    }

    /// Claims an instance's stop word, and makes sure that there is room for its memory, which
    /// counts when it is made.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller.
    pub(crate) fn claim_instance(&self) -> Result<Room> {
        let wanted = match self.allocation {
            Allocation::OnDemand => 2 * SLOT,
            Allocation::Pooled | Allocation::Compact => 0,
        };
        self.claim([wanted, 0]).map_err(|shortage| {
            caller_exhausted(format!("no room for one more instance: {shortage}"))
        })
    }

    /// Claims memory for a module: for reading a file of this many bytes, or its native code.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the host.
    pub(crate) fn claim_for_module(&self, bytes: u64) -> Result<Room> {
        self.claim_for(Claimant::Load, [bytes; LIMITS.len()])
            .map_err(no_room_for_module)
    }
}

fn no_room_for_module(shortage: Shortage) -> Status {
    host_exhausted(format!("no room for the module: {shortage}"))
}

/// The bytes that loading a file of this many bytes takes beside it.
pub(crate) fn load_bytes(file: usize) -> u64 {
    (file as u64)
        .saturating_mul(LOAD_BYTES_PER_BYTE)
        .min(LOAD_BYTES)
}

/// Claims address space for a copy of this many bytes of a module's file.
///
/// # Errors
/// RESOURCE_EXHAUSTED, blamed on the host, under an `RLIMIT_AS` or `RLIMIT_DATA` that leaves too
/// little.
#[doc(hidden)]
pub fn room_for_file(bytes: usize) -> Result<Room> {
    AddressSpace::of_process().claim_for_module(bytes as u64)
}

/// Claims address space for a copy of this many bytes of a module's file, for a caller that must
/// not wait for long.
///
/// # Errors
/// As for [`room_for_file`].
#[doc(hidden)]
pub fn room_for_file_soon(bytes: usize) -> Result<Room> {
    let claimed = AddressSpace::of_process().claim_memory(bytes as u64);
    claimed.map_err(no_room_for_module)
}

/// Claims this many bytes of memory for a file that is made, until the room is dropped.
///
/// # Errors
/// RESOURCE_EXHAUSTED, blamed on the caller, as for [`room_for_file`].
#[doc(hidden)]
pub fn room_to_work(bytes: usize, what: &str) -> Result<Room> {
    AddressSpace::of_process().claim_for_work(bytes as u64, what)
}

/// Claims address space for what loading a module of this many bytes takes beside its file.
///
/// # Errors
/// As for [`room_for_file`].
#[doc(hidden)]
pub fn room_for_load(bytes: usize) -> Result<Room> {
    AddressSpace::of_process().claim_for_module(load_bytes(bytes))
}

/// Address space that counts as taken until this is dropped.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Room {
    /// The number of the claim, if there is one.
    claim: Option<u64>,
}

impl Room {
    fn new(claims: &mut Vec<Claim>, claimant: Claimant, bytes: Bytes) -> Self {
        if bytes == [0; LIMITS.len()] {
            return Self::default();
        }
        // No number comes again: a claim may be gone before its room is given back.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        claims.push(Claim {
            number,
            bytes,
            lasts: claimant == Claimant::Work,
            thread: fs::read_link("/proc/thread-self")
                .ok()
                .and_then(|link| link.to_str().map(str::to_owned)),
            used: processor_time::of_this_thread().unwrap_or_default(),
        });
        Self {
            claim: Some(number),
        }
    }

    /// Says that everything is mapped.
    #[inline]
    pub(crate) fn is_mapped(&mut self) {
        if self.claim.is_some() {
            self.give_back();
        }
    }

    #[cold]
    fn give_back(&mut self) {
        if let Some(number) = self.claim.take() {
            ledger().retain(|claim| claim.number != number);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.is_mapped();
    }
}

/// What a thread is about to map.
struct Claim {
    number: u64,
    bytes: Bytes,
    /// Whether it counts until it is given back.
    lasts: bool,
    /// The thread's folder in `/proc`.
    thread: Option<String>,
    /// The processor time of the thread until then.
    used: Duration,
}

impl Claim {
    /// Whether the thread has run on since, or has ended.
    #[allow(
        clippy::disallowed_methods,
        reason = "`/proc` is where the kernel tells of threads"
    )]
    fn is_mapped(&self) -> bool {
        if self.lasts {
            return false;
        }
        let Some(thread) = &self.thread else {
            return true;
        };
        let times = fs::read_to_string(format!("/proc/{thread}/schedstat")).ok();
        let nanoseconds = times.and_then(|times| times.split(' ').next()?.parse().ok());
        let used = nanoseconds.map(Duration::from_nanos);
        used.is_none_or(|used| used >= self.used + MAPPED)
    }
}

/// The claims of this process. A forked child has another ledger: a thread that it does not have
/// may hold the lock of this one. There are more than forks nest.
fn ledger() -> MutexGuard<'static, Vec<Claim>> {
    static LEDGERS: [Mutex<Vec<Claim>>; 1024] = [const { Mutex::new(Vec::new()) }; 1024];
    locked(&LEDGERS[fork::generation() as usize % LEDGERS.len()])
}

/// What this process uses. All of it where no descriptor is free to ask with.
fn in_use() -> Bytes {
    match read_status() {
        Ok(status) => LIMITS.map(|limit| size_in(&status, limit.used)),
        // A worker may not read it, and its memory is limited otherwise.
        Err(ErrorKind::NotFound | ErrorKind::PermissionDenied) => [0; LIMITS.len()],
        Err(_) => [u64::MAX; LIMITS.len()],
    }
}

fn plus(one: Bytes, other: Bytes) -> Bytes {
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
fn limits() -> [Option<u64>; LIMITS.len()] {
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
fn read_status() -> Result<String, ErrorKind> {
    fs::read_to_string("/proc/self/status").map_err(|error| error.kind())
}

/// The bytes in a field of `/proc/self/status`.
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

#[cfg(test)]
mod tests {
    use super::{Claimant, Room};

    /// Otherwise the owner of a claim that is gone would give back another one.
    #[test]
    fn no_number_comes_again() {
        let mut claims = Vec::new();
        let first = Room::new(&mut claims, Claimant::Guest, [1, 0]);
        claims.clear();
        let second = Room::new(&mut claims, Claimant::Guest, [1, 0]);
        assert_ne!(first.claim, second.claim);
    }
}
