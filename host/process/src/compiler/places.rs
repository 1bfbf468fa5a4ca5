//! The limit on concurrent compilations, and which of them give way to others.
//!
//! The places go to the attempts in order, where one after others comes later by several times the
//! processor time that those used, and at most every second place goes to such a one while others
//! wait. If all are taken, the next attempt takes the place of the job
//! that has used most, once that has used the quantum. Time on the clock would not do: on a busy
//! machine, a module that takes little would lose its place as one does that takes long. A job that
//! lost its place begins anew, and takes the place only of a job that has used twice as much as its
//! own earlier attempts. A few such jobs keep their places until they have used twice as much as
//! they lost: otherwise a stream of small modules would keep a larger one from ever being compiled.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use callbox_core::call::processors;
use callbox_core::locks::locked;
use rustix::process::{Pid, Signal, kill_process};

use super::times::Clock;
use super::turns::{self, Use};
use crate::exchange::Closer;

/// The most modules that are compiled at one time. The kernel schedules the processes that run.
pub(super) const PLACES: usize = 16;

/// The processor time for which a job keeps its place although others wait: several times what a
/// healthy module takes.
pub(super) const QUANTUM: Duration = Duration::from_millis(125);

/// An attempt after others waits behind those that begin within this many times what they used.
const DELAY: u32 = 8;

/// The most jobs at one time that keep their places, and their priority, for longer, and the most
/// processor time for which they do.
const KEPT: usize = 4;
const MOST_KEPT: Duration = Duration::from_secs(2);

/// A process is charged at least this fraction of the time on the clock (one part in
/// `IDLE_SHARE`), even while it is stopped.
const IDLE_SHARE: u32 = 8;

/// The interval at which the next attempt reads the processor times of the jobs.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// The places of one compiler.
#[derive(Debug, Default)]
pub(super) struct Places(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Jobs {
    running: Vec<Job>,
    /// The attempts that wait, the next one first.
    waiting: BTreeSet<Waiting>,
    /// Whether the next place goes to a first attempt, if one waits: an attempt after others had
    /// the last one.
    is_turn_of_first: bool,
    next: u64,
}

/// An attempt that waits: when its turn is, its number, and whether it is a first one.
type Waiting = (Instant, u64, bool);

/// A job with a place.
#[derive(Debug)]
struct Job {
    number: u64,
    begun: Instant,
    /// The processor time of its earlier attempts.
    before: Duration,
    /// The processor time for which it keeps its place and its priority, if longer than others.
    kept: Duration,
    /// The processor time of this attempt at the last look, and the threads that are busy then.
    seen: Duration,
    busy: usize,
    /// Its process, while it takes turns, and whether it is stopped until the next one.
    process: Option<Pid>,
    is_stopped: bool,
    /// The clock of its process, once it has one, and how to end it.
    clock: Option<Clock>,
    closer: Option<Closer>,
    has_lost: bool,
}

/// A job's place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    number: u64,
}

