//! Keeps the log messages of guests until Python takes them, because no Python runs during a call.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use callbox::policy::LogLevel;
use callbox::wasm::LogRecord;

use crate::fork;

/// The maximum number of messages. The oldest are dropped.
const MOST: usize = 1024;

/// The newest messages, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Logs(Mutex<VecDeque<(LogLevel, String)>>);

impl Logs {
    pub(crate) fn push(&self, record: &LogRecord<'_>) {
        let _forks_later = fork::not_now();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == MOST {
            kept.pop_front();
        }
        kept.push_back((record.level, record.message.to_owned()));
    }

    pub(crate) fn take(&self) -> VecDeque<(LogLevel, String)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
