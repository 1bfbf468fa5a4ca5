//! Counts the calls of a host and their outcomes.

use std::sync::atomic::{AtomicU64, Ordering};

use callbox::{Blame, Status, StatusCode};

/// Counters, which only grow.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    calls: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// By the number of the status code.
    failures: [AtomicU64; StatusCode::ALL.len()],
}

impl Stats {
    /// Counts a call. The result bytes of a failed call are not counted.
    #[inline]
    pub(crate) fn count(&self, bytes_in: usize, bytes_out: usize, outcome: &callbox::Result<()>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes_in as u64, Ordering::Relaxed);
        match outcome {
            Ok(()) => {
                self.bytes_out
                    .fetch_add(bytes_out as u64, Ordering::Relaxed);
            }
            Err(status) => self.count_failures(status, 1),
        }
    }

    /// Counts a call that failed before its target ran, unless its caller is to blame: then nothing
    /// of the guest ran.
    #[cold]
    pub(crate) fn count_unprepared(&self, failure: &Status) {
        if failure.blame() != Blame::Caller {
            self.count(0, 0, &Err(failure.clone()));
        }
    }

    /// Counts the failure of this many batch elements.
    #[cold]
    pub(crate) fn count_failures(&self, status: &Status, elements: usize) {
        if let Some(count) = self.failures.get(usize::from(status.code().number())) {
            count.fetch_add(elements as u64, Ordering::Relaxed);
        }
    }

    /// The number of calls, of operand bytes and of result bytes.
    pub(crate) fn totals(&self) -> [(&'static str, u64); 3] {
        [
            ("calls", self.calls.load(Ordering::Relaxed)),
            ("bytes_in", self.bytes_in.load(Ordering::Relaxed)),
            ("bytes_out", self.bytes_out.load(Ordering::Relaxed)),
        ]
    }

    /// The number of failures by status code, without zeros.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = StatusCode::ALL.iter().zip(&self.failures);
        counts
            .map(|(code, count)| (code.name(), count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
    }
}