impl Places {
    /// A place for a job whose earlier attempts used this much processor time, those that lost
    /// their places in this load `lost` of it, or `None` if it gets none until then.
    pub(super) fn take(
        &self,
        before: Duration,
        lost: Duration,
        until: Option<Instant>,
    ) -> Option<Place> {
        let mut jobs = self.0.locked();
        let number = jobs.next;
        jobs.next += 1;
        // An attempt that used less than the quantum shows nothing.
        let is_first = before < QUANTUM;
        let before = if is_first { Duration::ZERO } else { before };
        let own = (Instant::now() + DELAY * before, number, is_first);
        jobs.waiting.insert(own);
        let has_place = loop {
            let is_next = jobs.next_waiting() == Some(&own);
            if is_next && jobs.running.len() < PLACES {
                break true;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                break false;
            }
            // Behind an attempt that may take no place, a first one makes room for both.
            let may_look = is_next || jobs.first_attempt() == Some(&own);
            let look = may_look.then(|| {
                jobs.make_room(before);
                Instant::now() + LOOK
            });
            jobs = self.0.wait(jobs, until.into_iter().chain(look).min());
        };
        jobs.waiting.remove(&own);
        if has_place {
            jobs.is_turn_of_first = !is_first;
            let kept = jobs.running.iter().filter(|job| !job.kept.is_zero());
            let is_kept = lost >= QUANTUM && kept.count() < KEPT;
            let kept = if is_kept { 2 * lost } else { Duration::ZERO };
            jobs.running.push(Job {
                number,
                begun: Instant::now(),
                before,
                kept: kept.min(MOST_KEPT),
                seen: Duration::ZERO,
                busy: 0,
                process: None,
                is_stopped: false,
                clock: None,
                closer: None,
                has_lost: false,
            });
        }
        // The next one may take its turn.
        self.0.changed.notify_all();
        has_place.then(|| Place {
            shared: Arc::clone(&self.0),
            number,
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

impl Jobs {
    fn next_waiting(&self) -> Option<&Waiting> {
        let first = self.first_attempt().filter(|_| self.is_turn_of_first);
        first.or(self.waiting.first())
    }

    /// The first attempt that waits longest.
    fn first_attempt(&self) -> Option<&Waiting> {
        self.waiting.iter().find(|(_, _, is_first)| *is_first)
    }

    /// Takes the place of the job that has used most, for an attempt after others that used
    /// `before`. A job that has lost its place gives it back soon, so that one at a time is enough.
    fn make_room(&mut self, before: Duration) {
        if self.running.iter().any(|job| job.has_lost) {
            return;
        }
        // A job whose process is starting could not give back its place until that has ended.
        let started = self.running.iter_mut().filter(|job| job.clock.is_some());
        let jobs = started.filter_map(|job| {
            let used = job.used();
            let all = job.before + used;
            let is_over = used >= QUANTUM.max(job.kept) && all >= 2 * before;
            is_over.then_some((all, job))
        });
        if let Some((_, job)) = jobs.max_by_key(|(all, _)| *all) {
            job.lose();
        }
    }

    /// Stops the processes of some jobs, and has those of others run on. One look does both, so
    /// that the processors are never idle between two turns.
    fn give_turns(&mut self) {
        let jobs = self.running.iter().filter(|job| job.process.is_some());
        let uses = Vec::from_iter(jobs.map(Job::seen_use));
        let running = turns::running(uses, processors());
        let (runs, waits): (Vec<_>, Vec<_>) = self
            .running
            .iter_mut()
            .partition(|job| running.contains(&job.number));
        runs.into_iter().for_each(Job::continues);
        waits.into_iter().for_each(Job::stops);
    }
}

impl Job {
    /// The processor time of the current attempt.
    fn used(&self) -> Duration {
        let age = self.begun.elapsed();
        match &self.clock {
            // Without `/proc`, the time on the clock decides.
            Some(clock) => clock.used().map_or(age, |used| used.max(age / IDLE_SHARE)),
            None => age / IDLE_SHARE,
        }
    }

    fn seen_use(&self) -> Use {
        Use {
            number: self.number,
            all: self.before + self.seen,
            now: self.seen,
            age: self.begun.elapsed(),
            busy: self.busy,
        }
    }

    fn stops(&mut self) {
        if !self.is_stopped {
            self.is_stopped = self.signal(Signal::STOP);
        }
    }

    fn continues(&mut self) {
        if self.is_stopped {
            self.signal(Signal::CONT);
            self.is_stopped = false;
        }
    }

    /// Sends a signal to the process, and returns whether it was sent. While the job has a process,
    /// nothing here waits for it, so that no other one has its number.
    fn signal(&self, signal: Signal) -> bool {
        self.process
            .is_some_and(|process| kill_process(process, signal).is_ok())
    }

    fn lose(&mut self) {
        self.has_lost = true;
        if let Some(closer) = &self.closer {
            closer.close();
        }
    }
}

impl Place {
    /// Tells what the job's process uses, and how to end it, which happens at once if the job has
    /// lost its place.
    pub(super) fn set_process(&self, clock: Clock, closer: Closer) {
        self.with_job(|job| {
            if job.has_lost {
                closer.close();
            }
            job.clock = Some(clock);
            job.closer = Some(closer);
        });
    }

    /// The processor time for which the job is to keep its priority, if longer than others.
    pub(super) fn kept(&self) -> Duration {
        self.with_job(|job| job.kept).unwrap_or_default()
    }

    /// Has the job's process take turns with the others.
    pub(super) fn begin_turns(&self, process: Option<Pid>) {
        self.with_job(|job| job.process = process);
        self.shared.locked().give_turns();
    }

    /// Takes the process out of the turns. It runs on if it was stopped.
    pub(super) fn end_turns(&self) {
        self.with_job(|job| {
            job.continues();
            job.process = None;
        });
        self.shared.locked().give_turns();
    }

    /// Whether the job's process is stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.with_job(|job| job.is_stopped).unwrap_or_default()
    }

    /// Notes what a look showed of the job, the processor time of this attempt and the number of
    /// threads that are ready to run, and gives all jobs their turns.
    pub(super) fn look(&self, used: Duration, ready: usize) {
        self.with_job(|job| {
            job.seen = used;
            if !job.is_stopped {
                // Threads wait for one another now and then.
                job.busy = ready.max(job.busy.saturating_sub(1));
            }
        });
        self.shared.locked().give_turns();
    }

    fn with_job<T>(&self, change: impl FnOnce(&mut Job) -> T) -> Option<T> {
        let mut jobs = self.shared.locked();
        let mut jobs = jobs.running.iter_mut();
        let job = jobs.find(|job| job.number == self.number)?;
        Some(change(job))
    }

    /// Whether another job takes this place.
    pub(super) fn is_lost(&self) -> bool {
        let jobs = self.shared.locked();
        let mut lost = jobs.running.iter().filter(|job| job.has_lost);
        lost.any(|job| job.number == self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut jobs = self.shared.locked();
        jobs.running.retain(|job| job.number != self.number);
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::thread;

    use super::*;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + 3 * LOOK)
    }

    /// Has the job of a place use this much, all at once.
    fn uses(place: &Place, used: Duration) {
        place.with_job(|job| {
            job.clock = Some(Clock::fixed(used));
            // The time on the clock does not count.
            job.begun = Instant::now() + 3600 * SECOND;
        });
    }

    /// A place for a job that lost none in this load.
    fn take(places: &Places, before: Duration, until: Option<Instant>) -> Option<Place> {
        places.take(before, Duration::ZERO, until)
    }

    fn lost(running: &[Place]) -> Vec<usize> {
        let all = running.iter().enumerate();
        all.filter(|(_, place)| place.is_lost())
            .map(|(i, _)| i)
            .collect()
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// As many jobs as places, of which the fourth one used nine seconds before.
    fn full(places: &Places) -> Vec<Place> {
        let running = (0..PLACES).map(|_| take(places, Duration::ZERO, None).unwrap());
        let running = Vec::from_iter(running);
        running[3].with_job(|job| job.before = 9 * SECOND);
        running
    }

    #[test]
    fn the_job_that_used_most_gives_way_after_its_quantum() {
        let places = Places::default();
        let mut running = full(&places);
        for place in &running {
            uses(place, QUANTUM - QUANTUM / 8);
        }
        // However long they take on the clock, and however long one ran before.
        assert!(take(&places, Duration::ZERO, soon()).is_none());
        assert!(lost(&running).is_empty());
        uses(&running[2], SECOND);
        uses(&running[3], QUANTUM);
        thread::scope(|scope| {
            let first = scope.spawn(|| take(&places, Duration::ZERO, None));
            while lost(&running).is_empty() {
                thread::yield_now();
            }
            // One attempt takes one place.
            assert_eq!(lost(&running), vec![3]);
            drop(running.remove(3));
            running.push(first.join().unwrap().unwrap());
        });
    }

    #[test]
    fn an_attempt_after_others_takes_the_place_of_one_that_used_twice_as_much() {
        let places = Places::default();
        let mut running = full(&places);
        uses(&running[3], 18 * SECOND);
        uses(&running[5], 19 * SECOND);
        let mut jobs = places.0.locked();
        jobs.make_room(14 * SECOND);
        drop(jobs);
        assert!(lost(&running).is_empty());
        places.0.locked().make_room(13 * SECOND);
        assert_eq!(lost(&running), vec![3]);
        running.remove(3);
        assert!(take(&places, Duration::ZERO, soon()).is_some());
    }

    #[test]
    fn a_few_jobs_after_others_keep_their_places_for_longer() {
        let places = Places::default();
        let running = (0..PLACES).map(|_| places.take(QUANTUM, QUANTUM, None).unwrap());
        let running = Vec::from_iter(running);
        for place in &running[..=KEPT] {
            uses(place, QUANTUM);
        }
        assert!(take(&places, Duration::ZERO, soon()).is_none());
        assert_eq!(lost(&running), vec![KEPT]);
        running[KEPT].with_job(|job| job.has_lost = false);
        uses(&running[0], 2 * QUANTUM);
        assert!(take(&places, Duration::ZERO, soon()).is_none());
        assert_eq!(lost(&running), vec![0]);
        drop(running);
        // What other loads used does not count, and little can be lost.
        let place = take(&places, 60 * SECOND, None).unwrap();
        assert_eq!(place.kept(), Duration::ZERO);
        let place = places.take(60 * SECOND, 60 * SECOND, None).unwrap();
        assert_eq!(place.kept(), MOST_KEPT);
    }

    #[test]
    fn a_process_that_is_stopped_loses_its_place() {
        let places = Places::default();
        let running = full(&places);
        for place in &running {
            uses(place, Duration::ZERO);
        }
        running[7].with_job(|job| {
            job.begun = Instant::now().checked_sub(60 * SECOND).unwrap();
        });
        assert!(take(&places, Duration::ZERO, soon()).is_none());
        assert_eq!(lost(&running), vec![7]);
    }

    #[test]
    fn a_first_attempt_makes_room_behind_one_that_may_not() {
        let places = Places::default();
        let mut running = full(&places);
        thread::scope(|scope| {
            let again = scope.spawn(|| take(&places, QUANTUM, None));
            while places.0.locked().waiting.is_empty() {
                thread::yield_now();
            }
            thread::sleep(DELAY * QUANTUM);
            let first = scope.spawn(|| take(&places, Duration::ZERO, None));
            // Less than twice what the other one used.
            uses(&running[5], QUANTUM);
            while lost(&running).is_empty() {
                thread::yield_now();
            }
            assert_eq!(lost(&running), vec![5]);
            running.remove(5);
            running.push(again.join().unwrap().unwrap());
            // The next place is not for one after others, however long it waits.
            let third = scope.spawn(|| take(&places, QUANTUM, None));
            running.pop();
            drop(first.join().unwrap().unwrap());
            assert!(third.join().unwrap().is_some());
        });
    }

    #[test]
    fn attempts_after_others_come_later() {
        let places = Places::default();
        let mut running = full(&places);
        thread::scope(|scope| {
            let again = scope.spawn(|| take(&places, QUANTUM, None));
            let first = scope.spawn(|| take(&places, QUANTUM / 2, None));
            while places.0.locked().waiting.len() < 2 {
                thread::yield_now();
            }
            running.pop();
            let first = first.join().unwrap();
            assert!(first.is_some());
            assert!(!again.is_finished());
            drop(first);
            assert!(again.join().unwrap().is_some());
        });
    }
}
