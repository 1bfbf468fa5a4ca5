//! The modules that are compiled or wait for it, and which of them give way to others.
//!
//! As [`turns`] keep all but a few from running, it is memory that limits how many there may be:
//! some are compiled in any case, more while all of them hold little. If one too many grows, the
//! job that holds most ends.
//!
//! Those that wait come in order, where one after earlier attempts comes later by several times the
//! processor time that those used, and at most every second place goes to such a one while others
//! wait. If there is no room, one takes the place of the job that has used most, once that has used
//! the quantum, and twice as much as the one that waits. Time on the clock would not do: on a busy
//! machine, a module that takes little would lose its place as one does that takes long. A job that
//! lost its place begins anew. A few such jobs keep their places until they have used twice as much
//! as they lost: otherwise a stream of small modules would keep a larger one from ever being
//! compiled.
//!
//! Jobs that have used more than modules of their size do give way before others: what a module
//! will take is unknown, but few take that much, and most of those are bombs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use callbox_core::call::processors;
use rustix::process::{Pid, Signal, kill_process};

use super::memory::bytes_of_machine;
use super::turns::{self, Use};
use crate::exchange::Closer;

/// How many modules are compiled at one time however much memory they hold.
const FEW: usize = 16;

/// The most that are, with this many threads in all: containers often allow no more than 1,000.
const MOST: usize = 64;
const MOST_THREADS: usize = 512;

/// The most bytes of memory that more than a few jobs hold, and the part of the machine's memory,
/// one in this many.
const MOST_BYTES: u64 = 8 << 30;
const PART_OF_MACHINE: u64 = 3;

/// The processor time for which a job keeps its place although others wait: several times what a
/// healthy module takes.
pub(super) const QUANTUM: Duration = Duration::from_millis(125);

/// Modules take less processor time for each byte of the file, by some three times for those of
/// Rust's compiler with optimization.
const TIME_PER_BYTE: Duration = Duration::from_micros(1);

/// An attempt after others waits behind those that begin within this many times what they used.
const DELAY: u32 = 8;

/// The most jobs at one time that keep their places, and their priority, for longer, and the most
/// processor time for which they do.
const KEPT: usize = 4;
const MOST_KEPT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Jobs {
    /// The bytes of memory that more than a few jobs hold at most. There is room for another one
    /// below half of it, so that those that have places can grow.
    most_bytes: u64,
    /// The most jobs at one time.
    pub(super) most: usize,
    running: Vec<Job>,
    waiting: BTreeSet<Waiting>,
    /// The attempt for which a job lost its place.
    promised: Option<u64>,
    /// Whether the next place goes to a first attempt, if one waits: an attempt after others had
    /// the last one.
    is_turn_of_first: bool,
    next: u64,
}

/// An attempt that waits. The first one in order is the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    turn: Instant,
    pub(super) number: u64,
    /// The processor time of its earlier attempts. None for a first one.
    before: Duration,
}

/// A job with a place.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) number: u64,
    begun: Instant,
    /// The processor time from which it has used more than others of its size.
    expected: Duration,
    /// The processor time of its earlier attempts.
    before: Duration,
    /// The processor time for which it keeps its place and its priority, if longer than others.
    pub(super) kept: Duration,
    /// What the last look showed.
    seen: Seen,
    /// Its process, while it takes turns, and whether it is stopped until the next one.
    process: Option<Pid>,
    pub(super) is_stopped: bool,
    /// How to end its process, once it has one.
    closer: Option<Closer>,
    pub(super) has_lost: bool,
}

/// What a look shows of a job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// The processor time of this attempt.
    pub(super) used: Duration,
    /// The threads that are ready to run.
    pub(super) busy: usize,
    /// The bytes of memory that its process holds.
    pub(super) resident: u64,
}

impl Waiting {
    fn is_first(&self) -> bool {
        self.before.is_zero()
    }
}

impl Default for Jobs {
    fn default() -> Self {
        let part = bytes_of_machine().map(|bytes| bytes / PART_OF_MACHINE);
        Self {
            most_bytes: part.unwrap_or(MOST_BYTES).min(MOST_BYTES),
            most: (MOST_THREADS / processors()).clamp(FEW, MOST),
            running: Vec::new(),
            waiting: BTreeSet::new(),
            promised: None,
            is_turn_of_first: false,
            next: 0,
        }
    }
}

