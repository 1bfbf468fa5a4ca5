//! How many modules are compiled at one time, and which of them give way to others.
//!
//! As [`turns`](crate::compiler::turns) keep all but a few from running, it is memory that limits
//! how many there may be: some are compiled in any case, more while all of them hold little, and
//! small ones until they, or all, hold much. If one too many grows, one of those that hold most
//! ends: one that lost least in attempts before.
//!
//! If there is no room, one that waits takes the place of the job that has used most or, where they
//! hold too much memory, holds most, once that has used the quantum, and used or holds twice as
//! much as the one that waits did. Time on the clock would not do: on a busy machine, a module that
//! takes little would lose its place as one does that takes long. But where memory is short, an
//! attempt whose turn has come takes the place in any case: among many that hold about as much,
//! none may ever hold twice as much. There memory is taken from one job after the other, with time
//! in between for twice the work that was lost, or for a few seconds of it: a stream of modules
//! would keep all larger ones from ever being compiled.
//!
//! Jobs that have used more than modules of their size do give way before others: what a module
//! will take is unknown, but few take that much, and most of those are bombs.

use std::time::{Duration, Instant};

use callbox_core::call::processors;

use super::{Candidate, Job, Jobs, QUANTUM, Waiting};
use crate::compiler::memory::bytes_of_machine;

/// How many modules are compiled at one time however much memory they hold.
pub(super) const FEW: usize = 16;

/// The most that are, with this many threads in all: containers often allow no more than 1,000.
const MOST: usize = 64;
const MOST_THREADS: usize = 512;

/// The most bytes of memory that more than a few jobs hold, and the part of the machine's memory,
/// one in this many.
const MOST_BYTES: u64 = 8 << 30;
const PART_OF_MACHINE: u64 = 3;

/// The most bytes of a file, and of its code, that take little memory to compile: some 50 MB. Few
/// take more than this.
const SMALL: usize = 1 << 20;
const SMALL_CODE: usize = 64 << 10;
const SMALL_MEMORY: u64 = 128 << 20;

/// The part of the memory that those may hold which began out of order for being small, one in this
/// many.
const PART_OF_SMALL: u64 = 8;

/// Where memory is short, the work between two jobs that lose their places, in parts of what the
/// first one lost, of which no more than this counts.
const WORK_FOR_LOST: u32 = 2;
const MOST_LOST: Duration = Duration::from_secs(2);

/// The most jobs at one time, and the most bytes of memory that more than a few hold.
pub(super) fn limits() -> (usize, u64) {
    let part = bytes_of_machine().map(|bytes| bytes / PART_OF_MACHINE);
    (
        (MOST_THREADS / processors()).clamp(FEW, MOST),
        part.unwrap_or(MOST_BYTES).min(MOST_BYTES),
    )
}

impl Candidate {
    /// Whether it takes little memory.
    pub(super) fn is_small(&self) -> bool {
        self.file_bytes <= SMALL && self.code_bytes <= SMALL_CODE && self.held <= SMALL_MEMORY
    }
}

impl Jobs {
    /// Whether there is room for one that waits.
    pub(in crate::compiler) fn has_room_for_some(&self) -> bool {
        let mut candidates = self.waiting.iter().map(|waiting| &waiting.candidate);
        self.has_room() || self.has_room_for_small() && candidates.any(Candidate::is_small)
    }

    pub(super) fn has_room(&self) -> bool {
        let count = self.running.len();
        count < FEW || (count < self.most && self.resident() < self.most_bytes / 2)
    }

    /// Whether there is room for a module that takes little memory.
    pub(super) fn has_room_for_small(&self) -> bool {
        let small = self.running.iter().filter(|job| job.is_small);
        let held: u64 = small.map(|job| job.seen.resident).sum();
        self.running.len() < self.most
            && held < self.most_bytes / PART_OF_SMALL
            && self.resident() < self.most_bytes
    }

    fn resident(&self) -> u64 {
        self.running.iter().map(|job| job.seen.resident).sum()
    }

    /// Whether a job has lost its place, which it gives back soon. One at a time is enough.
    pub(super) fn has_loser(&self) -> bool {
        self.running.iter().any(|job| job.has_lost)
    }

    /// Takes the place of a job for the next attempt that may have it.
    pub(in crate::compiler) fn make_room(&mut self) {
        if self.promised.is_some() || self.has_loser() {
            return;
        }
        let found = self.in_order().find_map(|waiting| {
            let loser = self.gives_way_to(waiting)?;
            // What takes more than others is no loss.
            let is_loss = !loser.is_costly();
            let lost = loser.seen.used.min(MOST_LOST);
            Some((waiting.number, loser.number, lost * u32::from(is_loss)))
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
    pub(in crate::compiler) fn free_memory(&mut self) {
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
}
