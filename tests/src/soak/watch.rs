//! Counts the outcomes of threads and samples the resources of the process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::usage::Usage;

/// The time that threads may take to end. A thread that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// The number of problems that are kept.
const PROBLEMS: usize = 20;

/// The expected ending of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A right result.
    Healthy,
    /// A right result of a target that called back.
    CalledBack,
    /// The guest's own status.
    Failed,
    /// The status of a trap.
    Trapped,
    /// Stopped at the deadline.
    Deadline,
    /// Cancelled.
    Cancelled,
    /// A hostile case with its expected statuses.
    Hostile,
    /// Another case of the conformance suite with its expected results.
    Case,
    /// An executable that was made, called and dropped.
    Executable,
    /// An engine that replaced another.
    Engine,
}

/// The outcomes and their names, in the order of [`Sample::counts`].
pub const OUTCOMES: [(Outcome, &str); 10] = [
    (Outcome::Healthy, "healthy"),
    (Outcome::CalledBack, "called back"),
    (Outcome::Failed, "failed"),
    (Outcome::Trapped, "trapped"),
    (Outcome::Deadline, "deadline"),
    (Outcome::Cancelled, "cancelled"),
    (Outcome::Hostile, "hostile cases"),
    (Outcome::Case, "healthy cases"),
    (Outcome::Executable, "executables made"),
    (Outcome::Engine, "engines made"),
];

/// A sample of a soak.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// The resources of the process. `None` where the system does not report them.
    pub usage: Option<Usage>,
    /// The number of occurrences of each outcome so far, in the order of [`OUTCOMES`].
    pub counts: [u64; OUTCOMES.len()],
}

/// The state shared by the threads and their watcher.
#[derive(Default)]
pub(super) struct Watch {
    counts: [AtomicU64; OUTCOMES.len()],
    problems: Mutex<Vec<String>>,
    ended: AtomicBool,
}

impl Watch {
    pub(super) fn count(&self, outcome: Outcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Records a problem, which soon ends the soak.
    pub(super) fn problem(&self, problem: String) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < PROBLEMS {
            problems.push(problem);
        }
        drop(problems);
        self.end();
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        problems.clone()
    }

    /// Samples until `until`, or until all threads have ended, then stops the threads and waits for
    /// them.
    pub(super) fn watch(
        self: &Arc<Self>,
        threads: Vec<JoinHandle<()>>,
        (interval, until): (Duration, Option<Duration>),
    ) -> Vec<Sample> {
        let begun = Instant::now();
        let mut samples = vec![self.sample(begun)];
        for number in 1_u32.. {
            let next = begun + interval * number;
            let is_over = |now: Instant| {
                self.has_ended()
                    || until.is_some_and(|until| now >= begun + until)
                    || threads.iter().all(JoinHandle::is_finished)
            };
            while Instant::now() < next && !is_over(Instant::now()) {
                thread::sleep(Duration::from_millis(10).min(interval));
            }
            if is_over(Instant::now()) {
                break;
            }
            samples.push(self.sample(begun));
        }
        // Activity falls while threads end, so the last sample is taken before that.
        samples.push(self.sample(begun));
        self.end();
        self.join(threads);
        samples
    }

    fn sample(&self, begun: Instant) -> Sample {
        Sample {
            at: begun.elapsed().as_secs_f64(),
            usage: Usage::now(),
            counts: std::array::from_fn(|i| self.counts[i].load(Ordering::Relaxed)),
        }
    }

    fn join(&self, threads: Vec<JoinHandle<()>>) {
        let begun = Instant::now();
        for (number, thread) in threads.into_iter().enumerate() {
            while !thread.is_finished() && begun.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(1));
            }
            match thread.is_finished().then(|| thread.join()) {
                None => self.problem(format!(
                    "expected thread {number} to end within {PATIENCE:?}, found it still running"
                )),
                Some(Err(_)) => {
                    self.problem(format!("expected no panic, found one in thread {number}"))
                }
                Some(Ok(())) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_in_order() {
        for (i, (outcome, _)) in OUTCOMES.into_iter().enumerate() {
            assert_eq!(outcome as usize, i);
        }
    }

    #[test]
    fn what_threads_do_is_counted_and_what_goes_wrong_is_told() {
        let watch = Arc::<Watch>::default();
        let worker = |work: fn(&Watch)| {
            let watch = Arc::clone(&watch);
            thread::spawn(move || work(&watch))
        };
        let threads = vec![
            worker(|watch| watch.count(Outcome::Trapped)),
            worker(|watch| {
                thread::sleep(Duration::from_millis(50));
                watch.problem("expected 1, found 2".to_owned());
            }),
            worker(|watch| {
                while !watch.has_ended() {
                    thread::sleep(Duration::from_millis(1));
                }
            }),
        ];
        let samples = watch.watch(threads, (Duration::from_millis(5), None));
        assert!(samples.len() > 2);
        assert_eq!(samples.last().unwrap().counts[Outcome::Trapped as usize], 1);
        assert_eq!(watch.problems(), ["expected 1, found 2"]);
    }

    #[test]
    fn a_panic_is_a_problem() {
        let watch = Arc::<Watch>::default();
        let threads = vec![thread::spawn(|| panic!("on purpose"))];
        watch.watch(threads, (Duration::from_millis(5), None));
        assert_eq!(
            watch.problems(),
            ["expected no panic, found one in thread 0"]
        );
    }
}
