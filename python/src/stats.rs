//! How many calls a host made, and how they went.

use std::sync::atomic::{AtomicU64, Ordering};

use callbox::{Status, StatusCode};

/// Counters. They only grow.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    calls: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// By the code's number.
    failures: [AtomicU64; StatusCode::ALL.len()],
}

impl Stats {
    /// Counts a call with operands and results of these sizes. What a failed call would have given is not counted.
    #[inline]
    pub(crate) fn count(&self, bytes_in: usize, bytes_out: usize, outcome: &callbox::Result<()>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes_in as u64, Ordering::Relaxed);
        match outcome {
            Ok(()) => {
                self.bytes_out
                    .fetch_add(bytes_out as u64, Ordering::Relaxed);
            }
            Err(status) => self.count_failure(status),
        }
    }

    /// Counts a failure that did not end a call.
    #[cold]
    pub(crate) fn count_failure(&self, status: &Status) {
        if let Some(count) = self.failures.get(usize::from(status.code().number())) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls, bytes that went in, bytes that came out.
    pub(crate) fn totals(&self) -> [(&'static str, u64); 3] {
        [
            ("calls", self.calls.load(Ordering::Relaxed)),
            ("bytes_in", self.bytes_in.load(Ordering::Relaxed)),
            ("bytes_out", self.bytes_out.load(Ordering::Relaxed)),
        ]
    }

    /// How many calls failed, by the code's name: those that are not 0.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = StatusCode::ALL.iter().zip(&self.failures);
        counts
            .map(|(code, count)| (code.name(), count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
    }
}