impl Jobs {
    /// Has an attempt wait for a place, whose job used this much processor time before.
    pub(super) fn wait(&mut self, before: Duration) -> Waiting {
        // An attempt that used less than the quantum shows nothing.
        let before = if before < QUANTUM {
            Duration::ZERO
        } else {
            before
        };
        let own = Waiting {
            turn: Instant::now() + DELAY * before,
            number: self.next,
            before,
        };
        self.next += 1;
        self.waiting.insert(own);
        own
    }

    /// Whether an attempt that waits may begin now.
    pub(super) fn may_begin(&self, own: &Waiting) -> bool {
        match self.promised {
            Some(number) => number == own.number && !self.has_loser(),
            None => self.has_room() && self.in_order().next() == Some(own),
        }
    }

    /// Begins an attempt that waited, whose job lost `lost` in earlier ones of this load. Its file
    /// has this many bytes.
    pub(super) fn begin(&mut self, own: &Waiting, lost: Duration, bytes: usize) {
        self.leave(own);
        self.is_turn_of_first = !own.is_first();
        let kept = self.running.iter().filter(|job| !job.kept.is_zero());
        let is_kept = lost >= QUANTUM && kept.count() < KEPT;
        let kept = if is_kept { 2 * lost } else { Duration::ZERO };
        self.running.push(Job {
            number: own.number,
            begun: Instant::now(),
            expected: TIME_PER_BYTE.saturating_mul(bytes.try_into().unwrap_or(u32::MAX)),
            before: own.before,
            kept: kept.min(MOST_KEPT),
            seen: Seen::default(),
            process: None,
            is_stopped: false,
            closer: None,
            has_lost: false,
        });
    }

    /// Ends the waiting of an attempt.
    pub(super) fn leave(&mut self, own: &Waiting) {
        self.waiting.remove(own);
        self.promised = self.promised.filter(|number| *number != own.number);
    }

    /// Whether this is the attempt that looks for room, for all that wait.
    pub(super) fn looks(&self, own: &Waiting) -> bool {
        self.waiting.first() == Some(own)
    }

    pub(super) fn end(&mut self, number: u64) {
        self.running.retain(|job| job.number != number);
    }

    pub(super) fn job(&mut self, number: u64) -> Option<&mut Job> {
        self.running.iter_mut().find(|job| job.number == number)
    }

    fn has_room(&self) -> bool {
        let count = self.running.len();
        count < FEW || (count < self.most && self.resident() < self.most_bytes / 2)
    }

    fn resident(&self) -> u64 {
        self.running.iter().map(|job| job.seen.resident).sum()
    }

    /// Whether a job has lost its place, which it gives back soon. One at a time is enough.
    fn has_loser(&self) -> bool {
        self.running.iter().any(|job| job.has_lost)
    }

    /// The attempts that wait, the next one first.
    fn in_order(&self) -> impl Iterator<Item = &Waiting> {
        let mut all = self.waiting.iter();
        let first = all.find(|waiting| self.is_turn_of_first && waiting.is_first());
        first.into_iter().chain(&self.waiting)
    }

    /// Takes the place of a job that has used much, for the next attempt that may have it.
    pub(super) fn make_room(&mut self) {
        if self.promised.is_some() || self.has_loser() {
            return;
        }
        let jobs = self.running.iter().filter(|job| job.may_lose());
        let Some(job) = jobs.max_by_key(|job| (job.is_costly(), job.all())) else {
            return;
        };
        let (number, all) = (job.number, job.all());
        let next = self
            .in_order()
            .find(|waiting| all >= QUANTUM.max(2 * waiting.before))
            .map(|waiting| waiting.number);
        if next.is_some() {
            self.promised = next;
            self.job(number).into_iter().for_each(Job::lose);
        }
    }

    /// Ends a job that holds much memory, if all of them hold too much.
    pub(super) fn free_memory(&mut self) {
        if self.running.len() > FEW && self.resident() > self.most_bytes && !self.has_loser() {
            let started = self.running.iter_mut().filter(|job| job.closer.is_some());
            let largest = started.max_by_key(|job| (job.is_costly(), job.seen.resident));
            largest.into_iter().for_each(Job::lose);
        }
    }

