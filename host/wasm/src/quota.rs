//! The quotas of instances and memory that the instances of a module share: those for one
//! executable, or those for all calls outside programs.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use callbox_core::call::InstanceMemory;
use callbox_core::policy::Limits;
use callbox_core::values::{Result, Status};

use crate::failure::caller_exhausted;
use crate::places::Place;
use crate::pool::Pools;
use crate::shared::Evict;

/// The instances and memory of call sites that share instances.
#[derive(Debug)]
pub(crate) struct Quota {
    instances: AtomicUsize,
    memory_bytes: AtomicUsize,
    together: Arc<Together>,
}

/// The memory of all instances that `executable_memory_bytes` bounds together: those of a module
/// for one executable, or those of a file for all calls outside programs.
#[derive(Default)]
pub(crate) struct Together {
    memory_bytes: AtomicUsize,
    /// Their idle instances give way to one that grows.
    pools: Pools,
    outside_programs: bool,
}

impl Together {
    pub(crate) fn outside_programs() -> Self {
        Self {
            outside_programs: true,
            ..Self::default()
        }
    }
}

impl fmt::Debug for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Together")
            .field("memory_bytes", &self.memory_bytes)
            .finish_non_exhaustive()
    }
}

/// An instance's part of a quota, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    quota: Arc<Quota>,
    /// Its place among the engine's instances, once it has one.
    place: Option<Place>,
    memory_bytes: usize,
    /// The size before the last growth.
    before: usize,
    /// Whether its thread helps with a call: growth that has no room now is refused.
    helps: bool,
}

/// Updates a number unless `add` returns `None`. Other threads never see a refused number.
fn try_add(number: &AtomicUsize, add: impl Fn(usize) -> Option<usize>) -> bool {
    number
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
        .is_ok()
}

impl InstanceMemory for Quota {
    fn bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }
}

impl Quota {
    /// The quota of instances whose idle ones are in `pool`.
    pub(crate) fn new(together: Arc<Together>, pool: Weak<dyn Evict>) -> Self {
        together.pools.add(pool);
        Self {
            instances: AtomicUsize::new(0),
            memory_bytes: AtomicUsize::new(0),
            together,
        }
    }

    /// What the memory counts towards.
    pub(crate) fn together(&self) -> &Arc<Together> {
        &self.together
    }

    /// Whether there may be one more instance.
    pub(crate) fn has_room(&self, limits: &Limits) -> bool {
        self.instances.load(Ordering::Relaxed) < limits.executable_instances
    }

    /// Whether there is room for this much more memory.
    pub(crate) fn has_memory(&self, bytes: usize, limits: &Limits) -> bool {
        let used = self.together.memory_bytes.load(Ordering::Relaxed);
        used.saturating_add(bytes) <= limits.executable_memory_bytes
    }

    /// Reserves one more instance.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller, if the limit is reached.
    pub(crate) fn share(self: &Arc<Self>, limits: &Limits) -> Result<Share> {
        let most = limits.executable_instances;
        let one_more = |count| (count < most).then_some(count + 1);
        if !try_add(&self.instances, one_more) {
            return Err(caller_exhausted(format!(
                "expected at most {most} instances of a module at one time for one executable, found one more execution"
            )));
        }
        Ok(Share {
            quota: Arc::clone(self),
            place: None,
            memory_bytes: 0,
            before: 0,
            helps: false,
        })
    }
}

impl Share {
    /// Takes a place among the instances of its engine, or gives it back.
    pub(crate) fn set_place(&mut self, place: Option<Place>) -> Option<Place> {
        std::mem::replace(&mut self.place, place)
    }

