//! Counts what threads do, and watches what the process has meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::usage::Usage;

/// How long threads may take to end when they are told to. One that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// How many problems are kept: the first ones say it.
const PROBLEMS: usize = 20;

/// How something that a thread did ended, as it had to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With the right result.
    Healthy,
    /// With the right result, of a target that called back.
    CalledBack,
    /// With the guest's own status.
    Failed,
    /// With the status of a trap.
    Trapped,
    /// Stopped at its deadline.
    Deadline,
    /// Cancelled.
    Cancelled,
    /// A hostile case, with the statuses that it names.
    Hostile,
    /// Another case of the conformance suite, with the results that it names.
    Case,
    /// An executable that was made, called and dropped.
    Executable,
    /// An engine that was made in place of another.
    Engine,
}

/// The outcomes in the order of [`Sample::counts`], with their names.
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

/// A moment of a soak.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Seconds since the beginning.
    pub at: f64,
    /// What the process has. `None` where the system does not tell.
    pub usage: Option<Usage>,
    /// How often each outcome has been, in the order of [`OUTCOMES`].
    pub counts: [u64; OUTCOMES.len()],
}

/// What threads and the one that watches them share.
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

    /// Notes that something is wrong. Nothing goes on for long after.
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

    /// Samples until `until`, if there is such a time, or all threads have ended; then ends the threads, and waits for them.
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
        // While threads end there is less and less going on: the last sample is from before.
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
