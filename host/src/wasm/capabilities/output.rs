//! What a guest writes to its standard output and error: lines of its log, under the grant, the level and the limits of any log message.

use super::super::state::{GuestState, LogRecord};
use super::super::text::sanitize;
use crate::policy::LogLevel;

/// Lines that have not ended, of standard output and of standard error.
#[derive(Debug, Default)]
pub(super) struct Output {
    info: Line,
    warn: Line,
}

/// The beginning of a line.
#[derive(Debug, Default)]
struct Line {
    /// As much as would be shown.
    kept: Vec<u8>,
    /// How long it is.
    length: usize,
}

impl Output {
    fn line(&mut self, level: LogLevel) -> &mut Line {
        match level {
            LogLevel::Info => &mut self.info,
            _ => &mut self.warn,
        }
    }

    /// Takes bytes, and logs the lines that end.
    pub(super) fn write(&mut self, state: &mut GuestState, level: LogLevel, bytes: &[u8]) {
        let line = self.line(level);
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = room(state, level);
            if room == 0 {
                *line = Line::default();
                return;
            }
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let kept = room.saturating_sub(line.kept.len()).min(text.len());
            line.kept.extend_from_slice(&text[..kept]);
            line.length += text.len();
            if text.len() < part.len() {
                std::mem::take(line).log(state, level, room);
            }
        }
    }

    /// Logs what has not ended in a line's end.
    fn end(&mut self, state: &mut GuestState) {
        for level in [LogLevel::Info, LogLevel::Warn] {
            let line = std::mem::take(self.line(level));
            let room = room(state, level);
            if line.length > 0 && room > 0 {
                line.log(state, level, room);
            }
        }
    }
}

impl Line {
    fn log(self, state: &mut GuestState, level: LogLevel, room: usize) {
        let message = sanitize(&self.kept, self.length, room);
        // A line without bytes costs one, so that a flood of them ends.
        state.log_budget = state.log_budget.saturating_sub(self.length.clamp(1, room));
        if let Some(sink) = &state.shared.log {
            sink(&LogRecord {
                level,
                message: &message,
            });
        }
    }
}

/// How much of a line at this level is shown: nothing if nobody hears of it.
fn room(state: &GuestState, level: LogLevel) -> usize {
    let granted = state.grants.log.is_some_and(|least| level <= least);
    match granted && state.shared.log.is_some() {
        true => state
            .shared
            .policy
            .limits
            .message_bytes
            .min(state.log_budget),
        false => 0,
    }
}

/// A call ends, and with it the lines that it began.
#[inline]
pub(in crate::wasm) fn end_output(state: &mut GuestState) {
    if state.capabilities.is_some() {
        end(state);
    }
}

#[cold]
fn end(state: &mut GuestState) {
    if let Some(mut capabilities) = state.capabilities.take() {
        capabilities.output.end(state);
        state.capabilities = Some(capabilities);
    }
}
