//! A module that is being compiled: what its process has used, and whether it has its turn.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{QUANTUM, Waiting};
use crate::compiler::turns::Use;
use crate::exchange::Closer;
use crate::spawner::Handle;

/// The processor time for each byte of code that is much. With explicit traps, the guests of this
/// repository took 3.1 to 5.1 µs in November 2026, and functions of indirect calls alone 13.5.
const TIME_PER_BYTE: Duration = Duration::from_micros(20);

/// A job with a place.
#[derive(Debug)]
pub(in crate::compiler) struct Job {
    pub(in crate::compiler) number: u64,
    begun: Instant,
    /// The processor time from which an attempt has used more than others of its size: twice what
    /// those take.
    pub(super) expected: Duration,
    /// The processor time of its earlier attempts, and that of those that lost their places.
    pub(super) before: Duration,
    lost: Duration,
    /// Whether its module takes little memory by its size.
    pub(super) is_small: bool,
    /// The processor time for which it keeps its place and its priority, if longer than others.
    pub(in crate::compiler) kept: Duration,
    /// What the last look showed.
    pub(in crate::compiler) seen: Seen,
    /// Its process, while it takes turns, and whether it is stopped until the next one.
    pub(super) process: Option<Handle>,
    pub(in crate::compiler) is_stopped: bool,
    /// Whether it has not run since the look before, although it may.
    pub(super) is_still: bool,
    /// How to end its process, once it has one.
    pub(super) closer: Option<Closer>,
    pub(in crate::compiler) has_lost: bool,
}

/// What a look shows of a job.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::compiler) struct Seen {
    /// The processor time of this attempt.
    pub(in crate::compiler) used: Duration,
    /// The threads that are ready to run.
    pub(in crate::compiler) busy: usize,
    /// The bytes of memory that its process holds.
    pub(in crate::compiler) resident: u64,
}

impl Job {
    /// The job of an attempt that begins, which keeps its place for `kept` at least.
    pub(super) fn begin(own: &Waiting, kept: Duration) -> Self {
        let candidate = &own.candidate;
        let code_bytes = u32::try_from(candidate.code_bytes).unwrap_or(u32::MAX);
        Self {
            number: own.number,
            begun: Instant::now(),
            expected: TIME_PER_BYTE.saturating_mul(code_bytes),
            before: candidate.before,
            lost: candidate.lost,
            is_small: candidate.is_small(),
            kept,
            seen: Seen::default(),
            process: None,
            is_stopped: false,
            is_still: false,
            closer: None,
            has_lost: false,
        }
    }

    /// The processor time of all attempts.
    pub(super) fn all(&self) -> Duration {
        self.before + self.seen.used
    }

    /// Whether this attempt has used more than others of its size. What earlier ones used may be
    /// because they gave way.
    pub(super) fn is_costly(&self) -> bool {
        self.seen.used > self.expected.max(QUANTUM)
    }

    /// The order in which jobs end where memory is short, the first one last: attempts after others
    /// that lost their places would lose each.
    pub(super) fn for_memory(&self) -> (bool, Reverse<Duration>, u64) {
        (self.is_costly(), Reverse(self.lost), self.seen.resident)
    }

    /// Whether the job's time to keep its place is over. One whose process is starting could not
    /// give it back until that has ended.
    pub(super) fn may_lose(&self) -> bool {
        self.closer.is_some() && self.seen.used >= self.kept
    }

    pub(super) fn seen_use(&self) -> Use {
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
    pub(in crate::compiler) fn sees(&mut self, seen: Seen) {
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
    pub(in crate::compiler) fn set_process(&mut self, process: Option<Handle>) {
        self.continues();
        self.process = process;
    }

    pub(super) fn stops(&mut self) {
        if !self.is_stopped {
            self.is_stopped = self.signal(Signal::STOP);
        }
    }

    pub(super) fn continues(&mut self) {
        if self.is_stopped {
            self.signal(Signal::CONT);
            self.is_stopped = false;
        }
    }

    /// Sends a signal to the process, and returns whether it was sent.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.signal(signal))
    }

    /// Tells how to end the job's process.
    pub(in crate::compiler) fn set_closer(&mut self, closer: Closer) {
        self.closer = Some(closer);
    }

    /// Forgets how to end the job's process, and returns whether that was not done.
    pub(in crate::compiler) fn release(&mut self) -> bool {
        self.closer = None;
        !self.has_lost
    }

    pub(super) fn lose(&mut self) {
        self.has_lost = true;
        if let Some(closer) = &self.closer {
            closer.close();
        }
    }
}
