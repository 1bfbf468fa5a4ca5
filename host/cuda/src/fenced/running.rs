//! A launch of a fenced kernel: its record, and what may stop it.

use std::fmt::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use callbox_core::call::CancelToken;
use callbox_core::locks::locked;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use callbox_ptx::fence::{Fault, Record};
use callbox_ptx::table::Action;
use callbox_ptx::types::Space;
use callbox_ptx::verify::Param;

use super::{FencedKernel, watcher};
use crate::driver::{HostTask, Pinned};

/// The deadline, the limit and the cancel token of a launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    /// The caller's deadline.
    pub(crate) deadline: Option<Instant>,
    /// The time from when the stream reaches the launch.
    pub(crate) limit: Option<Duration>,
    pub(crate) cancel: Option<CancelToken>,
}

/// The reason for which a launch of a queue was stopped, once one was. The launches behind it are
/// stopped, too: their work fails with it.
pub(crate) type QueueStop = Arc<OnceLock<Reason>>;

/// A launch, from before it is in its stream until the stream has been waited for.
pub(crate) struct Running {
    kernel: Arc<FencedKernel>,
    /// The address of the record, which the kernel reads and writes where it lies.
    record: u64,
    bounds: Bounds,
    queue: QueueStop,
    /// When the stream reached the launch.
    begun: Arc<OnceLock<Instant>>,
    /// Sets `begun`.
    begin: Arc<Box<HostTask>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The memory of the record, until the launch is over. The watcher may hold a launch that is
    /// over for a moment, and must not keep the memory.
    slot: Option<Arc<Pinned>>,
    stopped_by: Option<Reason>,
}

/// The reason for which a launch is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    Deadline,
    Cancelled,
}

impl Running {
    /// A launch with an empty record. If it can be stopped, the watcher stops it when its time is
    /// over.
    pub(crate) fn begin(
        kernel: &Arc<FencedKernel>,
        slot: Arc<Pinned>,
        bounds: Bounds,
        queue: &QueueStop,
    ) -> Result<Arc<Self>> {
        for place in (0..Record::BYTES).step_by(4) {
            slot.store_word(place, 0);
        }
        let begun = Arc::<OnceLock<Instant>>::default();
        let told = Arc::clone(&begun);
        let begin: Box<HostTask> = Box::new(move || {
            let _ = told.set(Instant::now());
        });
        let running = Arc::new(Self {
            kernel: Arc::clone(kernel),
            record: slot.device_address(),
            bounds,
            queue: Arc::clone(queue),
            begun,
            begin: Arc::new(begin),
            state: Mutex::new(State {
                slot: Some(slot),
                stopped_by: None,
            }),
        });
        if kernel.is_stoppable() {
            watcher::watch(&running)?;
        }
        Ok(running)
    }

    /// The task that the stream runs before the launch. `None` for a launch that nothing stops.
    pub(crate) fn begin_task(&self) -> Option<&Arc<Box<HostTask>>> {
        self.kernel.is_stoppable().then_some(&self.begin)
    }

    /// The address of the record, which is the kernel's last parameter.
    pub(crate) fn record(&self) -> u64 {
        self.record
    }

