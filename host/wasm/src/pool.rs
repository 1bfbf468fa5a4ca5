//! A pool of the idle instances of one module for one executable.
//!
//! An instance serves one execution at a time, with all call sites that the executable has of the
//! module. There are therefore no more instances than concurrent executions, a chain of a thousand
//! calls runs in one warm arena, and each stage finds the state that earlier ones left. A call that
//! was prepared by itself has a pool of its own.
//!
//! When the engine has no place for another instance, it evicts idle instances of any of its pools,
//! one by one, until there is a place. So it does, among those that count towards the same limit,
//! when memory cannot grow. The deleters of each may take the rest of the waiting call's
//! time, and at most one second.
//!
//! A lease costs one uncontended lock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use callbox_core::locks::locked;

use crate::address_space::{Bytes, plus};
use crate::instance::Instance;
use crate::shared::Evict;

/// The concurrent leases that find a slot. Further ones share a stack, whose lock they take twice.
const SLOTS: usize = 32;

/// Idle instances. A lease holds its slot's lock while it lasts, so that a call locks once and
/// moves no instance.
pub(crate) struct Pool {
    slots: Box<[Slot]>,
    /// The number of slots that have ever been leased: the first ones. A search of a thousand pools
    /// looks at few.
    used: AtomicUsize,
    overflow: Mutex<Vec<Instance>>,
}

#[derive(Default)]
pub(crate) struct Slot {
    instance: Mutex<Option<Instance>>,
    /// What the instance takes while it is idle. A thread that locked the slot to look at it would
    /// keep a call from its instance.
    idle: [AtomicU64; 2],
}

/// Exclusive use of an instance, which returns to the pool at the end if it may be idle.
pub(crate) enum Lease<'a> {
    Slot(&'a Slot, MutexGuard<'a, Option<Instance>>),
    Overflow(&'a Mutex<Vec<Instance>>, Option<Instance>),
}

impl Pool {
    pub(crate) fn new() -> Self {
        Self {
            slots: std::iter::repeat_with(Slot::default).take(SLOTS).collect(),
            used: AtomicUsize::new(0),
            overflow: Mutex::default(),
        }
    }

    /// Leases the first free slot, so that there are no more instances than concurrent executions.
    #[inline]
    pub(crate) fn lease(&self) -> Lease<'_> {
        let mut slots = self.slots.iter().enumerate();
        let found = slots.find_map(|(at, slot)| Some((at, slot.lease()?)));
        match found {
            Some((at, lease)) => {
                if at >= self.used.load(Ordering::Relaxed) {
                    self.used.fetch_max(at + 1, Ordering::Relaxed);
                }
                lease
            }
            None => Lease::Overflow(&self.overflow, locked(&self.overflow).pop()),
        }
    }

    /// The slots that may have an instance.
    fn used(&self) -> &[Slot] {
        &self.slots[..self.used.load(Ordering::Relaxed)]
    }
}

/// Pools whose idle instances may be evicted.
#[derive(Default)]
pub(crate) struct Pools(Mutex<List>);

/// There can be as many pools as call sites.
#[derive(Default)]
struct List {
    pools: Vec<Weak<dyn Evict>>,
    /// The number of pools at which those that are gone are removed.
    full: usize,
    /// The pool of the last eviction, from which the next ones go on.
    next: usize,
}

impl Pools {
    pub(crate) fn add(&self, pool: Weak<dyn Evict>) {
        const FEWEST: usize = 16;
        let mut list = locked(&self.0);
        if list.pools.len() >= list.full {
            list.pools.retain(|pool| pool.strong_count() > 0);
            list.full = FEWEST.max(2 * list.pools.len());
        }
        list.pools.push(pool);
    }

    /// The pools that are left.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Evict>> {
        let list = locked(&self.0);
        list.pools.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether a pool has an idle instance.
    pub(crate) fn has_idle(&self) -> bool {
        let pools = self.all();
        pools.iter().any(|pool| pool.has_idle())
    }

