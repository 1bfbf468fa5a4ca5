//! The runs of programs that an interrupt cancels.
//!
//! In a program of many short calls no call lasts until the watching thread looks. XLA numbers the
//! runs of programs: after an interrupt, all calls of a run that had made a call before it are
//! cancelled, on whichever threads they are.

use std::sync::{Mutex, MutexGuard};

use super::{CALLERS, lock};

/// The number of runs that a thread remembers. Programs that run at the same time share threads.
const REMEMBERED: usize = 4;

/// The runs that made calls on a thread last.
#[derive(Default)]
pub(super) struct Runs {
    last: [Option<Run>; REMEMBERED],
    next: usize,
}

/// A run that made its first call on a thread after `seen` interrupts.
#[derive(Clone, Copy)]
struct Run {
    number: i64,
    seen: u64,
}

impl Runs {
    /// Remembers a call of a run, in place of the run that is remembered longest.
    pub(super) fn note(&mut self, number: i64, seen: u64) {
        if self.last.iter().flatten().any(|run| run.number == number) {
            return;
        }
        if let Some(place) = self.last.get_mut(self.next % REMEMBERED) {
            *place = Some(Run { number, seen });
        }
        self.next = self.next.wrapping_add(1);
    }
}

/// The runs that the last interrupt cancels.
struct Interrupted {
    count: u64,
    runs: Vec<i64>,
}

static INTERRUPTED: Mutex<Interrupted> = Mutex::new(Interrupted {
    count: 0,
    runs: Vec::new(),
});

/// Whether one of the first `count` interrupts came after the run's first call.
pub(super) fn is_interrupted(run: i64, count: u64) -> bool {
    count > 0 && noted(count).runs.contains(&run)
}

/// Finds the runs that the interrupt with this number cancels, unless that is done.
pub(super) fn note_interrupt(count: u64) {
    drop(noted(count));
}

fn noted(count: u64) -> MutexGuard<'static, Interrupted> {
    let mut interrupted = lock(&INTERRUPTED);
    if interrupted.count < count {
        interrupted.count = count;
        interrupted.runs.clear();
        for caller in lock(&CALLERS).iter() {
            let runs = lock(&caller.runs);
            let before = runs.last.iter().flatten().filter(|run| run.seen < count);
            interrupted.runs.extend(before.map(|run| run.number));
        }
    }
    interrupted
}
