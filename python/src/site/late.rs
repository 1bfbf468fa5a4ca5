//! The time that stopped calls take from a run of a program.
//!
//! With `on_error="status"` a program goes on after a call that was stopped. A module that loops in
//! each of its calls would take the limit's time for each, and XLA ends the process if other shards
//! wait at a collective for a minute.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callbox::policy::Policy;
use callbox::values::Blame;
use callbox::{Status, StatusCode};

/// The most runs that a module remembers: those that were late last.
const REMEMBERED: usize = 64;

/// The runs in which calls of one module were stopped at their deadlines, or said so themselves.
#[derive(Debug)]
pub(crate) struct LateRuns {
    /// The most time that these calls of a run take together.
    limit: Option<Duration>,
    has_runs: AtomicBool,
    runs: Mutex<VecDeque<(i64, Duration)>>,
}

impl LateRuns {
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            // In deterministic mode, fuel replaces the limit of time.
            limit: policy.limits.deadline.filter(|_| !policy.deterministic),
            has_runs: AtomicBool::new(false),
            runs: Mutex::default(),
        }
    }

    /// Notes that a call of a run failed with DEADLINE_EXCEEDED after this time.
    pub(crate) fn note(&self, run: i64, time: Duration) {
        let mut runs = self.runs();
        match runs.iter_mut().find(|(known, _)| *known == run) {
            Some((_, all)) => *all = all.saturating_add(time),
            None => {
                if runs.len() >= REMEMBERED {
                    runs.pop_front();
                }
                runs.push_back((run, time));
            }
        }
        self.has_runs.store(true, Ordering::Relaxed);
    }

    /// Checks that another call of a run may begin.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED if the stopped ones took the limit's time.
    #[inline]
    pub(crate) fn check(&self, run: Option<i64>) -> callbox::Result<()> {
        match (run, self.limit) {
            (Some(run), Some(limit)) if self.has_runs.load(Ordering::Relaxed) => {
                self.check_time(run, limit)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn check_time(&self, run: i64, limit: Duration) -> callbox::Result<()> {
        let runs = self.runs();
        let time = runs.iter().find(|(known, _)| *known == run);
        match time {
            Some((_, time)) if *time >= limit => Err(Status::new(
                StatusCode::DeadlineExceeded,
                Blame::Guest,
                format!(
                    "the module's calls in this run of the program that failed with DEADLINE_EXCEEDED took {time:.1?} together, expected at most {limit:?} (`deadline_ms`)"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<(i64, Duration)>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
