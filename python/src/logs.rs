//! Keeps the log messages of guests until Python takes them, because no Python runs during a call.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use callbox::policy::LogLevel;
use callbox::wasm::{LogRecord, PerProcess};

/// The maximum number of messages. The oldest are dropped.
const MOST: usize = 1024;

type Messages = VecDeque<(LogLevel, String)>;

/// The newest messages of this process, oldest first.
#[derive(Debug)]
pub(crate) struct Logs(PerProcess<Mutex<Messages>>);

impl Default for Logs {
    fn default() -> Self {
        Self(PerProcess::new(Mutex::default()))
    }
}

impl Logs {
    pub(crate) fn push(&self, record: &LogRecord<'_>) {
        let mut kept = self.locked();
        if kept.len() == MOST {
            kept.pop_front();
        }
        kept.push_back((record.level, record.message.to_owned()));
    }

    pub(crate) fn take(&self) -> Messages {
        std::mem::take(&mut self.locked())
    }

    fn locked(&self) -> MutexGuard<'_, Messages> {
        let kept = self.0.get().lock();
        kept.unwrap_or_else(PoisonError::into_inner)
    }
}