    /// Discards an idle instance of any pool, and returns false if there is none.
    pub(crate) fn evict_one(&self) -> bool {
        let (first, count) = {
            let list = locked(&self.0);
            (list.next, list.pools.len())
        };
        // Each thread goes through all pools, whatever others evict at the same time.
        (first..first + count).any(|number| {
            let at = number % count;
            let pool = locked(&self.0).pools.get(at).and_then(Weak::upgrade);
            // Discarding an instance may run its deleters.
            let has_evicted = pool.is_some_and(|pool| pool.evict_one().is_some());
            if has_evicted {
                locked(&self.0).next = at;
            }
            has_evicted
        })
    }
}

impl Evict for Pool {
    fn has_idle(&self) -> bool {
        let slots = self.used();
        slots.iter().any(|slot| slot.idle() != Bytes::default())
            || slots.len() == SLOTS && !locked(&self.overflow).is_empty()
    }

    fn idle(&self) -> Bytes {
        let overflow = locked(&self.overflow);
        let slots = self.used().iter().map(Slot::idle);
        slots
            .chain(overflow.iter().map(Instance::takes))
            .fold(Bytes::default(), plus)
    }

    fn evict_one(&self) -> Option<Bytes> {
        // Leases take the first free slots, so that the last ones are idle the longest.
        let idle = self.used().iter().rev();
        let mut idle = idle.filter(|slot| slot.idle() != Bytes::default());
        let taken = idle.find_map(Slot::take);
        let taken = taken.or_else(|| locked(&self.overflow).pop());
        taken.map(|instance| {
            let bytes = instance.takes();
            instance.discard();
            bytes
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let slots = self.slots.iter_mut();
        let slots = slots.filter_map(|slot| exclusive(&mut slot.instance).take());
        slots.for_each(Instance::discard);
        exclusive(&mut self.overflow)
            .drain(..)
            .for_each(Instance::discard);
    }
}

impl Slot {
    /// Locks the slot, unless it is leased.
    #[inline]
    fn lease(&self) -> Option<Lease<'_>> {
        let instance = try_lock(&self.instance)?;
        self.set_idle(Bytes::default());
        Some(Lease::Slot(self, instance))
    }

    /// What its instance takes, if that is idle.
    fn idle(&self) -> Bytes {
        self.idle
            .each_ref()
            .map(|bytes| bytes.load(Ordering::Relaxed))
    }

    #[inline]
    fn set_idle(&self, bytes: Bytes) {
        for (idle, bytes) in std::iter::zip(&self.idle, bytes) {
            idle.store(bytes, Ordering::Relaxed);
        }
    }

    /// Takes its instance, if that is idle.
    fn take(&self) -> Option<Instance> {
        let mut instance = try_lock(&self.instance)?;
        self.set_idle(Bytes::default());
        instance.take()
    }
}

impl Lease<'_> {
    /// The instance, if the slot has one already.
    #[inline]
    pub(crate) fn instance(&mut self) -> &mut Option<Instance> {
        match self {
            Self::Slot(_, instance) => instance,
            Self::Overflow(_, instance) => instance,
        }
    }
}

impl Drop for Lease<'_> {
    #[inline]
    fn drop(&mut self) {
        let leased = self.instance();
        match leased {
            Some(instance) if instance.may_be_idle() => {
                instance.end();
                let takes = instance.takes();
                if let Self::Slot(slot, _) = self {
                    slot.set_idle(takes);
                }
            }
            _ => {
                if let Some(instance) = leased.take() {
                    instance.discard();
                }
            }
        }
        if let Self::Overflow(overflow, instance) = self
            && let Some(instance) = instance.take()
        {
            locked(overflow).push(instance);
        }
    }
}

/// Locks a slot, unless it is leased. After a panic the instance itself knows whether it is
/// healthy.
#[inline]
fn try_lock(slot: &Mutex<Option<Instance>>) -> Option<MutexGuard<'_, Option<Instance>>> {
    match slot.try_lock() {
        Ok(slot) => Some(slot),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn exclusive<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}