    /// Grows the memory to `size` bytes, unless all instances together would exceed `limit` bytes.
    pub(crate) fn grow(&mut self, size: usize, limit: usize) -> bool {
        let more = size.saturating_sub(self.memory_bytes);
        let grown = |total: usize| total.checked_add(more).filter(|&total| total <= limit);
        if !try_add(&self.quota.together.memory_bytes, grown) {
            return false;
        }
        self.quota.memory_bytes.fetch_add(more, Ordering::Relaxed);
        self.before = self.memory_bytes;
        self.memory_bytes = self.memory_bytes.max(size);
        true
    }

    /// The pools of those that count towards the same limit.
    pub(crate) fn pools(&self) -> &Pools {
        &self.quota.together.pools
    }

    /// Discards an idle instance that counts towards the same limit. False if there is none.
    pub(crate) fn evict_one(&self) -> bool {
        self.quota.together.pools.evict_one()
    }

    /// Says whether the instance's thread helps with a call: its growth then neither waits nor
    /// evicts others.
    #[inline]
    pub(crate) fn set_helps(&mut self, helps: bool) {
        self.helps = helps;
    }

    #[inline]
    pub(crate) fn helps(&self) -> bool {
        self.helps
    }

    /// What the memory counts towards.
    pub(crate) fn together(&self) -> &Arc<Together> {
        &self.quota.together
    }

    /// Whether the limit is that of all calls outside programs.
    pub(crate) fn is_outside_programs(&self) -> bool {
        self.quota.together.outside_programs
    }

    /// The memory's size in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Reverts the last growth, which failed after all.
    pub(crate) fn shrink_back(&mut self) {
        self.give_back(self.memory_bytes - self.before);
        self.memory_bytes = self.before;
    }

    fn give_back(&self, bytes: usize) {
        let counts = [&self.quota.memory_bytes, &self.quota.together.memory_bytes];
        for count in counts {
            count.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// The status for more instances than an engine may have.
pub(crate) fn too_many(most: u32) -> Status {
    caller_exhausted(format!(
        "the module's start: expected at most {most} instances at one time, found more"
    ))
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.instances.fetch_sub(1, Ordering::Relaxed);
        self.give_back(self.memory_bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use callbox_core::values::StatusCode;

    use super::*;
    use crate::pool::Pool;

    fn quota(together: &Arc<Together>) -> Arc<Quota> {
        let pool = Arc::downgrade(&(Arc::new(Pool::new()) as Arc<dyn Evict>));
        Arc::new(Quota::new(Arc::clone(together), pool))
    }

    #[test]
    fn quotas_that_count_together_have_one_limit() {
        let together = Arc::default();
        let (one, other) = (quota(&together), quota(&together));
        let mut first = one.share(&Limits::default()).unwrap();
        let mut second = other.share(&Limits::default()).unwrap();
        assert!(first.grow(60, 100));
        assert!(!second.grow(41, 100));
        assert!(second.grow(40, 100));
        assert_eq!((one.bytes(), other.bytes()), (60, 40));
        second.shrink_back();
        assert_eq!((one.bytes(), other.bytes()), (60, 0));
        drop(first);
        assert!(second.grow(100, 100));
        drop(second);
        assert_eq!(together.memory_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn shares_are_counted_and_given_back() {
        let limits = Limits {
            executable_instances: 2,
            ..Limits::default()
        };
        let quota = quota(&Arc::default());
        let mut first = quota.share(&limits).unwrap();
        let mut second = quota.share(&limits).unwrap();
        let status = quota.share(&limits).unwrap_err();
        assert_eq!(status.code(), StatusCode::ResourceExhausted);
        assert!(first.grow(60, 100));
        assert!(second.grow(40, 100));
        assert!(!second.grow(41, 100));
        second.shrink_back();
        assert!(second.grow(30, 100));
        assert!(first.grow(70, 100));
        drop(first);
        assert!(quota.share(&limits).unwrap().grow(70, 100));
        assert!(second.grow(100, 100));
        drop(second);
        assert_eq!(quota.bytes(), 0);
        assert_eq!(quota.instances.load(Ordering::Relaxed), 0);
    }
}
