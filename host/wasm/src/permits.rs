//! Permits to compile in this process, which bound an engine's concurrent compilations.
//!
//! A compilation past its time cannot be stopped. It still gives its permit back, so that a few
//! modules that take very long do not keep others from loading. The number of such compilations is
//! limited.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callbox_core::locks::locked;

use crate::fork::PerProcess;

/// The concurrent compilations of an engine that a caller waits for.
pub(crate) const MOST_COMPILATIONS: usize = 8;

/// The compilations past their time that may go on without a permit.
const MOST_ABANDONED: usize = 8;

/// The compilations of all engines that go on, with and without a permit.
static COMPILATIONS: PerProcess<AtomicU32> = PerProcess::of_first(AtomicU32::new(0));

/// The permits of an engine.
#[derive(Debug, Default)]
pub(crate) struct CompilePermits {
    running: Mutex<Running>,
    given_back: Condvar,
}

/// The numbers of compilations.
#[derive(Debug, Default)]
struct Running {
    permitted: usize,
    abandoned: usize,
}

/// The right to compile one module, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct CompilePermit {
    permits: Arc<CompilePermits>,
    is_abandoned: AtomicBool,
}

impl CompilePermits {
    /// Waits for a permit, and returns `None` if none is free within `timeout`.
    pub(crate) fn acquire(self: &Arc<Self>, timeout: Duration) -> Option<CompilePermit> {
        let is_full = |running: &mut Running| running.permitted >= MOST_COMPILATIONS;
        let (mut running, waited) = self
            .given_back
            .wait_timeout_while(self.locked(), timeout, is_full)
            .unwrap_or_else(PoisonError::into_inner);
        (!waited.timed_out()).then(|| {
            running.permitted += 1;
            COMPILATIONS.get().fetch_add(1, Ordering::Relaxed);
            CompilePermit {
                permits: Arc::clone(self),
                is_abandoned: AtomicBool::new(false),
            }
        })
    }

    fn locked(&self) -> MutexGuard<'_, Running> {
        locked(&self.running)
    }
}

/// The number of compilations that go on in this process.
pub(crate) fn compilations() -> u32 {
    COMPILATIONS.get().load(Ordering::Relaxed)
}

impl CompilePermit {
    /// Gives the permit back although the compilation goes on, unless too many do already.
    pub(crate) fn abandon(&self) {
        let mut running = self.permits.locked();
        let is_new =
            running.abandoned < MOST_ABANDONED && !self.is_abandoned.swap(true, Ordering::Relaxed);
        if is_new {
            running.abandoned += 1;
            running.permitted -= 1;
            self.permits.given_back.notify_one();
        }
    }
}

impl Drop for CompilePermit {
    fn drop(&mut self) {
        COMPILATIONS.get().fetch_sub(1, Ordering::Relaxed);
        let mut running = self.permits.locked();
        if *self.is_abandoned.get_mut() {
            running.abandoned -= 1;
        } else {
            running.permitted -= 1;
            self.permits.given_back.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abandoned_compilations_take_no_permits_up_to_a_limit() {
        let permits = Arc::<CompilePermits>::default();
        let now = || permits.acquire(Duration::ZERO);
        let mut first: Vec<_> = (0..MOST_COMPILATIONS).filter_map(|_| now()).collect();
        assert_eq!(first.len(), MOST_COMPILATIONS);
        assert!(now().is_none());
        first.iter().for_each(CompilePermit::abandon);
        let second: Vec<_> = (0..MOST_COMPILATIONS).filter_map(|_| now()).collect();
        assert_eq!(second.len(), MOST_COMPILATIONS);
        second.iter().for_each(CompilePermit::abandon);
        assert!(now().is_none());
        // An abandoned compilation that ends makes room for another one.
        first.pop();
        assert!(now().is_none());
        second[0].abandon();
        assert!(now().is_some());
        drop((first, second));
        let running = permits.locked();
        assert_eq!((running.permitted, running.abandoned), (0, 0));
    }
}
