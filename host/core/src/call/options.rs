//! Options of one call or one execution: its deadline, its cancel token and its user data.
//!
//! User data is bytes under a name. XLA's is a pointer that is found by its type, which has no
//! meaning in a guest's memory. Pointer attributes are refused for the same reason.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::policy::Policy;
use crate::values::{Blame, Result, Status, StatusCode};

/// How one call or one execution is run.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// When it is stopped with DEADLINE_EXCEEDED. `None` for the backend's limit.
    pub deadline: Option<Deadline>,
    /// Stops it with CANCELLED, from any thread.
    pub cancel: Option<CancelToken>,
    /// The fuel for it and the functions that it calls back, together, in the deterministic mode of
    /// [`Policy`](crate::policy::Policy). `None` for the backend's limit of each call.
    pub fuel: Option<Fuel>,
    /// The most threads that share the elements or pieces of a mapped call, the calling thread
    /// included. `None` for the policy's limit, which a greater number does not raise.
    pub threads: Option<usize>,
    /// Bytes that targets find in their context by name, like XLA FFI's user data.
    pub user_data: Option<Arc<UserData>>,
    /// What delays the parts of a mapped call, which share its time.
    pub delays: Option<Delays>,
    /// Whether the call is a part that a thread helps with. It takes only room that is free now. If
    /// it is refused more, it fails with RESOURCE_EXHAUSTED, blamed on the caller, whatever its
    /// guest returns, and the thread of the call makes it again.
    pub helps: bool,
}

impl CallOptions {
    /// The same options, with the time of the deadline begun: several calls share what is left of
    /// it.
    #[must_use]
    pub fn from_now_on(&self) -> Self {
        Self {
            deadline: self.deadline.map(Deadline::begin),
            ..self.clone()
        }
    }

    /// The same options, with the time of the deadline begun, or else of the policy's limit for one
    /// call: what the call is prepared for takes from its time.
    #[must_use]
    pub fn begun_under(&self, policy: Option<&Policy>) -> Self {
        // In deterministic mode, fuel replaces the limit of time.
        let limit = policy.filter(|policy| !policy.deterministic);
        let limit = limit.and_then(|policy| policy.limits.deadline);
        let mut begun = self.from_now_on();
        begun.deadline = begun
            .deadline
            .or(limit.map(|limit| Deadline::After(limit).begin()));
        begun
    }

    /// Checks that the call goes on.
    ///
    /// # Errors
    /// CANCELLED if its token is; DEADLINE_EXCEEDED if a deadline that has begun has passed.
    pub fn check(&self) -> Result<()> {
        let stopped = |code, message| Err(Status::new(code, Blame::Caller, message));
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return stopped(StatusCode::Cancelled, "the call was cancelled");
        }
        let end = self.deadline.and_then(Deadline::end);
        if end.is_some_and(|end| Instant::now() >= end) {
            let message = "the call's deadline has passed";
            return stopped(StatusCode::DeadlineExceeded, message);
        }
        Ok(())
    }

    /// Whether the deadline's instant has passed, the fuel is used up, or the token is cancelled.
    pub(super) fn is_over(&self) -> bool {
        let end = self.deadline.and_then(Deadline::end);
        let is_late = end.is_some_and(|end| Instant::now() >= end);
        let is_cancelled = self.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        is_late || is_cancelled || self.fuel.as_ref().is_some_and(|fuel| fuel.left() == 0)
    }
}

/// Bytes that the embedder attaches to a call or an execution, by name.
pub type UserData = BTreeMap<String, Vec<u8>>;

/// The time that the parts of a call waited for their instances, which its clones share.
#[derive(Clone, Debug)]
pub struct Delays {
    begun: Instant,
    nanos: Arc<AtomicU64>,
}

impl Delays {
    /// Those of a call that begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            begun: Instant::now(),
            nanos: Arc::default(),
        }
    }

    /// Adds the time that a part waited.
    pub fn add(&self, time: Duration) {
        let nanos = time.as_nanos().try_into().unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Whether they, rather than the parts before, are why a part has no time left: they took most
    /// of it.
    pub(super) fn are_to_blame(&self) -> bool {
        let time = Duration::from_nanos(self.nanos.load(Ordering::Relaxed));
        time > self.begun.elapsed() / 2
    }
}

/// A store of fuel, which its clones share.
///
/// A start that finds no room is begun again, and what it used is given back, so that a call does
/// not depend on what others take. The spare fuel bounds how much.
#[derive(Clone, Debug)]
pub struct Fuel(Arc<Store>);

#[derive(Debug)]
struct Store {
    left: AtomicU64,
    spare: AtomicU64,
    has_lack: AtomicBool,
}

impl Fuel {
    /// A store of this much fuel, and as much spare fuel.
    #[must_use]
    pub fn new(units: u64) -> Self {
        Self::with_spare(units, units)
    }

