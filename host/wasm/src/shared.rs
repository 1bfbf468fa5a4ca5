//! The parts of an engine that its modules and instances share.

use std::collections::HashMap;
use std::fmt;
#[cfg(feature = "capabilities")]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use callbox_core::call::Threads;
use callbox_core::locks::locked;
use callbox_core::policy::{CompileIn, Policy};
use callbox_core::values::{Result, Status};

use crate::address_space::{AddressSpace, Bytes};
use crate::allocation::{Allocation, PoolShare};
#[cfg(feature = "cache")]
use crate::cache::{Cache, CacheOutcome, Identity};
use crate::compiler::{CompiledIn, Compiler, CompilerSettings};
use crate::config::{CompileReportSink, Config, LogSink};
use crate::discard::Discarder;
use crate::failure::status;
#[cfg(feature = "cache")]
use crate::file::ModuleFile;
use crate::fingerprint::fingerprint;
use crate::helpers;
use crate::load::LoadedModule;
use crate::loads::Loads;
use crate::permits::CompilePermits;
use crate::places::Places;
use crate::pool::Pools;
use crate::quota::Together;
use crate::reclaim;
use crate::refusals::Refusals;
use crate::ticker::Ticker;

/// A pool that keeps idle instances.
pub(crate) trait Evict: Send + Sync {
    /// Whether it has an idle instance.
    fn has_idle(&self) -> bool;

    /// The bytes of address space and of memory that its idle instances take.
    fn idle(&self) -> Bytes;

    /// Discards an idle instance, and returns what it took. `None` if the pool has none.
    fn evict_one(&self) -> Option<Bytes>;
}

/// The parts of an engine that its modules and instances share.
pub(crate) struct EngineShared {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) policy: Policy,
    pub(crate) log: Option<LogSink>,
    /// The threads that help with calls. `None` in a forked child, where those of the pool are
    /// gone.
    pub(crate) threads: Option<Arc<dyn Threads>>,
    #[cfg(feature = "cache")]
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) allocation: Allocation,
    pub(crate) address_space: AddressSpace,
    /// Dropped after the engine, whose pool it counts.
    _pool_share: PoolShare,
    /// Those for the instances of all modules.
    pub(crate) places: Arc<Places>,
    pub(crate) ticker: Ticker,
    pub(crate) discarder: Discarder,
    pub(crate) compiler: Option<Arc<dyn Compiler>>,
    pub(crate) compiler_settings: CompilerSettings,
    /// The fingerprint of compilers for this engine.
    pub(crate) fingerprint: [u8; 32],
    pub(crate) refusals: Refusals,
    pub(crate) loads: Loads<Compiled>,
    pub(crate) compile_permits: Arc<CompilePermits>,
    compile_report: Option<CompileReportSink>,
    has_reported: AtomicBool,
    /// The number of files that guests have open.
    #[cfg(feature = "capabilities")]
    pub(crate) open_files: AtomicUsize,
    /// Distinguishes this engine's modules from those of an engine with another policy.
    pub(crate) id: u64,
    /// The pools of this engine's modules. Their idle instances give way to one of any module.
    pub(crate) pools: Pools,
    /// The memory of calls outside programs, by SHA-256 of the module's file.
    outside_programs: Mutex<HashMap<[u8; 32], Weak<Together>>>,
}

/// A module's native code, and where it came from.
pub(crate) struct Compiled {
    pub(crate) module: LoadedModule,
    pub(crate) place: CompiledIn,
    #[cfg(feature = "cache")]
    pub(crate) cache_outcome: CacheOutcome,
}

impl fmt::Debug for EngineShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineShared")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Drop for EngineShared {
    /// In a forked child, leaks what other threads may have locked before the fork.
    fn drop(&mut self) {
        if !self.ticker.is_in_this_process() {
            std::mem::forget(self.engine.clone());
            self.discarder.forget();
        }
    }
}

impl EngineShared {
    pub(crate) fn new(
        engine: wasmtime::Engine,
        ticker: Ticker,
        config: Config,
        address_space: AddressSpace,
        pool_share: PoolShare,
    ) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let allocation = address_space.allocation();
        let engine = Arc::new(Self {
            compiler_settings: CompilerSettings::of(&config.policy, allocation),
            fingerprint: fingerprint(&engine),
            engine,
            policy: config.policy,
            log: config.log,
            threads: config.threads.or_else(helpers::of_this_process),
            #[cfg(feature = "cache")]
            cache: config.cache,
            address_space,
            allocation,
            _pool_share: pool_share,
            places: Arc::default(),
            ticker,
            discarder: Discarder::default(),
            compiler: config.compiler,
            refusals: Refusals::default(),
            loads: Loads::default(),
            compile_permits: Arc::default(),
            compile_report: config.compile_report,
            has_reported: AtomicBool::new(false),
            #[cfg(feature = "capabilities")]
            open_files: AtomicUsize::default(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            pools: Pools::default(),
            outside_programs: Mutex::default(),
        });
        reclaim::register(&engine);
        engine
    }

    /// Checks that the engine was made in this process, whose ticker can interrupt a guest.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, blamed on the caller, in a forked child.
    #[inline]
    pub(crate) fn check_process(&self, what: &str) -> Result<()> {
        if self.ticker.is_in_this_process() {
            return Ok(());
        }
        Err(status!(
            FailedPrecondition,
            Caller,
            "{what} was not called: expected an engine that was made in this process, found one from before a fork"
        ))
    }

    /// The key of a file's code in the cache.
    #[cfg(feature = "cache")]
    pub(crate) fn cache_identity(&self, file: &ModuleFile) -> Identity {
        Identity::of(self.fingerprint, file.digest())
    }

    /// Has the compiler start in the background, while modules are read. With a cache, they may not
    /// need it.
    pub(crate) fn prepare_compiler(&self) {
        #[cfg(feature = "cache")]
        if self.cache.is_some() {
            return;
        }
        if let Some(compiler) = &self.compiler
            && self.policy.compile != CompileIn::ThisProcess
        {
            let memory = self.policy.limits.compile_memory_bytes;
            compiler.prepare(&self.compiler_settings, memory);
        }
    }

    /// Reports, the first time, why a module is compiled in this process.
    pub(crate) fn report(&self, status: &Status) {
        if let Some(report) = &self.compile_report
            && !self.has_reported.swap(true, Ordering::Relaxed)
        {
            report(status);
        }
    }

    /// Reserves address space for the stop words of all instances that the limits allow.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is too little.
    pub(crate) fn reserve_watches(&self) -> Result<()> {
        let lease = |_| self.ticker.lease(&self.engine);
        // They return to the engine when the last is reserved.
        let watches: Result<Vec<_>> = (0..self.policy.limits.instances).map(lease).collect();
        watches.map(drop)
    }

    /// The memory of all calls of a file's targets outside programs.
    pub(crate) fn outside_programs(&self, digest: [u8; 32]) -> Arc<Together> {
        let mut files = locked(&self.outside_programs);
        if let Some(known) = files.get(&digest).and_then(Weak::upgrade) {
            return known;
        }
        files.retain(|_, together| together.strong_count() > 0);
        let together = Arc::new(Together::outside_programs());
        files.insert(digest, Arc::downgrade(&together));
        together
    }
}
