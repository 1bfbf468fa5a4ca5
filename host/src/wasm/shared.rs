//! What the modules and instances of an engine share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

#[cfg(feature = "cache")]
use super::cache::Cache;
use super::compile::Places;
use super::discard::Discarder;
use super::engine::Config;
use super::state::{GuestState, LogRecord};
use super::ticker::Ticker;
use crate::policy::Policy;

/// Where a guest's log messages go.
pub(super) type LogSink = Arc<dyn Fn(&LogRecord<'_>) + Send + Sync>;

/// Something that keeps instances which nobody uses.
pub(super) trait Evict: Send + Sync {
    /// Drops one, if there is one. What it takes back it takes back until `deadline`.
    fn evict_one(&self, deadline: Instant) -> bool;
}

/// What modules and instances need of their engine.
pub(super) struct Shared {
    pub(super) engine: wasmtime::Engine,
    pub(super) linker: wasmtime::Linker<GuestState>,
    pub(super) policy: Policy,
    pub(super) log: Option<LogSink>,
    #[cfg(feature = "cache")]
    pub(super) cache: Option<Arc<Cache>>,
    pub(super) ticker: Ticker,
    pub(super) discarder: Discarder,
    /// The places for compilations.
    pub(super) compilations: Arc<Places>,
    /// Files that guests have open.
    #[cfg(feature = "capabilities")]
    pub(super) open_files: std::sync::atomic::AtomicUsize,
    /// Tells this engine's modules from another's: the same file under another policy is another module.
    pub(super) id: u64,
    /// The pools of this engine's modules, for [`Shared::evict_one`].
    pools: Mutex<Vec<Weak<dyn Evict>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// The next engine's number.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Shared {
    /// An engine's share, with no pools yet.
    pub(super) fn new(
        engine: wasmtime::Engine,
        linker: wasmtime::Linker<GuestState>,
        ticker: Ticker,
        config: Config,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine,
            linker,
            policy: config.policy,
            log: config.log,
            #[cfg(feature = "cache")]
            cache: config.cache,
            ticker,
            discarder: Discarder::default(),
            compilations: Arc::default(),
            #[cfg(feature = "capabilities")]
            open_files: std::sync::atomic::AtomicUsize::default(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            pools: Mutex::default(),
        })
    }

    /// Lets a pool's idle instances make way when the engine runs out of places.
    pub(super) fn add_pool(&self, pool: Weak<dyn Evict>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(pool);
    }

    /// Drops an idle instance of some module, if there is one.
    pub(super) fn evict_one(&self, deadline: Instant) -> bool {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let alive: Vec<_> = pools.iter().filter_map(Weak::upgrade).collect();
        // An instance that goes lets its guest take things back, which may log: nothing is locked meanwhile.
        drop(pools);
        alive.iter().any(|pool| pool.evict_one(deadline))
    }
}
