//! A guest's log: which messages reach the embedder, and how many bytes of them.

use std::fmt;

use callbox_core::policy::{Grants, LogLevel};

use crate::config::{LogRecord, LogSink};
use crate::shared::EngineShared;

/// The log of one instance. Each call may log the limit `log_bytes`, in messages of at most
/// `message_bytes`.
pub(crate) struct GuestLog {
    /// The sink, and the least important level that it receives. `None` without a sink or a grant.
    sink: Option<(LogLevel, LogSink)>,
    message_bytes: usize,
    call_bytes: usize,
    /// The remainder of `call_bytes` for the current call.
    left: usize,
}

impl GuestLog {
    pub(crate) fn new(shared: &EngineShared, grants: &Grants) -> Self {
        Self {
            sink: grants.log.zip(shared.log.clone()),
            message_bytes: shared.policy.limits.message_bytes,
            call_bytes: shared.policy.limits.log_bytes,
            left: 0,
        }
    }

    /// Resets the share for the next call.
    #[inline]
    pub(crate) fn refill(&mut self) {
        self.left = self.call_bytes;
    }

    /// The longest message of this level that the sink would receive now: 0 discards it.
    pub(crate) fn room(&self, level: LogLevel) -> usize {
        match &self.sink {
            Some((least, _)) if level <= *least => self.message_bytes.min(self.left),
            _ => 0,
        }
    }

    /// Sends a message to the sink, and takes `length`, the length of the guest's own text, from
    /// the call's share.
    pub(crate) fn send(&mut self, level: LogLevel, message: &str, length: usize) {
        let room = self.room(level);
        if let Some((_, sink)) = &self.sink
            && room > 0
        {
            // An empty message costs a byte, so that a flood of them ends.
            self.left -= length.clamp(1, room);
            sink(&LogRecord { level, message });
        }
    }
}

impl fmt::Debug for GuestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.sink.as_ref().map(|(least, _)| least);
        f.debug_struct("GuestLog")
            .field("level", &level)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
