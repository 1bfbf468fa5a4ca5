//! The modules that are compiled or wait for it, and which of them give way to others.
//!
//! As [`turns`] keep all but a few from running, it is memory that limits how many there may be:
//! some are compiled in any case, more while all of them hold little, and small ones until they
//! hold much. If one too many grows, one of those that hold most ends: one that lost least in
//! attempts before.
//!
//! Those that wait come in order, where one after earlier attempts comes later by several times the
//! processor time that those used, and at most every second place goes to such a one while others
//! wait. If there is no room, one takes the place of the job that has used most or, where they hold
//! too much memory, holds most, once that has used the quantum, and used or holds twice as much as
//! the one that waits did. Time on the clock would not do: on a busy machine, a module that takes
//! little would lose its place as one does that takes long. But where memory is short, an attempt
//! whose turn has come takes the place in any case: among many that hold about as much, none may
//! ever hold twice as much. There memory is taken from one job after the other, with time in
//! between for twice the work that was lost: a stream of modules would keep all larger ones from
//! ever being compiled. A job that lost its place begins anew. A few such jobs keep their
//! places until they have used twice as much as they lost: otherwise a stream of small modules
//! would keep a larger one from ever being compiled.
//!
//! Jobs that have used more than modules of their size do give way before others: what a module
//! will take is unknown, but few take that much, and most of those are bombs.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use callbox_core::call::processors;
use rustix::process::Signal;

use super::memory::bytes_of_machine;
use super::turns::{self, Use};
use crate::exchange::Closer;
use crate::spawner::Handle;

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

/// The processor time for each byte of code that is much. With explicit traps, the guests of this
/// repository took 3.1 to 5.1 µs in November 2026, and functions of indirect calls alone 13.5.
const TIME_PER_BYTE: Duration = Duration::from_micros(20);

/// The most bytes of a file, and of its code, that take little memory to compile: some 50 MB.
const SMALL: usize = 1 << 20;
const SMALL_CODE: usize = 64 << 10;

/// Where memory is short, the work between two jobs that lose their places, in parts of what the
/// first one lost.
const WORK_FOR_LOST: u32 = 2;

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
    /// When the next job may lose its place for memory.
    next_loss: Option<Instant>,
    /// Whether the next place goes to a first attempt, if one waits: an attempt after others had
    /// the last one.
    is_turn_of_first: bool,
    next: u64,
}

/// A module to be compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// The bytes of its file, and of its code.
    pub(super) file_bytes: usize,
    pub(super) code_bytes: usize,
    /// The processor time of earlier attempts, and that of those that lost their places in this
    /// load.
    pub(super) before: Duration,
    pub(super) lost: Duration,
    /// The bytes of memory that the last of those held.
    pub(super) held: u64,
}

/// An attempt that waits. The first one in order is the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    turn: Instant,
    pub(super) number: u64,
    candidate: Candidate,
}

/// A job with a place.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) number: u64,
    begun: Instant,
    /// The processor time from which an attempt has used more than others of its size: twice what
    /// those take.
    expected: Duration,
    /// The processor time of its earlier attempts, and that of those that lost their places.
    before: Duration,
    lost: Duration,
    /// The processor time for which it keeps its place and its priority, if longer than others.
    pub(super) kept: Duration,
    /// What the last look showed.
    pub(super) seen: Seen,
    /// Its process, while it takes turns, and whether it is stopped until the next one.
    process: Option<Handle>,
    pub(super) is_stopped: bool,
    /// Whether it has not run since the look before, although it may.
    is_still: bool,
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

impl Candidate {
    /// Whether it takes little memory.
    fn is_small(&self) -> bool {
        self.file_bytes <= SMALL && self.code_bytes <= SMALL_CODE
    }
}

impl Waiting {
    fn is_first(&self) -> bool {
        self.candidate.before.is_zero()
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
            next_loss: None,
            is_turn_of_first: false,
            next: 0,
        }
    }
}

impl Jobs {
    /// Has an attempt wait for a place.
    pub(super) fn wait(&mut self, mut candidate: Candidate) -> Waiting {
        // An attempt that used less than the quantum shows nothing.
        if candidate.before < QUANTUM {
            candidate.before = Duration::ZERO;
        }
        let own = Waiting {
            turn: Instant::now() + DELAY * candidate.before,
            number: self.next,
            candidate,
        };
        self.next += 1;
        self.waiting.insert(own);
        own
    }

    /// Whether an attempt that waits may begin now.
    pub(super) fn may_begin(&self, own: &Waiting) -> bool {
        if own.candidate.is_small() && self.has_room_for_small() {
            return true;
        }
        match self.promised {
            Some(number) => number == own.number && !self.has_loser(),
            None => self.has_room() && self.in_order().next() == Some(own),
        }
    }

