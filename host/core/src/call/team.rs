//! Lends work to other threads for as long as a function runs.
//!
//! `std::thread::scope` and rayon's scopes wait for each job that was spawned. A job that waits
//! behind other work of a busy pool would then hold a call that has long done its work alone, or
//! hold it for ever if every thread of the pool waits in that way. Here a job that has not started
//! when the caller is done finds nothing to do, and nothing waits for it. That takes a reference
//! whose lifetime the compiler cannot check.
#![allow(
    unsafe_code,
    reason = "lends a closure to threads that outlive it, and takes it back"
)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Threads;
use super::threads::AWAKE;
use crate::locks::locked;

/// A closure that several threads may run at one time.
type Work<'a> = &'a (dyn Fn() + Sync + 'a);

/// The pauses between two looks at whether others are done: about a microsecond.
const PAUSES: usize = 32;

/// Runs `own` here and `help` on up to `helpers` other threads, if they start before `own` returns.
/// Waits for those that have started.
///
/// # Panics
/// If `own` or `help` panics.
pub(super) fn share<T>(
    threads: &dyn Threads,
    helpers: usize,
    help: Work<'_>,
    own: impl FnOnce() -> T,
) -> T {
    if helpers == 0 {
        return own();
    }
    // SAFETY: only the lifetime changes. `Loan::help` alone uses the reference, and `Loan::end`
    // makes sure that it no longer does: `end` removes the reference and waits for every thread
    // that copied it. `TakenBack` calls `end` before this function returns or unwinds, while `help`
    // is still borrowed.
    let work = unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(help) };
    let loan = Arc::new(Loan::new(work));
    let taken_back = TakenBack(&loan);
    for _ in 0..helpers {
        let loan = Arc::clone(&loan);
        threads.run(Box::new(move || loan.help()));
    }
    let outcome = own();
    drop(taken_back);
    let panic = loan.state().panic.take();
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
    outcome
}

/// A closure that is lent to other threads.
struct Loan {
    state: Mutex<State>,
    left: Condvar,
}

struct State {
    /// `None` once the loan has ended.
    work: Option<Work<'static>>,
    /// The threads that run the closure.
    working: usize,
    panic: Option<Box<dyn Any + Send>>,
}

impl Loan {
    fn new(work: Work<'static>) -> Self {
        Self {
            state: Mutex::new(State {
                work: Some(work),
                working: 0,
                panic: None,
            }),
            left: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Runs the closure, unless the loan has ended.
    fn help(&self) {
        let mut state = self.state();
        let Some(work) = state.work else {
            return;
        };
        state.working += 1;
        drop(state);
        let outcome = catch_unwind(AssertUnwindSafe(work));
        let mut state = self.state();
        state.working -= 1;
        if let Err(panic) = outcome {
            // The first panic is told. Dropping a further one could panic again.
            match &mut state.panic {
                Some(_) => std::mem::forget(panic),
                none => *none = Some(panic),
            }
        }
        self.left.notify_all();
    }

    /// Ends the loan, and waits for the threads that run the closure. They are seldom far behind.
    fn end(&self) {
        let mut state = self.state();
        state.work = None;
        let until = Instant::now() + AWAKE;
        while state.working > 0 && Instant::now() < until {
            drop(state);
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            state = self.state();
        }
        while state.working > 0 {
            let waited = self.left.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends a loan when it is dropped.
struct TakenBack<'a>(&'a Loan);

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
