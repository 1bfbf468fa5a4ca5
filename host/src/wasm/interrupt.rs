//! What stops a guest: its deadline and its caller.

use std::fmt;
use std::time::{Duration, Instant};

use super::ticker::TICK;
use crate::call::{CallOptions, CancelToken, Deadline};

/// Why a guest was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupted {
    /// Its deadline passed.
    Deadline,
    /// Its caller cancelled it.
    Cancelled,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "the deadline passed",
            Self::Cancelled => "the call was cancelled",
        })
    }
}

impl std::error::Error for Interrupted {}

/// When a call is stopped. It is looked at once for each tick that the call takes, so a call shorter than a tick reads no clock.
#[derive(Debug, Default)]
pub(super) struct Interrupt {
    deadline: Option<Deadline>,
    /// The deadline is the limits', which each call has to itself.
    is_limit: bool,
    started: Option<Instant>,
    cancel: Option<CancelToken>,
}

impl Interrupt {
    /// What the caller asked for, or the limit for a caller that set no deadline.
    pub(super) fn new(options: &CallOptions, limit: Option<Duration>) -> Self {
        Self {
            deadline: options.deadline.or(limit.map(Deadline::After)),
            is_limit: options.deadline.is_none(),
            started: None,
            cancel: options.cancel.clone(),
        }
    }

    /// Another call of the same execution: a deadline that is the limits' begins anew, one that the caller set does not.
    #[inline]
    pub(super) fn begin_next_call(&mut self) {
        if self.is_limit {
            self.started = None;
        }
    }

    /// What cancels the call, for [`Interrupt::give_token`].
    pub(super) fn take_token(&mut self) -> Option<CancelToken> {
        self.cancel.take()
    }

    /// This cancels the call.
    pub(super) fn give_token(&mut self, cancel: Option<CancelToken>) {
        self.cancel = cancel;
    }

    /// Nobody waits for the call any more.
    pub(super) fn forget_token(&mut self) {
        self.cancel = None;
    }

    /// The deadline as an instant, counted from now if nothing ran for a tick yet.
    pub(super) fn instant(&mut self) -> Option<Instant> {
        match self.deadline? {
            Deadline::At(instant) => Some(instant),
            Deadline::After(duration) => {
                let started = *self.started.get_or_insert_with(Instant::now);
                started.checked_add(duration)
            }
        }
    }

    /// Whether to stop before the guest runs at all.
    pub(super) fn check_before(&self) -> Result<(), Interrupted> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(Interrupted::Cancelled);
        }
        match self.deadline {
            Some(Deadline::At(instant)) if Instant::now() >= instant => Err(Interrupted::Deadline),
            Some(Deadline::After(Duration::ZERO)) => Err(Interrupted::Deadline),
            _ => Ok(()),
        }
    }

    /// Whether to stop, at a tick.
    pub(super) fn tick(&mut self) -> Result<(), Interrupted> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(Interrupted::Cancelled);
        }
        let now = Instant::now();
        let over = match self.deadline {
            None => false,
            Some(Deadline::At(instant)) => now >= instant,
            Some(Deadline::After(duration)) => {
                let started = *self
                    .started
                    .get_or_insert(now.checked_sub(TICK).unwrap_or(now));
                now.duration_since(started) >= duration
            }
        };
        match over {
            true => Err(Interrupted::Deadline),
            false => Ok(()),
        }
    }

    /// The deadline, for a message.
    pub(super) fn describe_deadline(&self) -> String {
        match self.deadline {
            Some(Deadline::After(duration)) => format!("its deadline of {duration:?}"),
            _ => "its deadline".to_owned(),
        }
    }
}
