//! How long a call is held up before its guest's code runs.

use std::time::{Duration, Instant};

use crate::processor_time;

/// Measures the making of an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making {
    /// When the call began, which may have waited for room for the instance.
    call_begun: Instant,
    begun: Instant,
    /// The thread's processor time then. `None` if the system does not tell.
    used: Option<Duration>,
}

impl Making {
    /// Begins. `call_begun` is given for a call that has waited.
    pub(crate) fn begin(call_begun: Option<Instant>) -> Self {
        let begun = Instant::now();
        Self {
            call_begun: call_begun.unwrap_or(begun),
            begun,
            used: processor_time::of_this_thread(),
        }
    }

    /// What has held up the call until now.
    pub(crate) fn held_up(&self) -> HeldUp {
        let used = self.used.zip(processor_time::of_this_thread());
        let used = match used {
            Some((before, now)) => now.saturating_sub(before),
            None => self.begun.elapsed(),
        };
        HeldUp {
            call_begun: self.call_begun,
            time: self.call_begun.elapsed().saturating_sub(used),
        }
    }
}

/// The time in which a call's thread did not run before the guest's code did: it waited for room,
/// or for the operating system, or other work took the processors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldUp {
    call_begun: Instant,
    pub(crate) time: Duration,
}

impl HeldUp {
    /// Whether this, rather than the guest, is why a call of the time limit `whole` is late now.
    pub(crate) fn is_to_blame(self, whole: Option<Duration>) -> bool {
        is_to_blame(self.time, self.call_begun.elapsed(), whole)
    }
}

/// Whether a call is late because it was held up: its guest had less time, and less than the limit.
fn is_to_blame(held_up: Duration, all: Duration, whole: Option<Duration>) -> bool {
    let own = all.saturating_sub(held_up);
    own < held_up && whole.is_none_or(|whole| own < whole)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_guest_that_had_most_of_the_time_is_to_blame() {
        let late = |held_up, all| is_to_blame(SECOND * held_up, SECOND * all, Some(SECOND * 10));
        assert!(!late(0, 10));
        assert!(!late(5, 10));
        assert!(late(6, 10));
        assert!(late(10, 10));
        // It had more than its limit, too.
        assert!(late(15, 24));
        assert!(!late(15, 25));
        assert!(is_to_blame(SECOND * 15, SECOND * 25, None));
    }

    #[test]
    fn a_thread_that_waits_is_held_up() {
        let making = Making::begin(Instant::now().checked_sub(SECOND));
        thread::sleep(SECOND / 10);
        let held_up = making.held_up();
        assert!(held_up.time > SECOND, "{held_up:?}");
        assert!(held_up.is_to_blame(None));
    }
}
