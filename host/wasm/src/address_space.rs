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

mod claims;
mod limits;

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use callbox_core::values::{Result, Status};

pub use self::claims::Room;
use self::claims::ledger;
pub use self::limits::address_space_in_use;
pub(crate) use self::limits::{Bytes, address_space_left, advice, is_memory_limited, plus};
use self::limits::{LIMITS, Limit, Unknown, in_use, limits};

use crate::allocation::{Allocation, SLOT};
use crate::compiler::COMPACT_MEMORY;
use crate::failure::{caller_exhausted, host_exhausted};
use crate::reclaim::Reclaim;

/// The time for which a load lets idle instances give way.
const EVICTION: Duration = Duration::from_secs(1);

/// The pauses between two looks at what is left.
const PAUSE: Duration = Duration::from_micros(200);

/// What claims, which decides what is left to the process, and how long a claim waits for those of
/// others to be mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claimant {
    /// A guest, or a copy that is made while others wait.
    Guest,
    /// A load. It also waits for memory that is being given back, and idle instances give way.
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
    /// Whether this process will be a worker, which cannot ask later what it uses, and whose end
    /// its parent expects.
    is_of_worker: bool,
}

/// What was refused for the lack of address space or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    OfLimit {
        /// The index of the limit.
        limit: usize,
        reserve: u64,
        wanted: u64,
        left: u64,
    },
    /// It is not known what is left.
    OfKnowledge(Unknown),
}

impl Shortage {
    /// The bytes without which there is no room: more than there can be, if that is not known.
    pub(crate) fn missing(self) -> Bytes {
        let Self::OfLimit {
            limit,
            reserve,
            wanted,
            left,
        } = self
        else {
            return [u64::MAX; LIMITS.len()];
        };
        let mut missing = Bytes::default();
        missing[limit] = wanted.saturating_add(reserve).saturating_sub(left);
        missing
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, reserve, wanted, left) = match *self {
            Self::OfKnowledge(unknown) => return unknown.fmt(f),
            Self::OfLimit {
                limit,
                reserve,
                wanted,
                left,
            } => (limit, reserve, wanted, left),
        };
        let Limit { name, of, .. } = &LIMITS[limit];
        let (wanted, left, reserve) = (wanted >> 20, left >> 20, reserve >> 20);
        write!(
            f,
            "expected {wanted} MiB of {of} beside {reserve} MiB that are left to the process, found {left} MiB under {name}"
        )
    }
}

impl AddressSpace {
    /// The address space of an engine with this allocation, in a process that will be a worker or
    /// not.
    pub(crate) fn of(allocation: Allocation, is_of_worker: bool) -> Self {
        let [space, data] = limits();
        Self {
            allocation,
            // Pools have all of theirs.
            limits: [space.filter(|_| allocation != Allocation::Pooled), data],
            is_of_worker,
        }
    }

    pub(crate) fn allocation(&self) -> Allocation {
        self.allocation
    }

    /// The address space of this process, which must not be a worker.
    fn of_process() -> Self {
        Self {
            allocation: Allocation::Compact,
            limits: limits(),
            is_of_worker: false,
        }
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limits != [None; LIMITS.len()]
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
        if !self.is_limited() {
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
        if !self.is_limited() {
            return Ok(Room::default());
        }
        let until = Instant::now() + claimant.patience();
        let last_eviction = until + EVICTION;
        let mut reclaim = Reclaim::new();
        loop {
            reclaim.begin();
            // Before the lock: guests that are refused again and again do not keep others from it.
            if claimant != Claimant::Load {
                self.check(claimant, wanted, [0; LIMITS.len()])?;
            }
            let mut claims = ledger();
            // What is mapped and no longer claimed after this counts as in use.
            let claimed = claims
                .iter()
                .fold([0; LIMITS.len()], |sum, claim| plus(sum, claim.bytes));
            let Err(shortage) = self.check(claimant, wanted, claimed) else {
                return Ok(Room::new(&mut claims, claimant, wanted));
            };
            let before = claims.len();
            claims.retain(|claim| !claim.is_mapped());
            let is_settled = claims.len() == before;
            drop(claims);
            let now = Instant::now();
            if claimant == Claimant::Load
                && now < last_eviction
                && let Err(shortage) = self.check(claimant, wanted, [0; LIMITS.len()])
                && reclaim.make_room(shortage.missing(), last_eviction, None)
            {
                continue;
            }
            if now >= until {
                return Err(shortage);
            }
            if is_settled {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Checks that there is room beside what the process uses and what was claimed.
    fn check(&self, claimant: Claimant, wanted: Bytes, claimed: Bytes) -> Result<(), Shortage> {
        let used = match in_use() {
            Ok(used) => plus(used, claimed),
            Err(_) if self.is_of_worker => claimed,
            Err(unknown) => return Err(Shortage::OfKnowledge(unknown)),
        };
        let each = self.limits.iter().zip(&LIMITS).zip(wanted.iter().zip(used));
        for (number, ((most, limit), (wanted, used))) in each.enumerate() {
            let Some(most) = most else { continue };
            let left = most.saturating_sub(used);
            let reserve = claimant.leaves(limit.reserve);
            if left < wanted.saturating_add(reserve) {
                return Err(Shortage::OfLimit {
                    limit: number,
                    reserve,
                    wanted: *wanted,
                    left,
                });
            }
        }
        Ok(())
    }

    /// Claims an instance's stop word, and makes sure that there is room for its memory, which
    /// counts when it is made.
    pub(crate) fn claim_instance(&self) -> Result<Room, Shortage> {
        let wanted = match self.allocation {
            Allocation::OnDemand => 2 * SLOT,
            Allocation::Pooled | Allocation::Compact => 0,
        };
        self.claim([wanted, 0])
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
