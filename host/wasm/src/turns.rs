//! Turns of threads that read large modules.
//!
//! Modules are read in this process, at its priority. A file that takes longer than a quantum to
//! read takes turns with others of the kind: at most half of the processors read such files at any
//! time. A file that has taken less than others goes first, and none waits for ever: its turn comes
//! before those of files that begin to wait once it has waited for half of what it has taken. Small
//! modules never wait, and a large one waits little for others that take longer.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use callbox_core::call::processors;
use callbox_core::locks::locked;

use crate::fork::{self, PerProcess};
use crate::processor_time;

/// How long a file is read before others get a turn.
const QUANTUM: Duration = Duration::from_millis(20);

/// A file that has been read for longer is read for an eighth of that at a time, and for this at
/// most: it waits longer for each turn.
const LONGEST: Duration = Duration::from_millis(50);

/// The readers of this process. A forked child lacks the threads that would give turns back.
static READERS: PerProcess<Readers> = PerProcess::of_first(Readers::new());

#[derive(Debug)]
struct Readers {
    state: Mutex<State>,
    changed: Condvar,
    /// The most readers that have a turn.
    most: OnceLock<usize>,
}

#[derive(Debug)]
struct State {
    reading: usize,
    /// When the turn of each waiting reader is, and its number.
    waiting: Vec<(Instant, u64)>,
    next: u64,
}

/// The turns of one file.
#[derive(Debug)]
pub(crate) struct Turns {
    readers: &'static Readers,
    /// The beginning of the current turn.
    begun: Instant,
    /// The time of earlier turns.
    used: Duration,
    /// The thread's processor time at the beginning of the first turn.
    processor_time: Option<Duration>,
    /// Whether the current turn counts towards the limit on concurrent turns.
    is_counted: bool,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self::among(READERS.get())
    }

    fn among(readers: &'static Readers) -> Self {
        Self {
            readers,
            begun: Instant::now(),
            used: Duration::ZERO,
            processor_time: processor_time::of_this_thread(),
            is_counted: false,
        }
    }

    /// Lets others have a turn if this one has lasted for the quantum. Returns at `until` at the
    /// latest.
    pub(crate) fn look(&mut self, until: Option<Instant>) {
        let turn = self.begun.elapsed();
        let quantum = (self.used / 8).clamp(QUANTUM, LONGEST);
        if turn < quantum {
            return;
        }
        self.used += turn;
        self.end();
        self.is_counted = self.readers.take(self.used, until);
        self.begun = Instant::now();
    }

    /// The processor time of all turns. `None` if the system does not tell.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        let now = processor_time::of_this_thread()?;
        Some(now.saturating_sub(self.processor_time?))
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            self.readers.locked().reading -= 1;
            self.readers.changed.notify_all();
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.end();
    }
}

impl Default for Readers {
    fn default() -> Self {
        Self::new()
    }
}

impl Readers {
    const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                reading: 0,
                waiting: Vec::new(),
                next: 0,
            }),
            changed: Condvar::new(),
            most: OnceLock::new(),
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Waits for a turn of a file that has been read for `used`. Returns whether it got one.
    fn take(&self, used: Duration, until: Option<Instant>) -> bool {
        fork::watch();
        let most = *self.most.get_or_init(|| processors().div_ceil(2));
        let mut state = self.locked();
        let own = (Instant::now() + used / 2, state.next);
        state.next += 1;
        state.waiting.push(own);
        let has_turn = loop {
            if state.reading < most && state.waiting.iter().min() == Some(&own) {
                break true;
            }
            let Some(until) = until else {
                let waited = self.changed.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting.retain(|waiting| *waiting != own);
        state.reading += usize::from(has_turn);
        // Another reader may be the next one now.
        self.changed.notify_all();
        has_turn
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Readers of which one at a time has a turn.
    fn one_at_a_time() -> &'static Readers {
        let readers = Box::leak(Box::new(Readers::new()));
        readers.most.get_or_init(|| 1);
        readers
    }

    /// Looks at the end of a turn, after `used`.
    fn look_after(turns: &mut Turns, used: Duration, until: Option<Instant>) {
        turns.used = used;
        thread::sleep(LONGEST);
        turns.look(until);
    }

    #[test]
    fn short_turns_are_not_limited() {
        let readers = one_at_a_time();
        let mut first = Turns::among(readers);
        look_after(&mut first, Duration::ZERO, None);
        assert!(first.is_counted);
        let mut second = Turns::among(readers);
        second.begun += Duration::from_secs(60);
        second.look(None);
        assert!(!second.is_counted && second.used.is_zero());
    }

    #[test]
    fn the_turn_goes_to_the_file_that_took_least() {
        let readers = one_at_a_time();
        let mut first = Turns::among(readers);
        look_after(&mut first, Duration::ZERO, None);
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for seconds in [3, 1, 2] {
                let order = &order;
                scope.spawn(move || {
                    let mut turns = Turns::among(readers);
                    look_after(&mut turns, Duration::from_secs(seconds), None);
                    assert!(turns.is_counted);
                    order
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(seconds);
                });
            }
            while readers.locked().waiting.len() < 3 {
                thread::yield_now();
            }
            assert_eq!(readers.locked().reading, 1);
            drop(first);
        });
        let order = order.into_inner().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(order, [1, 2, 3]);
        assert_eq!(readers.locked().reading, 0);
    }

    #[test]
    fn a_wait_ends_in_time() {
        let readers = one_at_a_time();
        let mut first = Turns::among(readers);
        look_after(&mut first, Duration::ZERO, None);
        let mut second = Turns::among(readers);
        let until = Instant::now() + 3 * QUANTUM;
        look_after(&mut second, Duration::ZERO, Some(until));
        assert!(!second.is_counted && Instant::now() >= until);
        assert!(readers.locked().waiting.is_empty());
    }
}
