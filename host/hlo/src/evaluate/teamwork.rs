//! Shares the parts of a long operation among threads.
//!
//! The threads end with the operation. Results do not depend on their number: each part has bits
//! of its own, and parts are joined in order.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use callbox_core::call::processors;
use callbox_core::float_mode::FloatMode;
use callbox_core::values::Result;

/// Whether an operation goes on, and how many threads it takes.
#[derive(Clone, Copy)]
pub(crate) struct Team<'a> {
    /// The most threads, the calling one included.
    pub(crate) threads: usize,
    /// Fails when the operation is to end.
    pub(crate) check: &'a dyn Check,
}

/// Says whether an operation goes on.
pub(crate) trait Check: Sync {
    /// # Errors
    /// The reason why the operation is to end.
    fn check(&self) -> Result<()>;
}

/// The elementary steps, of about a nanosecond, that are worth the start of a thread.
const ENOUGH: usize = 1 << 17;

impl Team<'_> {
    /// Calls `work` for each part. `steps` is the work of all parts together.
    ///
    /// # Errors
    /// One of the errors of [`Team::check`] or `work`. Parts that no thread has begun are left out.
    ///
    /// # Panics
    /// If `work` panics.
    pub(super) fn share<P: Send>(
        self,
        parts: impl Iterator<Item = P> + Send,
        steps: usize,
        work: impl Fn(P) -> Result<()> + Sync,
    ) -> Result<()> {
        let parts = Mutex::new(Some(parts));
        let parts = || parts.lock().unwrap_or_else(PoisonError::into_inner);
        let take = || parts().as_mut()?.next();
        let work = || {
            // A new thread may have another mode than the one that starts it.
            let _mode = FloatMode::WASM.set();
            let outcome = std::iter::from_fn(take).try_for_each(|part| {
                self.check.check()?;
                work(part)
            });
            if outcome.is_err() {
                *parts() = None;
            }
            outcome
        };
        let threads = self.threads.min(steps / ENOUGH + 1);
        thread::scope(|scope| {
            let start = |_| {
                let thread = thread::Builder::new().name("callbox-program".to_owned());
                // Without a further thread, the others do its work.
                thread.spawn_scoped(scope, work).ok()
            };
            let helpers = Vec::from_iter((1..threads).filter_map(start));
            let mut outcome = work();
            for helper in helpers {
                outcome = outcome.and(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            outcome
        })
    }
}

/// The threads that the machine has for a program, at most as many as the default policy allows.
pub(crate) fn available() -> usize {
    const MOST: usize = 8;
    processors().min(MOST)
}

/// Three threads for tests, whose work always goes on.
#[cfg(test)]
pub(super) const THREE: Team<'static> = {
    struct Always;
    impl Check for Always {
        fn check(&self) -> Result<()> {
            Ok(())
        }
    }
    Team {
        threads: 3,
        check: &Always,
    }
};

#[cfg(test)]
mod tests {
    use super::THREE;
    use crate::evaluate::bug;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_part_is_done_once_and_an_error_ends_the_others() {
        let sum = AtomicUsize::new(0);
        let add = |part| {
            sum.fetch_add(part, Ordering::Relaxed);
            Ok(())
        };
        assert!(THREE.share(0..1000, usize::MAX, add).is_ok());
        assert_eq!(sum.into_inner(), 499_500);
        let outcome = THREE.share(0..1_000_000, usize::MAX, |part| {
            if part == 7 { Err(bug("seven")) } else { Ok(()) }
        });
        assert_eq!(outcome, Err(bug("seven")));
    }
}
