//! How an engine reserves address space for the memories of its instances.
//!
//! Reserved address space is not memory, but a process has only so much of it: 128 TiB on most
//! machines, and less under `RLIMIT_AS`. An instance takes 8 GiB: its own memory, and the memory
//! with its stop word ([`stop`](crate::stop)). wasmtime reserves as much for the one page of the
//! latter, because an engine has one size for all its reservations. It is reserved when it is first
//! needed, and the engine keeps it for later instances.
//!
//! A pool for 1,000 instances and their stop words take 8 TiB. Pools make instances cheap to
//! create, so that the first engines of a process get them, from a budget that all engines share.
//! Later engines reserve address space for each new instance. If there is too little for that,
//! memories reserve only what they use. Under `RLIMIT_DATA` there are no pools: a pool keeps the
//! memory of its free instances.
//!
//! Compiled code depends on whether memories reserve what they can grow to: code for
//! [`Allocation::Pooled`] and [`Allocation::OnDemand`] is the same, and differs from code for
//! [`Allocation::Compact`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use callbox_core::policy::Limits;

use crate::address_space::{address_space_left, is_memory_limited};

/// The address space of a process without a limit, where processors have the common 47 bits.
const UNLIMITED: u64 = 1 << 47;

/// The part of the address space that the pools of a process and the stop words of their instances
/// may reserve together: one in two.
const POOLS: u64 = 2;

/// The reservation of a memory that cannot move: 4 GiB and wasmtime's guard region.
pub(crate) const SLOT: u64 = (1 << 32) + (32 << 20);

/// The reservations for an instance: its own memory, and that of its stop word.
const INSTANCE: u64 = 2 * SLOT;

/// The concurrent instances for which half of the address space must suffice. Otherwise memories
/// move.
const CONCURRENT: u64 = 64;

/// Bytes that the pools of this process reserve, with the stop words of all their instances.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// How an engine reserves address space for the memories of its instances.
///
/// It depends on the limits, and on what the process may still reserve when the engine is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Allocation {
    /// One reservation for as many instances as the limits allow. New instances are the cheapest.
    Pooled,
    /// A reservation of 4 GiB with each instance, for as long as the instance lives, and one of
    /// 4 GiB for its stop word.
    OnDemand,
    /// A memory reserves little more than it uses, and moves when it grows. Accesses are checked by
    /// the guest's code, even if the policy chooses signals.
    Compact,
}

impl Allocation {
    /// Chooses for an engine with these limits, and takes its part of the budget for pools.
    pub(crate) fn choose(limits: &Limits) -> (Self, PoolShare) {
        let left = address_space_left();
        let pool = INSTANCE.saturating_mul(u64::from(limits.instances));
        let reserved = RESERVED.load(Ordering::Relaxed);
        let space = left.map_or(UNLIMITED, |left| left.saturating_add(reserved));
        if !is_memory_limited()
            && let Some(share) = PoolShare::take(pool, space / POOLS)
        {
            return (Self::Pooled, share);
        }
        let suffices = left.is_none_or(|left| left / 2 >= CONCURRENT * INSTANCE);
        let allocation = if suffices {
            Self::OnDemand
        } else {
            Self::Compact
        };
        (allocation, PoolShare::none())
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pooled => "pooled",
            Self::OnDemand => "on demand",
            Self::Compact => "compact",
        })
    }
}

/// An engine's part of the budget for pools, given back when the engine is dropped.
#[derive(Debug)]
pub(crate) struct PoolShare(u64);

impl PoolShare {
    /// The part of an engine without a pool.
    pub(crate) fn none() -> Self {
        Self(0)
    }

    /// Takes `bytes`, unless all pools together would exceed `budget`.
    fn take(bytes: u64, budget: u64) -> Option<Self> {
        let add = |reserved: u64| reserved.checked_add(bytes).filter(|&sum| sum <= budget);
        RESERVED
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()
            .map(|_| Self(bytes))
    }
}

impl Drop for PoolShare {
    fn drop(&mut self) {
        RESERVED.fetch_sub(self.0, Ordering::Relaxed);
    }
}
