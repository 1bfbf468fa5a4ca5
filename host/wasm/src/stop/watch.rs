//! The watch of an instance: its stop word, and the bounds of its current call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use callbox_core::call::{CancelToken, Deadline};
use callbox_core::locks::locked;
use wasmtime::SharedMemory;

use super::word::{Interrupted, StopWord};
use crate::fork;
use crate::ticker::TICK;

/// In [`Watch::began`]: a call whose beginning is not known yet. The other bits are its number.
const UNKNOWN: u64 = 1 << 63;

/// In [`Watch::limit`]: no deadline.
const NEVER: u64 = u64::MAX;

/// An instance's stop word, and the description of its current call.
///
/// The thread that has the instance writes all of it while the word is disarmed. The ticker reads
/// it, and notes when a call began.
pub(crate) struct Watch {
    id: usize,
    pub(super) word: StopWord,
    /// The origin of all times.
    origin: Instant,
    /// The number of calls so far, of all instances that had this watch.
    calls: AtomicU64,
    /// When the call began, in nanoseconds since the origin, or [`UNKNOWN`] and the number of the
    /// call: a call reads no clock, and the first tick says when it began.
    pub(super) began: AtomicU64,
    /// The nanoseconds that the call has from there, or [`NEVER`].
    limit: AtomicU64,
    token: Mutex<Option<CancelToken>>,
    /// The process that made the watch.
    generation: u32,
}

impl Watch {
    /// # Errors
    /// wasmtime's, if there is no address space left for the memory.
    pub(super) fn new(
        engine: &wasmtime::Engine,
        id: usize,
        origin: Instant,
    ) -> wasmtime::Result<Self> {
        Ok(Self {
            id,
            word: StopWord::new(engine)?,
            origin,
            calls: AtomicU64::new(0),
            began: AtomicU64::new(0),
            limit: AtomicU64::new(NEVER),
            token: Mutex::default(),
            generation: fork::generation(),
        })
    }

    /// Identifies the watch in its engine.
    pub(crate) fn id(&self) -> usize {
        self.id
    }

    /// The memory with the stop word, which the instance imports.
    pub(crate) fn memory(&self) -> &SharedMemory {
        self.word.memory()
    }

    /// Sets the deadline of the current call.
    #[inline]
    pub(crate) fn set_deadline(&self, deadline: Option<Deadline>) {
        // The thread that has the instance is the only one to count.
        let call = self.calls.load(Ordering::Relaxed) + 1;
        self.calls.store(call, Ordering::Relaxed);
        let (began, limit) = match deadline {
            None => (0, NEVER),
            Some(Deadline::After(duration)) => (UNKNOWN | call, nanoseconds(duration)),
            Some(Deadline::At(end) | Deadline::Begun { end, .. }) => (0, self.since_origin(end)),
        };
        self.began.store(began, Ordering::Release);
        self.limit.store(limit, Ordering::Release);
    }

    /// Sets the cancel token of the current call. Does nothing in a forked child, where no guest
    /// runs and the lock may be the ticker's for ever.
    pub(crate) fn set_token(&self, token: Option<CancelToken>) {
        if self.generation == fork::generation() {
            *self.lock_token() = token;
        }
    }

    /// Lets the guest run.
    #[inline]
    pub(crate) fn arm(&self) {
        self.word.arm();
    }

    /// Notes that the guest has ended. Returns the reason if it was stopped.
    #[inline]
    pub(crate) fn disarm(&self) -> Option<Interrupted> {
        self.word.disarm()
    }

    /// Stops the guest if it is over. Returns whether a guest was running.
    pub(crate) fn tick(&self) -> bool {
        let Some(armed) = self.word.armed() else {
            return false;
        };
        let cancelled = self
            .lock_token()
            .as_ref()
            .is_some_and(CancelToken::is_cancelled);
        if cancelled {
            self.word.stop(armed, Interrupted::Cancelled);
        } else if self.is_late() {
            self.word.stop(armed, Interrupted::Deadline);
        }
        true
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        let limit = self.limit.load(Ordering::Acquire);
        if limit == NEVER {
            return false;
        }
        // The call began at most one tick ago.
        let (began, now) = self.began(TICK);
        now.saturating_sub(began) >= limit
    }

    /// The deadline as an instant. A duration counts from now if no tick has passed yet.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let limit = self.limit.load(Ordering::Acquire);
        if limit == NEVER {
            return None;
        }
        let (began, _) = self.began(Duration::ZERO);
        let end = Duration::from_nanos(began.saturating_add(limit));
        self.origin.checked_add(end)
    }

    /// When the call began, and the time now. If that is not known, the call began `ago`.
    ///
    /// The clock is read after the number of the call: otherwise a call that begins in between
    /// would seem to have begun before it did. For the same reason no number is used twice.
    fn began(&self, ago: Duration) -> (u64, u64) {
        let began = self.began.load(Ordering::Acquire);
        let now = self.since_origin(Instant::now());
        if began & UNKNOWN == 0 {
            return (began, now);
        }
        let first = now.saturating_sub(nanoseconds(ago)) & !UNKNOWN;
        let exchanged =
            self.began
                .compare_exchange(began, first, Ordering::AcqRel, Ordering::Acquire);
        match exchanged {
            Err(known) if known & UNKNOWN == 0 => (known, now),
            // Another call has begun, about which nothing is decided now.
            Err(_) => (now, now),
            Ok(_) => (first, now),
        }
    }

    fn since_origin(&self, instant: Instant) -> u64 {
        nanoseconds(instant.saturating_duration_since(self.origin))
    }

    fn lock_token(&self) -> MutexGuard<'_, Option<CancelToken>> {
        locked(&self.token)
    }
}

/// A duration in nanoseconds, or [`NEVER`] if it does not fit.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}
