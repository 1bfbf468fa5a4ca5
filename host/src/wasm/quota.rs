//! What the instances of a module for one executable may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::policy::Limits;
use crate::values::{Blame, Result, Status, StatusCode};

/// What they take now.
#[derive(Debug, Default)]
pub(super) struct Quota {
    instances: AtomicUsize,
    memory_bytes: AtomicUsize,
}

/// An instance's part of a quota, which it gives back when it goes.
#[derive(Debug)]
pub(super) struct Share {
    quota: Arc<Quota>,
    memory_bytes: usize,
    /// What it was before the last growth.
    before: usize,
}

/// Whether `add` gave a new number. Nobody else sees one that was not allowed.
fn add(number: &AtomicUsize, add: impl Fn(usize) -> Option<usize>) -> bool {
    let added = number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    added.is_ok()
}

impl Quota {
    /// A place for one more instance.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, the caller's doing, if there are as many as there may be.
    pub(super) fn share(self: &Arc<Self>, limits: &Limits) -> Result<Share> {
        let most = limits.executable_instances;
        let one_more = |count| (count < most).then_some(count + 1);
        match add(&self.instances, one_more) {
            true => Ok(Share {
                quota: Arc::clone(self),
                memory_bytes: 0,
                before: 0,
            }),
            false => Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Caller,
                format!(
                    "expected at most {most} instances of a module at one time for one executable, found one more execution"
                ),
            )),
        }
    }
}

impl Share {
    /// Takes memory of this size in place of what it has, unless all instances together would have more than `limit` bytes.
    pub(super) fn grow(&mut self, size: usize, limit: usize) -> bool {
        let more = size.saturating_sub(self.memory_bytes);
        let grown = |total: usize| total.checked_add(more).filter(|&total| total <= limit);
        if !add(&self.quota.memory_bytes, grown) {
            return false;
        }
        self.before = self.memory_bytes;
        self.memory_bytes = self.memory_bytes.max(size);
        true
    }

    /// How large the memory is.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The last growth did not happen after all.
    pub(super) fn shrink_back(&mut self) {
        let less = self.memory_bytes - self.before;
        self.quota.memory_bytes.fetch_sub(less, Ordering::Relaxed);
        self.memory_bytes = self.before;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.instances.fetch_sub(1, Ordering::Relaxed);
        let bytes = self.memory_bytes;
        self.quota.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

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
