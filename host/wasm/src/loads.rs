//! The loads of an engine, by file: a file is compiled once, however often and by however many
//! threads it is loaded.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use callbox_core::locks::locked;
use callbox_core::values::{Result, Status};

/// Whether later loads share a load's result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Later loads take it as long as it is in use.
    Share,
    /// Later loads begin anew.
    #[cfg_attr(
        not(feature = "cache"),
        allow(dead_code, reason = "only for results that the cache has, too")
    )]
    Forget,
}

/// Loads in progress, and results in use, by SHA-256 of the file.
#[derive(Debug)]
pub(crate) struct Loads<T>(Mutex<HashMap<[u8; 32], Slot<T>>>);

#[derive(Debug)]
enum Slot<T> {
    Loading(Arc<Flight<T>>),
    Loaded(Weak<T>),
}

/// A load that other threads may wait for.
#[derive(Debug)]
struct Flight<T> {
    outcome: Mutex<Option<Result<Arc<T>>>>,
    ended: Condvar,
}

impl<T> Default for Loads<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Loads<T> {
    /// The result of the load in progress, of an earlier one, or of `load`.
    ///
    /// # Errors
    /// The error of `load`, for all threads that wait for it.
    pub(crate) fn load(
        &self,
        digest: [u8; 32],
        after: After,
        load: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut slots = self.locked();
        match slots.get(&digest) {
            Some(Slot::Loading(flight)) => {
                let flight = Arc::clone(flight);
                drop(slots);
                return flight.wait();
            }
            Some(Slot::Loaded(result)) => {
                if let Some(result) = result.upgrade() {
                    return Ok(result);
                }
            }
            None => {}
        }
        let flight = Arc::new(Flight {
            outcome: Mutex::new(None),
            ended: Condvar::new(),
        });
        slots.insert(digest, Slot::Loading(Arc::clone(&flight)));
        drop(slots);
        let landing = Landing {
            loads: self,
            digest,
            after,
            flight,
        };
        landing.end(load().map(Arc::new))
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<[u8; 32], Slot<T>>> {
        locked(&self.0)
    }
}

impl<T> Flight<T> {
    /// Waits for the load, whose own limit on time bounds the wait.
    fn wait(&self) -> Result<Arc<T>> {
        let mut outcome = locked(&self.outcome);
        loop {
            match &*outcome {
                Some(outcome) => return outcome.clone(),
                None => {
                    let waited = self.ended.wait(outcome);
                    outcome = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn end(&self, outcome: Result<Arc<T>>) {
        let mut place = locked(&self.outcome);
        place.get_or_insert(outcome);
        self.ended.notify_all();
    }
}

/// Ends a load, also if it panics.
struct Landing<'a, T> {
    loads: &'a Loads<T>,
    digest: [u8; 32],
    after: After,
    flight: Arc<Flight<T>>,
}

impl<T> Landing<'_, T> {
    fn end(self, outcome: Result<Arc<T>>) -> Result<Arc<T>> {
        if let (Ok(result), After::Share) = (&outcome, self.after) {
            let mut slots = self.loads.locked();
            slots.retain(|_, slot| match slot {
                Slot::Loading(_) => true,
                Slot::Loaded(result) => result.strong_count() > 0,
            });
            slots.insert(self.digest, Slot::Loaded(Arc::downgrade(result)));
        }
        self.flight.end(outcome.clone());
        outcome
    }
}

impl<T> Drop for Landing<'_, T> {
    fn drop(&mut self) {
        let mut slots = self.loads.locked();
        if let Some(Slot::Loading(_)) = slots.get(&self.digest) {
            slots.remove(&self.digest);
        }
        drop(slots);
        // Only if the load panicked: otherwise it has ended.
        let panicked = Status::internal("another thread panicked while it loaded the module");
        self.flight.end(Err(panicked));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use callbox_core::values::StatusCode;

    use super::*;

    const FILE: [u8; 32] = [7; 32];

    /// Starts a load that ends when the sender is dropped, and other loads of the same file.
    fn concurrent(
        loads: &Loads<u32>,
        outcome: fn() -> Result<u32>,
    ) -> (usize, Vec<thread::Result<Result<Arc<u32>>>>) {
        let count = AtomicUsize::new(0);
        let (begun, first) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let count = &count;
            let mut threads = vec![scope.spawn(move || {
                loads.load(FILE, After::Forget, || {
                    count.fetch_add(1, Ordering::Relaxed);
                    begun.send(()).unwrap();
                    let _ = ended.recv();
                    outcome()
                })
            })];
            first.recv().unwrap();
            for _ in 0..4 {
                threads.push(scope.spawn(|| {
                    loads.load(FILE, After::Forget, || {
                        count.fetch_add(1, Ordering::Relaxed);
                        Ok(0)
                    })
                }));
            }
            // Loads of other files go on.
            assert_eq!(*loads.load([8; 32], After::Share, || Ok(5)).unwrap(), 5);
            thread::sleep(Duration::from_millis(100));
            drop(end);
            let outcomes = threads.into_iter().map(thread::ScopedJoinHandle::join);
            let outcomes = outcomes.collect();
            (count.load(Ordering::Relaxed), outcomes)
        })
    }

    #[test]
    fn concurrent_loads_of_a_file_are_one() {
        let loads = Loads::default();
        let (count, outcomes) = concurrent(&loads, || Ok(3));
        assert_eq!(count, 1);
        assert!(
            outcomes
                .into_iter()
                .all(|load| *load.unwrap().unwrap() == 3)
        );
        let (count, outcomes) = concurrent(&loads, || Err(Status::invalid_argument("no")));
        assert_eq!(count, 1);
        for load in outcomes {
            assert_eq!(load.unwrap().unwrap_err().message(), "no");
        }
    }

    #[test]
    fn a_load_that_panics_ends_for_all() {
        let loads = Loads::default();
        let (count, mut outcomes) = concurrent(&loads, || std::panic::resume_unwind(Box::new(())));
        assert_eq!(count, 1);
        assert!(outcomes.remove(0).is_err());
        for load in outcomes {
            assert_eq!(load.unwrap().unwrap_err().code(), StatusCode::Internal);
        }
        assert_eq!(*loads.load(FILE, After::Share, || Ok(1)).unwrap(), 1);
    }

    #[test]
    fn a_result_is_shared_while_it_is_in_use() {
        let loads = Loads::default();
        let first = loads.load(FILE, After::Share, || Ok(1)).unwrap();
        let second = loads.load(FILE, After::Share, || Ok(2)).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        drop((first, second));
        let third = loads.load(FILE, After::Forget, || Ok(3)).unwrap();
        assert_eq!(*third, 3);
        assert_eq!(*loads.load(FILE, After::Share, || Ok(4)).unwrap(), 4);
        assert_eq!(loads.locked().len(), 1);
    }
}
