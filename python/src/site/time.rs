//! The time of a call, of which preparing its call site is a part.

use std::time::{Duration, Instant};

use callbox::{CallOptions, Deadline};

/// The options of a call that has begun.
pub(crate) struct CallTime {
    options: CallOptions,
    /// The same, with the deadline as an instant.
    within: CallOptions,
}

impl CallTime {
    /// Begins the time of a call.
    pub(crate) fn begin(options: CallOptions) -> Self {
        Self {
            within: options.from_now_on(),
            options,
        }
    }

    /// The options for a part of the call.
    pub(crate) fn within(&self) -> &CallOptions {
        &self.within
    }

    /// The options for the rest of the call. Its messages name the whole time if less than a tick
    /// has passed.
    pub(crate) fn rest(self) -> CallOptions {
        const TICK: Duration = Duration::from_millis(1);
        let end = self.within.deadline.map(Deadline::instant);
        match (self.options.deadline, end) {
            (Some(Deadline::After(whole)), Some(end)) if left(end) + TICK < whole => self.within,
            _ => self.options,
        }
    }
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}
