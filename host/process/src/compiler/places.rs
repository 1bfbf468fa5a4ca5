//! The places for modules that are compiled at one time, as the threads that compile them see them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use callbox_core::locks::locked;

use super::jobs::{Candidate, Job, Jobs, Seen};
use crate::exchange::Closer;
use crate::spawner::Handle;

/// The interval between two looks at jobs.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// The places of one compiler.
#[derive(Debug, Default)]
pub(super) struct Places(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

/// A job's place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    number: u64,
}

impl Places {
    /// A place for a module, or `None` if it gets none until then.
    pub(super) fn take(&self, candidate: Candidate, until: Option<Instant>) -> Option<Place> {
        let mut jobs = self.0.locked();
        let own = jobs.wait(candidate);
        let has_place = loop {
            if jobs.may_begin(&own) {
                break true;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                break false;
            }
            let look = jobs.looks(&own).then(|| {
                // Where memory became free, the next one still sleeps.
                if jobs.has_room_for_some() {
                    self.0.changed.notify_all();
                } else {
                    jobs.make_room();
                }
                Instant::now() + LOOK
            });
            jobs = self.0.wait(jobs, until.into_iter().chain(look).min());
        };
        if has_place {
            jobs.begin(&own);
        } else {
            jobs.leave(&own);
        }
        // The next one may take its turn.
        self.0.changed.notify_all();
        has_place.then(|| Place {
            shared: Arc::clone(&self.0),
            number: own.number,
        })
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Jobs> {
        locked(&self.jobs)
    }

    fn wait<'a>(&self, jobs: MutexGuard<'a, Jobs>, until: Option<Instant>) -> MutexGuard<'a, Jobs> {
        match until {
            None => {
                let waited = self.changed.wait(jobs);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                let waited = self.changed.wait_timeout(jobs, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

impl Place {
    /// Tells how to end the job's process.
    pub(super) fn set_closer(&self, closer: Closer) {
        self.with_job(|job| job.set_closer(closer));
    }

    /// Ends the use of the job's process by this place, and returns whether the job still had it:
    /// then nothing closes the process any more.
    pub(super) fn release(&self) -> bool {
        self.with_job(Job::release).unwrap_or_default()
    }

    /// The processor time for which the job is to keep its priority, if longer than others.
    pub(super) fn kept(&self) -> Duration {
        self.with_job(|job| job.kept).unwrap_or_default()
    }

    /// The bytes of memory that the job's process held at the last look.
    pub(super) fn held(&self) -> u64 {
        self.with_job(|job| job.seen.resident).unwrap_or_default()
    }

    /// Has the job's process take turns with the others.
    pub(super) fn begin_turns(&self, process: Option<Handle>) {
        self.with_job(|job| job.set_process(process));
        self.shared.locked().give_turns();
    }

    /// Takes the process out of the turns. It runs on if it was stopped.
    pub(super) fn end_turns(&self) {
        self.begin_turns(None);
    }

    /// Whether the job's process is stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.with_job(|job| job.is_stopped).unwrap_or_default()
    }

    /// Notes what a look showed of the job, and gives all jobs their turns.
    pub(super) fn look(&self, seen: Seen) {
        self.with_job(|job| job.sees(seen));
        let mut jobs = self.shared.locked();
        jobs.free_memory();
        jobs.give_turns();
    }

    /// Whether another job takes this place.
    pub(super) fn is_lost(&self) -> bool {
        self.with_job(|job| job.has_lost).unwrap_or_default()
    }

    fn with_job<T>(&self, change: impl FnOnce(&mut Job) -> T) -> Option<T> {
        self.shared.locked().job(self.number).map(change)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.locked().end(self.number);
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::thread;

    use super::super::jobs::QUANTUM;
    use super::*;
    use crate::exchange::Exchange;

    /// A place for a job that has used the quantum.
    fn take(places: &Places) -> Place {
        let place = places.take(Candidate::default(), None).unwrap();
        place.set_closer(Exchange::new().unwrap().0.closer());
        place.look(Seen {
            used: QUANTUM,
            ..Seen::default()
        });
        place
    }

    /// An attempt after one that used the quantum.
    fn again() -> Candidate {
        Candidate {
            before: QUANTUM,
            ..Candidate::default()
        }
    }

    #[test]
    fn an_attempt_waits_for_the_place_of_another() {
        let places = Places::default();
        let mut running = Vec::from_iter((0..Jobs::default().most).map(|_| take(&places)));
        let soon = Instant::now() + 3 * LOOK;
        assert!(places.take(again(), Some(soon)).is_none());
        thread::scope(|scope| {
            let first = scope.spawn(|| take(&places));
            let lost = loop {
                if let Some(lost) = running.iter().position(Place::is_lost) {
                    break lost;
                }
                thread::yield_now();
            };
            assert!(!first.is_finished());
            drop(running.remove(lost));
            running.push(first.join().unwrap());
        });
        assert!(!running.iter().any(Place::is_lost));
        // One that ended by itself is for the next one as well.
        thread::scope(|scope| {
            let next = scope.spawn(|| places.take(again(), None).is_some());
            running.pop();
            assert!(next.join().unwrap());
        });
    }
}
