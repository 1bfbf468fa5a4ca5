//! The modules that are compiled or wait for it, in order.
//!
//! Those that wait come in order, where one after earlier attempts comes later by several times the
//! processor time that those used, and at most every second place goes to such a one while others
//! wait. [`room`] says how many places there are, and whose is taken. A job that lost its place
//! begins anew. A few such jobs keep their places until they have used twice as much as they lost:
//! otherwise a stream of small modules would keep a larger one from ever being compiled.

mod job;
mod room;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use callbox_core::call::processors;
use rustix::process::Signal;

pub(super) use self::job::{Job, Seen};
use super::turns;

/// The processor time for which a job keeps its place although others wait: several times what a
/// healthy module takes.
pub(super) const QUANTUM: Duration = Duration::from_millis(125);

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

impl Waiting {
    fn is_first(&self) -> bool {
        self.candidate.before.is_zero()
    }
}

impl Default for Jobs {
    fn default() -> Self {
        let (most, most_bytes) = room::limits();
        Self {
            most_bytes,
            most,
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
        let lost = own.candidate.lost;
        let is_kept = lost >= QUANTUM && kept.count() < KEPT;
        let kept = if is_kept { 2 * lost } else { Duration::ZERO };
        self.running.push(Job::begin(own, kept.min(MOST_KEPT)));
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

    /// The attempts that wait, the next one first.
    fn in_order(&self) -> impl Iterator<Item = &Waiting> {
        let mut all = self.waiting.iter();
        let first = all.find(|waiting| self.is_turn_of_first && waiting.is_first());
        first.into_iter().chain(&self.waiting)
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

#[cfg(test)]
mod tests;
