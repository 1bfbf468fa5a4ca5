//! What a caller says of one call or one execution: how long it may take and how to stop it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How one call or one execution is run.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// When it is stopped with DEADLINE_EXCEEDED. `None`: what the backend's limits say.
    pub deadline: Option<Deadline>,
    /// What stops it with CANCELLED, from any thread.
    pub cancel: Option<CancelToken>,
    /// What this and all that it calls back may take together, of a backend that counts it: the deterministic mode of
    /// [`Policy`](crate::policy::Policy). `None`: what the backend's limits give to each call.
    pub fuel: Option<Fuel>,
    /// What targets find in their context by name: XLA FFI's user data, as bytes.
    pub user_data: Option<Arc<UserData>>,
}

/// Bytes that the embedder attaches to a call or an execution, by name.
pub type UserData = BTreeMap<String, Vec<u8>>;

/// A store of fuel that the calls share which were given it or a clone of it.
#[derive(Clone, Debug)]
pub struct Fuel(Arc<AtomicU64>);

impl Fuel {
    /// This much.
    #[must_use]
    pub fn new(units: u64) -> Self {
        Self(Arc::new(AtomicU64::new(units)))
    }

    /// What is left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes this much, or what is left.
    pub fn take(&self, units: u64) {
        // What the closure gives is never `None`.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(units))
            });
    }
}

/// How long a function that is called back may take: no longer than the call that it is part of.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// When it is stopped.
    pub deadline: Option<Instant>,
    /// What it may take, of a backend that counts it.
    pub fuel: Option<Fuel>,
}

/// When a call or an execution is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// This long after it begins.
    After(Duration),
    /// At this instant.
    At(Instant),
}

impl Deadline {
    /// When it is, for what begins now. What no clock can say is far enough away.
    #[must_use]
    pub fn instant(self) -> Instant {
        const FAR: Duration = Duration::from_secs(1 << 32);
        match self {
            Self::At(instant) => instant,
            Self::After(duration) => {
                let now = Instant::now();
                now.checked_add(duration.min(FAR)).unwrap_or(now)
            }
        }
    }
}

/// Stops the calls and executions that were given it or a clone of it. It can't be taken back.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that has stopped nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops them: those under way within a few ticks, later ones at once.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`CancelToken::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
