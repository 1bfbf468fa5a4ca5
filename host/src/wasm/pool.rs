//! A pool of instances that is cheap to take from: an uncontended lock for each call.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use super::instance::Instance;
use super::shared::Evict;

/// How many executions at one time find a slot. More than these share a stack of instances behind a lock that they take twice.
const SLOTS: usize = 32;

/// Idle instances. A lease holds its slot's lock for as long as it lasts, so that a call locks once and no instance
/// moves.
pub(super) struct Pool {
    slots: Box<[Mutex<Option<Instance>>]>,
    overflow: Mutex<Vec<Instance>>,
}

/// The right to an instance. When it ends, the instance stays in the pool if it is healthy.
pub(super) struct Lease<'a> {
    place: Place<'a>,
}

enum Place<'a> {
    Slot(MutexGuard<'a, Option<Instance>>),
    Overflow(&'a Mutex<Vec<Instance>>, Option<Instance>),
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            slots: std::iter::repeat_with(Mutex::default).take(SLOTS).collect(),
            overflow: Mutex::default(),
        }
    }

    /// A lease that no one else has: of the first slot that is free, so that there are no more instances than executions at one
    /// time.
    #[inline]
    pub(super) fn lease(&self) -> Lease<'_> {
        for slot in &self.slots {
            let Some(slot) = free(slot) else {
                continue;
            };
            return Lease {
                place: Place::Slot(slot),
            };
        }
        let idle = locked(&self.overflow).pop();
        Lease {
            place: Place::Overflow(&self.overflow, idle),
        }
    }
}

impl Evict for Pool {
    fn evict_one(&self, deadline: Instant) -> bool {
        // Leases take the first slots that are free: the last are the idlest.
        let taken = self.slots.iter().rev().find_map(|slot| free(slot)?.take());
        // It goes when nothing is locked: a guest that takes things back may log.
        match taken.or_else(|| locked(&self.overflow).pop()) {
            Some(mut instance) => {
                instance.unbind(Some(deadline));
                true
            }
            None => false,
        }
    }
}

impl Lease<'_> {
    /// The instance, if there is one yet.
    #[inline]
    pub(super) fn instance(&mut self) -> &mut Option<Instance> {
        match &mut self.place {
            Place::Slot(slot) => slot,
            Place::Overflow(_, instance) => instance,
        }
    }
}

impl Drop for Lease<'_> {
    #[inline]
    fn drop(&mut self) {
        let leased = self.instance();
        match leased {
            Some(instance) if instance.is_healthy() => instance.end(),
            _ => {
                if let Some(instance) = leased.take() {
                    instance.discard();
                }
            }
        }
        if let Place::Overflow(overflow, instance) = &mut self.place
            && let Some(instance) = instance.take()
        {
            locked(overflow).push(instance);
        }
    }
}

/// The slot, if no lease has it. Whoever panicked in one left an instance that says itself whether it is healthy.
#[inline]
fn free(slot: &Mutex<Option<Instance>>) -> Option<MutexGuard<'_, Option<Instance>>> {
    match slot.try_lock() {
        Ok(slot) => Some(slot),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
