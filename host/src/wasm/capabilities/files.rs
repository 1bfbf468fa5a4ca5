//! An instance's file descriptors: how many files are open, and which are standard streams.
//!
//! wasmtime-wasi numbers them and knows what each is. What is kept here follows what it said to `path_open`, `fd_close` and
//! `fd_renumber`, which are all that makes, ends and moves one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::shared::Shared;
use crate::policy::LogLevel;

/// A descriptor that the instance has from the beginning. All others are files that it opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    /// A standard stream, and the level at which its lines are logged.
    Output(LogLevel),
    /// Standard input, or a directory that was granted.
    Other,
}

/// An instance's file descriptors.
pub(super) struct Files {
    shared: Arc<Shared>,
    given: BTreeMap<u32, Given>,
    /// Files that the guest opened, which are in its engine's count.
    open: usize,
}

impl Files {
    /// The descriptors of an instance that nothing ran in.
    pub(super) fn new(shared: &Arc<Shared>, directories: usize) -> Self {
        let streams = [
            Given::Other,
            Given::Output(LogLevel::Info),
            Given::Output(LogLevel::Warn),
        ];
        let directories = std::iter::repeat_n(Given::Other, directories);
        Self {
            shared: Arc::clone(shared),
            given: (0..).zip(streams.into_iter().chain(directories)).collect(),
            open: 0,
        }
    }

    /// The level at which what is written to this descriptor is logged, if it is a standard stream.
    pub(super) fn output(&self, descriptor: u32) -> Option<LogLevel> {
        match self.given.get(&descriptor)? {
            Given::Output(level) => Some(*level),
            Given::Other => None,
        }
    }

    /// Counts a file that is about to be opened, if there may be another.
    pub(super) fn begin_open(&mut self) -> bool {
        let limits = &self.shared.policy.limits;
        let most = limits.engine_open_files;
        let another = |open: usize| (open < most).then_some(open + 1);
        let allowed = self.open < limits.open_files
            && self
                .shared
                .open_files
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, another)
                .is_ok();
        self.open += usize::from(allowed);
        allowed
    }

    /// A file is not open, or not any more.
    pub(super) fn end_open(&mut self) {
        if self.open > 0 {
            self.open -= 1;
            self.shared.open_files.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// This descriptor was closed.
    pub(super) fn closed(&mut self, descriptor: u32) {
        if self.given.remove(&descriptor).is_none() {
            self.end_open();
        }
    }

    /// A descriptor took the place of another, which was closed.
    pub(super) fn renumbered(&mut self, from: u32, to: u32) {
        if from == to {
            return;
        }
        self.closed(to);
        if let Some(given) = self.given.remove(&from) {
            self.given.insert(to, given);
        }
    }
}

impl Drop for Files {
    /// The instance's files are closed with it.
    fn drop(&mut self) {
        self.shared
            .open_files
            .fetch_sub(self.open, Ordering::Relaxed);
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("given", &self.given)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
