//! The engine: what all modules and instances share.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use wasmtime::WasmFeatures;

#[cfg(feature = "cache")]
use super::cache::Cache;
use super::fork;
use super::proposals::{MAX_TABLES, features};
use super::shared::{LogSink, Shared};
use super::ticker::Ticker;
use super::{api, module::Module};
use crate::policy::{Grants, Limits, Policy, Traps};
use crate::values::{Blame, Result, Status, StatusCode};

/// Bytes of linear memory that a freed instance's slot keeps for the next, where the kernel says which pages were written to and only
/// these are zeroed (Linux 6.7 and newer): small guests then start without page faults. Elsewhere all would be zeroed, and
/// giving the pages back is cheaper.
const KEEP_RESIDENT: usize = 2 << 20;

/// How an engine is made.
#[derive(Clone, Default)]
pub struct Config {
    /// What guests may take, do and reach.
    pub policy: Policy,
    /// Where those of guests' log messages go that the policy grants. Without it they are dropped.
    pub log: Option<LogSink>,
    /// Where compiled modules are kept. Without it each is compiled when it is loaded.
    #[cfg(feature = "cache")]
    pub cache: Option<Arc<Cache>>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut config = f.debug_struct("Config");
        config
            .field("policy", &self.policy)
            .field("log", &self.log.is_some());
        #[cfg(feature = "cache")]
        config.field("cache", &self.cache);
        config.finish()
    }
}

/// A wasmtime engine with callbox's settings and limits. Cloning it is cheap and gives the same engine. A process wants one.
///
/// A thread of its own drives deadlines. It does not live on in a forked child, where an engine from before the fork stops
/// nothing: make one after.
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    /// An engine with the default limits.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the machine does not give the address space or the thread that it takes.
    pub fn new() -> Result<Self> {
        Self::with_config(Config::default())
    }

    /// An engine.
    ///
    /// # Errors
    /// As for [`Engine::new`], with limits that ask for more than there is.
    pub fn with_config(config: Config) -> Result<Self> {
        let with_scan = wasmtime::Engine::new(&wasmtime_config(&config.policy, true));
        let engine = with_scan
            .or_else(|_| wasmtime::Engine::new(&wasmtime_config(&config.policy, false)))
            .map_err(|error| {
                Status::new(
                    StatusCode::ResourceExhausted,
                    Blame::Host,
                    format!(
                        "expected an engine with {:?}: {error:#}",
                        config.policy.limits
                    ),
                )
            })?;
        let ticker = Ticker::start(&engine)?;
        let linker = api::linker(&engine)?;
        Ok(Self {
            shared: Shared::new(engine, linker, ticker, config),
        })
    }

    /// Loads a module: checks it against the limits and the ABI, reads what it declares of its targets, and compiles it. Nothing of it
    /// runs.
    ///
    /// How long that takes is bounded by the file's size alone.
    ///
    /// # Errors
    /// The guest's doing:
    /// - INVALID_ARGUMENT if it is not a valid core module, has no memory, or has metadata that is wrong.
    /// - PERMISSION_DENIED if it imports anything but the FFI API table and what is granted.
    /// - RESOURCE_EXHAUSTED if it is larger than the limits.
    pub fn load(&self, wasm: &[u8]) -> Result<Arc<Module>> {
        self.load_with(wasm, &self.shared.policy.grants)
    }

    /// Loads a module that may reach this, in place of what the policy grants to targets that it does not name. For a
    /// target that it names, this is what [`Policy::grants_for`] says.
    ///
    /// Directories are opened here, and stay the same ones whatever becomes of their paths.
    ///
    /// # Errors
    /// As for [`Engine::load`]; and the caller's doing, for grants that cannot be given: INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED or
    /// FAILED_PRECONDITION; UNIMPLEMENTED in a build without the feature `capabilities`.
    pub fn load_with(&self, wasm: &[u8], grants: &Grants) -> Result<Arc<Module>> {
        Module::new(&self.shared, wasm, grants).map(Arc::new)
    }

    /// Whether the cache has an entry of this module that [`Engine::load`] would take. Without a cache it has none.
    ///
    /// # Errors
    /// Why the entry that is there would not be taken, or what is wrong with the module.
    #[cfg(feature = "cache")]
    pub fn is_cached(&self, wasm: &[u8]) -> Result<bool> {
        Module::is_cached(&self.shared, wasm)
    }

    /// Whether the engine was made in this process: in a child that was forked later its calls fail with FAILED_PRECONDITION.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.shared.ticker.is_here()
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.shared.policy
    }
}

/// wasmtime's settings. Proposals that callbox has no use for are off: what is not there cannot fail.
fn wasmtime_config(policy: &Policy, pagemap_scan: bool) -> wasmtime::Config {
    let limits = &policy.limits;
    let mut config = wasmtime::Config::new();
    config
        // The threads that compile side by side do not live on in a forked child.
        .parallel_compilation(!fork::is_child())
        .signals_based_traps(policy.traps == Traps::Signals)
        .cranelift_nan_canonicalization(policy.deterministic)
        .relaxed_simd_deterministic(policy.deterministic)
        .consume_fuel(policy.deterministic)
        .epoch_interruption(true)
        .concurrency_support(false)
        .max_wasm_stack(limits.stack_bytes.max(1))
        .wasm_features(WasmFeatures::all(), false)
        .wasm_features(features(), true)
        .memory_may_move(false)
        .cranelift_opt_level(wasmtime::OptLevel::Speed)
        // One more than is shown, and one of a helper, which is not.
        .wasm_backtrace_max_frames(NonZeroUsize::new(limits.backtrace_frames.saturating_add(2)))
        .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable)
        .allocation_strategy(wasmtime::InstanceAllocationStrategy::Pooling(
            pooling_config(limits, pagemap_scan),
        ));
    config
}

fn pooling_config(limits: &Limits, pagemap_scan: bool) -> wasmtime::PoolingAllocationConfig {
    const PAGE: usize = 64 << 10;
    let memory = limits.memory_bytes.min(1 << 32).div_ceil(PAGE) * PAGE;
    let mut pooling = wasmtime::PoolingAllocationConfig::new();
    pooling
        .total_core_instances(limits.instances)
        .total_memories(limits.instances)
        .total_tables(limits.instances)
        .max_memory_size(memory)
        .table_elements(limits.table_elements)
        .max_memories_per_module(1)
        .max_tables_per_module(MAX_TABLES as u32);
    // wasmtime-wasi brings stacks for asynchronous calls, which nothing here makes: a thousand for each engine, each of two mappings.
    #[cfg(feature = "capabilities")]
    pooling.total_stacks(0);
    if pagemap_scan {
        pooling
            .pagemap_scan(wasmtime::Enabled::Yes)
            .linear_memory_keep_resident(KEEP_RESIDENT)
            .table_keep_resident(KEEP_RESIDENT);
    }
    pooling
}