    /// Stops the processes of some jobs, and has those of others run on. One look does both, so
    /// that the processors are never idle between two turns.
    pub(super) fn give_turns(&mut self) {
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
    /// The processor time of all attempts.
    fn all(&self) -> Duration {
        self.before + self.seen.used
    }

    fn is_costly(&self) -> bool {
        self.all() > self.expected.max(QUANTUM)
    }

    /// Whether the job's time to keep its place is over. One whose process is starting could not
    /// give it back until that has ended.
    fn may_lose(&self) -> bool {
        self.closer.is_some() && self.seen.used >= self.kept
    }

    fn seen_use(&self) -> Use {
        Use {
            number: self.number,
            all: self.all(),
            now: self.seen.used,
            is_costly: self.is_costly(),
            age: self.begun.elapsed(),
            busy: self.seen.busy,
        }
    }

    /// Notes what a look shows.
    pub(super) fn sees(&mut self, seen: Seen) {
        let busy = if self.is_stopped {
            self.seen.busy
        } else {
            // Threads wait for one another now and then.
            seen.busy.max(self.seen.busy.saturating_sub(1))
        };
        self.seen = Seen { busy, ..seen };
    }

    /// Begins to take turns with others, if the job has a process, or ends it. The process runs on
    /// if it was stopped.
    pub(super) fn set_process(&mut self, process: Option<Pid>) {
        self.continues();
        self.process = process;
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

    /// Tells how to end the job's process.
    pub(super) fn set_closer(&mut self, closer: Closer) {
        self.closer = Some(closer);
    }

    fn lose(&mut self) {
        self.has_lost = true;
        if let Some(closer) = &self.closer {
            closer.close();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::exchange::Exchange;

    const SECOND: Duration = Duration::from_secs(1);
    const MB: u64 = 1 << 20;

    /// A file that may take a minute.
    const BYTES: usize = 60_000_000;

    /// Begins a job that used this much in earlier attempts, and returns its number.
    fn begin(jobs: &mut Jobs, before: Duration) -> u64 {
        let own = jobs.wait(before);
        assert!(jobs.may_begin(&own), "{jobs:?}");
        jobs.begin(&own, Duration::ZERO, BYTES);
        let job = jobs.job(own.number).unwrap();
        job.set_closer(Exchange::new().unwrap().0.closer());
        own.number
    }

    fn sees(jobs: &mut Jobs, number: u64, used: Duration, resident: u64) {
        let busy = 0;
        jobs.job(number).unwrap().sees(Seen {
            used,
            busy,
            resident,
        });
    }

    /// Jobs without room for another one.
    fn full() -> Jobs {
        let mut jobs = Jobs::default();
        for _ in 0..jobs.most {
            begin(&mut jobs, Duration::ZERO);
        }
        jobs
    }

    /// The jobs that have lost their places.
    fn lost(jobs: &Jobs) -> Vec<u64> {
        let lost = jobs.running.iter().filter(|job| job.has_lost);
        lost.map(|job| job.number).collect()
    }

    #[test]
    fn the_job_that_used_most_gives_way_after_its_quantum() {
        let mut jobs = full();
        let first = jobs.wait(Duration::ZERO);
        for number in 0..jobs.most as u64 {
            sees(&mut jobs, number, QUANTUM - QUANTUM / 8, MB);
        }
        jobs.make_room();
        assert!(lost(&jobs).is_empty());
        sees(&mut jobs, 2, SECOND, MB);
        sees(&mut jobs, 3, Duration::ZERO, MB);
        jobs.job(3).unwrap().before = 9 * SECOND;
        jobs.make_room();
        // One attempt takes one place, when it is free.
        jobs.make_room();
        assert_eq!(lost(&jobs), [3]);
        assert!(!jobs.may_begin(&first));
        jobs.end(3);
        assert!(jobs.may_begin(&first));
    }

    #[test]
    fn an_attempt_after_others_takes_the_place_of_one_that_used_twice_as_much() {
        let mut jobs = full();
        sees(&mut jobs, 3, 18 * SECOND, MB);
        let too_early = jobs.wait(10 * SECOND);
        assert!(jobs.looks(&too_early));
        jobs.make_room();
        assert!(lost(&jobs).is_empty());
        // One that comes later does not wait for it.
        let own = Waiting {
            turn: too_early.turn + SECOND,
            ..jobs.wait(9 * SECOND)
        };
        jobs.waiting = BTreeSet::from([too_early, own]);
        jobs.make_room();
        assert_eq!(lost(&jobs), [3]);
        jobs.end(3);
        assert!(jobs.may_begin(&own));
        assert!(!jobs.may_begin(&too_early));
        // A place that is not taken is for the next one.
        jobs.leave(&own);
        assert!(jobs.may_begin(&too_early));
    }

    #[test]
    fn jobs_that_use_more_than_others_of_their_size_give_way_first() {
        let mut jobs = full();
        sees(&mut jobs, 1, 59 * SECOND, 4 * MB);
        sees(&mut jobs, 2, SECOND, 2 * MB);
        sees(&mut jobs, 3, SECOND / 2, 3 * MB);
        for number in [2, 3] {
            jobs.job(number).unwrap().expected = SECOND / 4;
        }
        let _first = jobs.wait(Duration::ZERO);
        jobs.make_room();
        assert_eq!(lost(&jobs), [2]);
        jobs.job(2).unwrap().has_lost = false;
        jobs.most_bytes = MB;
        jobs.free_memory();
        assert_eq!(lost(&jobs), [3]);
    }

    #[test]
    fn a_few_jobs_after_others_keep_their_places_for_longer() {
        let mut jobs = full();
        for number in 0..=KEPT as u64 {
            jobs.end(number);
            let own = jobs.wait(QUANTUM);
            jobs.begin(&own, QUANTUM, BYTES);
            let closer = Exchange::new().unwrap().0.closer();
            jobs.job(own.number).unwrap().set_closer(closer);
            sees(&mut jobs, own.number, QUANTUM, MB);
        }
        let most = jobs.most as u64;
        let _first = jobs.wait(Duration::ZERO);
        jobs.make_room();
        assert_eq!(lost(&jobs), [most + KEPT as u64]);
        jobs.job(most + KEPT as u64).unwrap().has_lost = false;
        jobs.promised = None;
        sees(&mut jobs, most, 2 * QUANTUM, MB);
        jobs.make_room();
        assert_eq!(lost(&jobs), [most]);
        // What other loads used does not count, and little can be lost.
        let mut jobs = Jobs::default();
        for (lost, kept) in [(Duration::ZERO, Duration::ZERO), (60 * SECOND, MOST_KEPT)] {
            let own = jobs.wait(60 * SECOND);
            jobs.begin(&own, lost, BYTES);
            assert_eq!(jobs.job(own.number).unwrap().kept, kept);
        }
    }

    #[test]
    fn every_second_place_is_for_a_first_attempt() {
        let mut jobs = full();
        let again = [jobs.wait(QUANTUM), jobs.wait(QUANTUM)];
        // However long they wait.
        let first = Waiting {
            turn: again[1].turn + SECOND,
            ..jobs.wait(Duration::ZERO)
        };
        jobs.waiting = BTreeSet::from([again[0], again[1], first]);
        jobs.end(0);
        assert!(jobs.may_begin(&again[0]));
        jobs.begin(&again[0], Duration::ZERO, BYTES);
        jobs.end(1);
        assert!(jobs.may_begin(&first));
        jobs.begin(&first, Duration::ZERO, BYTES);
        jobs.end(2);
        assert!(jobs.may_begin(&again[1]));
    }

    #[test]
    fn attempts_after_others_come_later() {
        let mut jobs = full();
        let again = jobs.wait(QUANTUM);
        let first = jobs.wait(QUANTUM / 2);
        jobs.end(0);
        assert!(jobs.may_begin(&first));
        assert!(!jobs.may_begin(&again));
    }

    #[test]
    fn memory_limits_all_but_a_few() {
        let few = FEW as u64;
        let mut jobs = Jobs {
            most_bytes: 4 * few * MB,
            ..Jobs::default()
        };
        for number in 0..few {
            begin(&mut jobs, Duration::ZERO);
            sees(&mut jobs, number, SECOND, 2 * MB);
        }
        let own = jobs.wait(Duration::ZERO);
        assert!(!jobs.may_begin(&own));
        sees(&mut jobs, 0, SECOND, MB);
        assert!(jobs.may_begin(&own));
        jobs.begin(&own, Duration::ZERO, BYTES);
        // They may grow, until all hold too much.
        sees(&mut jobs, 7, SECOND, (2 * few + 3) * MB);
        jobs.free_memory();
        assert!(lost(&jobs).is_empty());
        sees(&mut jobs, 0, SECOND, 2 * MB);
        jobs.free_memory();
        jobs.free_memory();
        assert_eq!(lost(&jobs), [7]);
        jobs.end(7);
        // Few may hold any amount.
        sees(&mut jobs, 0, SECOND, 9 * few * MB);
        jobs.free_memory();
        assert!(lost(&jobs).is_empty());
    }
}