    /// A store of this much fuel, with spare fuel.
    #[must_use]
    pub fn with_spare(units: u64, spare: u64) -> Self {
        Self(Arc::new(Store {
            left: AtomicU64::new(units),
            spare: AtomicU64::new(spare),
            has_lack: AtomicBool::new(false),
        }))
    }

    /// The fuel that is left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.0.left.load(Ordering::Relaxed)
    }

    /// The spare fuel that is left.
    #[must_use]
    pub fn spare(&self) -> u64 {
        self.0.spare.load(Ordering::Relaxed)
    }

    /// Takes this much fuel, or what is left.
    pub fn take(&self, units: u64) {
        subtract(&self.0.left, units);
    }

    /// Takes this much spare fuel, or what is left.
    pub fn take_spare(&self, units: u64) {
        subtract(&self.0.spare, units);
    }

    /// Gives back what was taken.
    pub fn give_back(&self, units: u64) {
        self.0.left.fetch_add(units, Ordering::Relaxed);
    }

    /// Says that something which cannot fail its call was refused what others take. How much is
    /// left depends on them from then on.
    pub fn note_lack(&self) {
        self.0.has_lack.store(true, Ordering::Relaxed);
    }

    /// Whether [`Fuel::note_lack`] was called.
    #[must_use]
    pub fn has_lack(&self) -> bool {
        self.0.has_lack.load(Ordering::Relaxed)
    }

    /// Checks that what is left does not depend on others.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller, after a lack.
    pub fn check(&self) -> Result<()> {
        if self.has_lack() {
            return Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Caller,
                "a deleter before it was refused what other calls take, and they share their fuel",
            ));
        }
        Ok(())
    }
}

fn subtract(from: &AtomicU64, units: u64) {
    // The closure never returns `None`.
    let _ = from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        Some(left.saturating_sub(units))
    });
}

/// The bounds of a function that is called back: those of the call that it is part of.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// When it is stopped.
    pub deadline: Option<Instant>,
    /// The fuel that it shares with the call, in the deterministic mode.
    pub fuel: Option<Fuel>,
}

/// When a call or an execution is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// This long after it begins.
    After(Duration),
    /// At this instant.
    At(Instant),
    /// At `end`, which is `whole` after the beginning of the call.
    Begun {
        /// When the call is stopped.
        end: Instant,
        /// The time of the whole call, for messages.
        whole: Duration,
    },
}

impl Deadline {
    /// The same deadline, with its time begun now unless it has begun before.
    #[must_use]
    pub fn begin(self) -> Self {
        self.begun_at(Instant::now())
    }

    /// The same deadline, with its time begun then unless it has begun before.
    #[must_use]
    pub fn begun_at(self, begun: Instant) -> Self {
        match self {
            Self::After(whole) => Self::Begun {
                end: begun.checked_add(whole).unwrap_or_else(|| self.instant()),
                whole,
            },
            begun => begun,
        }
    }

    /// The instant of the deadline. `None` if its time has not begun.
    #[must_use]
    pub fn end(self) -> Option<Instant> {
        match self {
            Self::After(_) => None,
            Self::At(end) | Self::Begun { end, .. } => Some(end),
        }
    }

    /// The time of the whole call, if it is known.
    #[must_use]
    pub fn whole(self) -> Option<Duration> {
        match self {
            Self::At(_) => None,
            Self::After(whole) | Self::Begun { whole, .. } => Some(whole),
        }
    }

    /// The instant of the deadline, if the time begins now. Durations are cut to 136 years.
    #[must_use]
    pub fn instant(self) -> Instant {
        const FAR: Duration = Duration::from_secs(1 << 32);
        match self {
            Self::At(end) | Self::Begun { end, .. } => end,
            Self::After(duration) => {
                let now = Instant::now();
                now.checked_add(duration.min(FAR)).unwrap_or(now)
            }
        }
    }
}

/// A token that stops the calls and executions that hold it or one of its clones. It cannot be
/// reset.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_set: AtomicBool,
    /// The token of the call of which this one is for a part.
    whole: Option<CancelToken>,
}

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops calls in progress within a few ticks, and later ones at once.
    pub fn cancel(&self) {
        self.0.is_set.store(true, Ordering::Relaxed);
    }

    /// Whether [`CancelToken::cancel`] was called.
    #[must_use]
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        let whole = self.0.whole.as_ref();
        self.0.is_set.load(Ordering::Relaxed) || whole.is_some_and(Self::is_cancelled)
    }

    /// Whether both are clones of one token.
    #[must_use]
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A token for a part of a call, which the call's own token cancels as well.
    pub(super) fn within(whole: Option<&Self>) -> Self {
        Self(Arc::new(Flag {
            is_set: AtomicBool::default(),
            whole: whole.cloned(),
        }))
    }
}