    /// Begins an attempt that waited.
    pub(super) fn begin(&mut self, own: &Waiting) {
        self.leave(own);
        self.is_turn_of_first = !own.is_first();
        let kept = self.running.iter().filter(|job| job.seen.used < job.kept);
        let Candidate {
            code_bytes,
            before,
            lost,
            ..
        } = own.candidate;
        let is_kept = lost >= QUANTUM && kept.count() < KEPT;
        let kept = if is_kept { 2 * lost } else { Duration::ZERO };
        self.running.push(Job {
            number: own.number,
            begun: Instant::now(),
            expected: TIME_PER_BYTE.saturating_mul(code_bytes.try_into().unwrap_or(u32::MAX)),
            before,
            lost,
            kept: kept.min(MOST_KEPT),
            seen: Seen::default(),
            process: None,
            is_stopped: false,
            is_still: false,
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

    /// Whether there is room for one that waits.
    pub(super) fn has_room_for_some(&self) -> bool {
        let mut candidates = self.waiting.iter().map(|waiting| &waiting.candidate);
        self.has_room() || self.has_room_for_small() && candidates.any(Candidate::is_small)
    }

    fn has_room(&self) -> bool {
        let count = self.running.len();
        count < FEW || (count < self.most && self.resident() < self.most_bytes / 2)
    }

    /// Whether there is room for a module that takes little memory.
    fn has_room_for_small(&self) -> bool {
        self.running.len() < self.most && self.resident() < self.most_bytes
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

    /// Takes the place of a job for the next attempt that may have it.
    pub(super) fn make_room(&mut self) {
        if self.promised.is_some() || self.has_loser() {
            return;
        }
        let found = self.in_order().find_map(|waiting| {
            let loser = self.gives_way_to(waiting)?;
            Some((waiting.number, loser.number, loser.seen.used))
        });
        if let Some((next, loser, lost)) = found {
            let processors = u32::try_from(processors()).unwrap_or(1);
            self.next_loss = Instant::now().checked_add(WORK_FOR_LOST * lost / processors);
            self.promised = Some(next);
            self.job(loser).into_iter().for_each(Job::lose);
        }
    }

    /// The job that gives way to an attempt: by what it used if there are too many, and otherwise
    /// by what it holds.
    fn gives_way_to(&self, waiting: &Waiting) -> Option<&Job> {
        let candidate = &waiting.candidate;
        let jobs = self.running.iter();
        let jobs = jobs.filter(|job| job.may_lose() && job.all() >= QUANTUM);
        if self.running.len() >= self.most {
            let over = jobs.filter(|job| job.all() >= 2 * candidate.before);
            over.max_by_key(|job| (job.is_costly(), job.all()))
        } else if self.next_loss.is_some_and(|at| Instant::now() < at) {
            None
        } else {
            // The largest module of all finds no larger one.
            let is_due = Instant::now() >= waiting.turn;
            let over = jobs.filter(|job| self.is_large(job)).filter(|job| {
                is_due && job.seen.used >= QUANTUM
                    || job.seen.resident >= 2 * candidate.held
                    || job.all() >= 2 * candidate.before
            });
            over.max_by_key(|job| job.for_memory())
        }
    }

    /// Ends a job that holds much memory, if all of them hold too much.
    pub(super) fn free_memory(&mut self) {
        let count = self.running.len();
        if count > FEW && self.resident() > self.most_bytes && !self.has_loser() {
            let large = self.running.iter().filter(|job| self.is_large(job));
            let started = large.filter(|job| job.closer.is_some());
            let loser = started.max_by_key(|job| job.for_memory());
            let loser = loser.map(|job| job.number);
            let loser = loser.and_then(|number| self.job(number));
            loser.into_iter().for_each(Job::lose);
        }
    }

    /// Whether a job holds as much memory as others do. The end of a small one would free little.
    fn is_large(&self, job: &Job) -> bool {
        let mean = self.resident() / self.running.len().max(1) as u64;
        job.seen.resident >= mean
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
        // Something else may have stopped one, which would keep its turn from those that wait.
        let still = runs.iter().filter(|job| job.is_still && !waits.is_empty());
        still.for_each(|job| _ = job.signal(Signal::CONT));
        runs.into_iter().for_each(Job::continues);
        waits.into_iter().for_each(Job::stops);
    }
}

impl Job {
    /// The processor time of all attempts.
    fn all(&self) -> Duration {
        self.before + self.seen.used
    }

    /// Whether this attempt has used more than others of its size. What earlier ones used may be
    /// because they gave way.
    fn is_costly(&self) -> bool {
        self.seen.used > self.expected.max(QUANTUM)
    }

    /// The order in which jobs end where memory is short, the first one last: attempts after others
    /// that lost their places would lose each.
    fn for_memory(&self) -> (bool, Reverse<Duration>, u64) {
        (self.is_costly(), Reverse(self.lost), self.seen.resident)
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
            usual: self.expected / 2,
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
        self.is_still = !self.is_stopped && seen.busy > 0 && seen.used == self.seen.used;
        self.seen = Seen { busy, ..seen };
    }

    /// Begins to take turns with others, if the job has a process, or ends it. The process runs on
    /// if it was stopped.
    pub(super) fn set_process(&mut self, process: Option<Handle>) {
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

    /// Sends a signal to the process, and returns whether it was sent.
    fn signal(&self, signal: Signal) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.signal(signal))
    }

    /// Tells how to end the job's process.
    pub(super) fn set_closer(&mut self, closer: Closer) {
        self.closer = Some(closer);
    }

    /// Forgets how to end the job's process, and returns whether that was not done.
    pub(super) fn release(&mut self) -> bool {
        self.closer = None;
        !self.has_lost
    }

    fn lose(&mut self) {
        self.has_lost = true;
        if let Some(closer) = &self.closer {
            closer.close();
        }
    }
}

#[cfg(test)]
mod tests;
