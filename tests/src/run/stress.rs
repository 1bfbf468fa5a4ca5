//! Runs a case concurrently. Threads that share an executable must not affect each other: each run
//! must reproduce the bits and the status of the first one.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::problem::{Difference, Problem};
use crate::case::{Case, Stress};
use crate::platform::{Bench, Outcome, Prepared, describe, is_same};

/// The number of threads.
pub const THREADS: usize = 4;

/// The number of runs per thread, if time allows.
pub const RUNS: usize = 25;

/// The time after which a thread starts no more runs, once it has done [`LEAST`] of them. Slow
/// cases, such as those that wait for a deadline, run less often.
const TIME: Duration = Duration::from_millis(200);

/// The least number of runs per thread.
const LEAST: usize = 2;

/// The concurrent runs of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stressed {
    /// The number of runs, of all threads together.
    pub runs: usize,
    /// Why there were no runs, or why they differed from those of other cases. Empty otherwise.
    pub reason: String,
}

/// Runs a case from several threads at once and compares each run with the first outcomes.
///
/// # Errors
/// How a run differs, or the problem that `judge` reports.
pub(super) fn run(
    case: &Case,
    bench: &dyn Bench,
    prepared: Option<&dyn Prepared>,
    first: &[Outcome],
    judge: &(dyn Fn(&[Outcome]) -> Result<(), Problem> + Sync),
) -> Result<Stressed, Problem> {
    let shared = match &case.stress {
        Stress::Shared | Stress::Judged(_) => prepared,
        Stress::Separate(_) | Stress::Skip(_) => None,
    };
    let again = || {
        let outcomes = match shared {
            Some(prepared) => steps(case, prepared),
            None => once(case, bench),
        };
        match &case.stress {
            Stress::Judged(_) => judge(&outcomes?),
            _ => compare(first, &outcomes?),
        }
    };
    let runs = match &case.stress {
        Stress::Skip(_) => 0,
        _ => in_threads(again)?,
    };
    Ok(Stressed {
        runs,
        reason: case.stress.reason().to_owned(),
    })
}

/// Prepares a case and runs its steps. A failed preparation is the outcome of the first step, and
/// the only one.
fn once(case: &Case, bench: &dyn Bench) -> Result<Vec<Outcome>> {
    match bench.prepare()? {
        Ok(prepared) => steps(case, &*prepared),
        Err(failure) => Ok(vec![Err(failure)]),
    }
}

/// Runs the steps in order.
fn steps(case: &Case, prepared: &dyn Prepared) -> Result<Vec<Outcome>> {
    case.steps.iter().map(|step| prepared.run(step)).collect()
}

/// Calls `run` from threads that start together. All stop at the first problem.
fn in_threads(run: impl Fn() -> Result<(), Problem> + Sync) -> Result<usize, Problem> {
    let barrier = Barrier::new(THREADS);
    let failed = AtomicBool::new(false);
    let work = || {
        barrier.wait();
        let begun = Instant::now();
        let mut runs = 0;
        while runs < RUNS && (runs < LEAST || begun.elapsed() < TIME) {
            if failed.load(Ordering::Relaxed) {
                break;
            }
            run().inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            runs += 1;
        }
        Ok(runs)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<usize, Problem>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(Problem::new("a thread panicked")))
        };
        let runs: Vec<Result<usize, Problem>> = threads.into_iter().map(join).collect();
        runs.into_iter().sum()
    })
}

/// Compares a run with the first one, bit by bit.
fn compare(first: &[Outcome], found: &[Outcome]) -> Result<(), Problem> {
    let place = format!("one of {THREADS} concurrent threads");
    let differing = std::iter::zip(first, found).position(|(a, b)| !is_same(a, b));
    let step = match differing {
        Some(step) => step,
        None if first.len() == found.len() => return Ok(()),
        None => {
            let (first, found) = (first.len().to_string(), found.len().to_string());
            return Problem::of(vec![Difference::new(place, first + " steps", found)]);
        }
    };
    let [first, found] = [first, found].map(|outcomes| describe(&outcomes[step]));
    Problem::of(vec![
        Difference::new(format!("step {step}, {place}"), first, found)
            .with_note("expected is what the case gave when it ran alone"),
    ])
}
