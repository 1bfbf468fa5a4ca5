//! The quota that all instances of a module for one executable share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callbox_core::policy::Limits;
use callbox_core::values::{Result, Status};

use crate::failure::caller_exhausted;

/// The instances and memory in use.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    instances: AtomicUsize,
    memory_bytes: AtomicUsize,
}

/// An instance's part of a quota, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    quota: Arc<Quota>,
    /// The number of the engine's instances, once this one counts.
    engine: Option<Arc<AtomicUsize>>,
    memory_bytes: usize,
    /// The size before the last growth.
    before: usize,
}

/// Updates a number unless `add` returns `None`. Other threads never see a refused number.
fn try_add(number: &AtomicUsize, add: impl Fn(usize) -> Option<usize>) -> bool {
    number
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
        .is_ok()
}

impl Quota {
    /// Whether there may be one more instance.
    pub(crate) fn has_room(&self, limits: &Limits) -> bool {
        self.instances.load(Ordering::Relaxed) < limits.executable_instances
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
            engine: None,
            memory_bytes: 0,
            before: 0,
        })
    }
}

impl Share {
    /// Counts the instance among those of its engine.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller, if the engine has `most` already.
    pub(crate) fn enter(&mut self, engine: &Arc<AtomicUsize>, most: u32) -> Result<()> {
        let one_more = |count| (count < most as usize).then_some(count + 1);
        if !try_add(engine, one_more) {
            return Err(too_many(most));
        }
        self.engine = Some(Arc::clone(engine));
        Ok(())
    }

    /// Grows the memory to `size` bytes, unless all instances together would exceed `limit` bytes.
    pub(crate) fn grow(&mut self, size: usize, limit: usize) -> bool {
        let more = size.saturating_sub(self.memory_bytes);
        let grown = |total: usize| total.checked_add(more).filter(|&total| total <= limit);
        if !try_add(&self.quota.memory_bytes, grown) {
            return false;
        }
        self.before = self.memory_bytes;
        self.memory_bytes = self.memory_bytes.max(size);
        true
    }

    /// The memory's size in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Reverts the last growth, which failed after all.
    pub(crate) fn shrink_back(&mut self) {
        let less = self.memory_bytes - self.before;
        self.quota.memory_bytes.fetch_sub(less, Ordering::Relaxed);
        self.memory_bytes = self.before;
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
        if let Some(engine) = &self.engine {
            engine.fetch_sub(1, Ordering::Relaxed);
        }
        self.quota.instances.fetch_sub(1, Ordering::Relaxed);
        let bytes = self.memory_bytes;
        self.quota.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use callbox_core::values::StatusCode;

    use super::*;

    #[test]
    fn shares_are_counted_and_given_back() {
        let limits = Limits {
            executable_instances: 2,
            ..Limits::default()
        };
        let quota = Arc::<Quota>::default();
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
        assert_eq!(quota.memory_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(quota.instances.load(Ordering::Relaxed), 0);
    }
}
