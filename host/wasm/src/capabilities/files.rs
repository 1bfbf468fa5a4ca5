//! An instance's file descriptors: how many files are open, and which are standard streams.
//!
//! wasmtime-wasi owns the descriptors. This record follows the outcomes of `path_open`, `fd_close`
//! and `fd_renumber`, the only functions that open, close and move one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use callbox_core::policy::LogLevel;
use callbox_core::values::Result;

use crate::address_space::Room;
use crate::failure::caller_exhausted;
use crate::shared::EngineShared;

/// The bytes of memory that a listing takes for each byte of the directory's size: an entry takes a
/// hundred and its name, and Linux's file systems in memory count 20 for it, others at least 12.
const LISTING_BYTES_PER_BYTE: u64 = 20;

/// A descriptor that the instance has from the beginning. All others are files that it opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Initial {
    /// A standard stream, and the level at which its lines are logged.
    Output(LogLevel),
    /// Standard input, or a directory that was granted.
    Other,
}

/// An instance's file descriptors.
pub(super) struct Files {
    shared: Arc<EngineShared>,
    initial: BTreeMap<u32, Initial>,
    /// Files that the guest has open, which the engine counts, too.
    open: usize,
}

impl Files {
    /// The descriptors of a new instance.
    pub(super) fn new(shared: &Arc<EngineShared>, directories: usize) -> Self {
        let streams = [
            Initial::Other,
            Initial::Output(LogLevel::Info),
            Initial::Output(LogLevel::Warn),
        ];
        let directories = std::iter::repeat_n(Initial::Other, directories);
        Self {
            shared: Arc::clone(shared),
            initial: (0..).zip(streams.into_iter().chain(directories)).collect(),
            open: 0,
        }
    }

    /// The level at which writes to this descriptor are logged, if it is a standard stream.
    pub(super) fn output(&self, descriptor: u32) -> Option<LogLevel> {
        match self.initial.get(&descriptor)? {
            Initial::Output(level) => Some(*level),
            Initial::Other => None,
        }
    }

    /// Counts a file that is about to be opened, unless the limits are reached.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller, if it is refused in the deterministic mode for
    /// those that other instances have open.
    pub(super) fn begin_open(&mut self) -> Result<bool> {
        let policy = &self.shared.policy;
        if self.open >= policy.limits.open_files {
            return Ok(false);
        }
        let most = policy.limits.engine_open_files;
        let another = |open: usize| (open < most).then_some(open + 1);
        let open = &self.shared.open_files;
        let counted = open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, another);
        if counted.is_err() && policy.deterministic && self.open < most {
            return Err(caller_exhausted(format!(
                "expected at most {most} open files of all instances (`engine_open_files`), found more"
            )));
        }
        self.open += usize::from(counted.is_ok());
        Ok(counted.is_ok())
    }

    /// Claims memory for the entries of a directory of this size.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller, under a limit of the process that leaves too
    /// little.
    pub(super) fn room_to_list(&self, size: u64) -> Result<Room> {
        let bytes = size.saturating_mul(LISTING_BYTES_PER_BYTE);
        let space = &self.shared.address_space;
        space.claim_for_work(bytes, "fd_readdir's entries")
    }

    /// Uncounts a file that was closed, or could not be opened.
    pub(super) fn end_open(&mut self) {
        if self.open > 0 {
            self.open -= 1;
            self.shared.open_files.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the instance may be idle with the files that it left open: those of all idle ones
    /// leave others half of the engine's.
    pub(super) fn may_be_idle(&self) -> bool {
        let most = self.shared.policy.limits.engine_open_files / 2;
        self.open == 0 || self.shared.open_files.load(Ordering::Relaxed) <= most
    }

    /// Notes that a descriptor was closed.
    pub(super) fn closed(&mut self, descriptor: u32) {
        if self.initial.remove(&descriptor).is_none() {
            self.end_open();
        }
    }

    /// Notes that the descriptor `from` replaced `to`, which was closed.
    pub(super) fn renumbered(&mut self, from: u32, to: u32) {
        if from == to {
            return;
        }
        self.closed(to);
        if let Some(initial) = self.initial.remove(&from) {
            self.initial.insert(to, initial);
        }
    }
}

impl Drop for Files {
    /// Uncounts the files that wasmtime-wasi closes with the instance.
    fn drop(&mut self) {
        self.shared
            .open_files
            .fetch_sub(self.open, Ordering::Relaxed);
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("initial", &self.initial)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
