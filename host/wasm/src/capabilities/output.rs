//! A guest's standard output and error: lines of its log, under the log's grant and limits.

use callbox_core::policy::LogLevel;
use callbox_core::untrusted_text::sanitize;

use crate::log::GuestLog;

/// The unfinished lines of standard output and standard error.
#[derive(Debug, Default)]
pub(super) struct Output {
    info: Line,
    warn: Line,
}

/// An unfinished line.
#[derive(Debug, Default)]
struct Line {
    /// The beginning of the line, as much of it as the log would show.
    kept: Vec<u8>,
    /// The length of the whole line.
    length: usize,
}

impl Output {
    fn line(&mut self, level: LogLevel) -> &mut Line {
        match level {
            LogLevel::Info => &mut self.info,
            _ => &mut self.warn,
        }
    }

    /// Takes bytes, and logs the lines that they finish. `check` says whether the call goes on: a
    /// sink may take its time for each line.
    ///
    /// # Errors
    /// The error of `check`.
    pub(super) fn write<E>(
        &mut self,
        log: &mut GuestLog,
        level: LogLevel,
        bytes: &[u8],
        check: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let line = self.line(level);
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = log.room(level);
            if room == 0 {
                *line = Line::default();
                return Ok(());
            }
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let kept = room.saturating_sub(line.kept.len()).min(text.len());
            line.kept.extend_from_slice(&text[..kept]);
            line.length += text.len();
            if text.len() < part.len() {
                check()?;
                std::mem::take(line).log(log, level);
            }
        }
        Ok(())
    }

    /// Logs the unfinished lines.
    pub(super) fn end(&mut self, log: &mut GuestLog) {
        for level in [LogLevel::Info, LogLevel::Warn] {
            let line = std::mem::take(self.line(level));
            if line.length > 0 {
                line.log(log, level);
            }
        }
    }
}

impl Line {
    fn log(self, log: &mut GuestLog, level: LogLevel) {
        let message = sanitize(&self.kept, self.length, log.room(level));
        log.send(level, &message, self.length);
    }
}