    /// Sets the stop word if the launch's time is over. Returns whether it has to be looked at
    /// again.
    pub(super) fn look(&self, now: Instant) -> bool {
        let mut state = locked(&self.state);
        let Some(slot) = state.slot.as_ref().filter(|_| state.stopped_by.is_none()) else {
            return false;
        };
        let Bounds {
            deadline,
            limit,
            cancel,
        } = &self.bounds;
        let is_past = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        let limit = limit.and_then(|limit| self.begun.get()?.checked_add(limit));
        let reason = if cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            Reason::Cancelled
        } else if is_past(*deadline) || is_past(limit) {
            Reason::Deadline
        } else if let Some(reason) = self.queue.get() {
            *reason
        } else {
            return true;
        };
        slot.store_word(Record::STOP, 1);
        let _ = self.queue.set(reason);
        state.stopped_by = Some(reason);
        false
    }

    /// Ends the launch after the stream has passed it: reads the record and returns its memory.
    /// Returns `None` if it was ended before.
    pub(crate) fn end(&self) -> Option<(Result<()>, Arc<Pinned>)> {
        let mut state = locked(&self.state);
        let slot = state.slot.take()?;
        let outcome = match slot.load_word(Record::SITE) {
            0 => Ok(()),
            site => Err(self.failure(site, &slot, state.stopped_by)),
        };
        Some((outcome, slot))
    }

    /// Gives the launch up after its context was lost: nothing runs any longer, and the memory of
    /// the record may vanish with the context. It is leaked, and not accessed again.
    pub(crate) fn abandon(&self) {
        std::mem::forget(locked(&self.state).slot.take());
    }

    fn failure(&self, site: u32, slot: &Pinned, stopped_by: Option<Reason>) -> Status {
        let FencedKernel {
            file, entry, sites, ..
        } = &*self.kernel;
        let Some(site) = sites.get(site as usize - 1) else {
            return Status::internal(format!("{file}: a record of an unknown place {site}"));
        };
        let (code, blame, what) = match (site.fault, stopped_by) {
            (Fault::Stopped, Some(Reason::Cancelled)) => (
                StatusCode::Cancelled,
                Blame::Caller,
                "the call was cancelled".to_owned(),
            ),
            (Fault::Stopped, _) => (
                StatusCode::DeadlineExceeded,
                Blame::Guest,
                "it ran past its deadline".to_owned(),
            ),
            (Fault::Trap, _) => (StatusCode::Aborted, Blame::Guest, "a trap".to_owned()),
            (Fault::Assertion, _) => (
                StatusCode::Aborted,
                Blame::Guest,
                "a failed assertion".to_owned(),
            ),
            (
                Fault::Access {
                    space,
                    action,
                    bytes,
                    param,
                },
                _,
            ) => (
                StatusCode::OutOfRange,
                Blame::Guest,
                self.access(slot, space, action, bytes, param),
            ),
        };
        let three = |at: usize| [0, 4, 8].map(|more| slot.load_word(at + more));
        let ([x, y, z], [bx, by, bz]) = (three(Record::THREAD), three(Record::BLOCK));
        let message = format!(
            "{file}:{}: kernel `{entry}`: {what}, in thread ({x}, {y}, {z}) of block ({bx}, {by}, {bz})",
            site.line
        );
        Status::new(code, blame, message)
    }

    /// Describes an access that the fence stopped.
    fn access(
        &self,
        slot: &Pinned,
        space: Space,
        action: Action,
        bytes: u64,
        param: Option<usize>,
    ) -> String {
        let word = |at| u64::from(slot.load_word(at));
        let offset = (word(Record::OFFSET) | (word(Record::OFFSET + 4) << 32)).cast_signed();
        let verb = match action {
            Action::Load => "a load",
            Action::Store => "a store",
            _ => "an atomic operation",
        };
        let mut text = format!("{verb} of {bytes} bytes");
        let named = param.and_then(|index| match self.kernel.launch.params.get(index)? {
            Param::Buffer {
                bytes, writable, ..
            } => Some((self.kernel.parameters.get(index)?, *bytes, *writable)),
            Param::Value(_) => None,
        });
        // Writing to a string cannot fail.
        let _ = match named {
            Some((parameter, _, false)) if !matches!(action, Action::Load) => {
                write!(text, " to {parameter}, which it may only read")
            }
            Some((parameter, size, _)) => {
                let end = i64::try_from(size.saturating_sub(bytes)).unwrap_or(i64::MAX);
                let is_inside = size >= bytes && (0..=end).contains(&offset);
                let why = if is_inside {
                    "misaligned"
                } else {
                    "out of range"
                };
                write!(
                    text,
                    " at offset {offset} of {parameter}, which has {size} bytes, is {why}"
                )
            }
            None if space == Space::Global => {
                write!(text, " at an address outside the call's arrays")
            }
            None => write!(
                text,
                " of `{}` memory, at offset {offset}, is out of range or misaligned",
                space.directive()
            ),
        };
        text
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("entry", &self.kernel.entry)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}
