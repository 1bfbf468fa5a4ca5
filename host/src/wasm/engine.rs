//! The engine: what all modules and instances share.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use wasmtime::WasmFeatures;

use super::limits::Limits;
use super::proposals::{MAX_TABLES, features};
use super::shared::{Isolation, LogSink, Shared};
use super::ticker::Ticker;
use super::{api, module::Module};
use crate::values::{Blame, Result, Status, StatusCode};

/// Bytes of linear memory that a freed instance's slot keeps for the next, where the kernel says which pages were written to and only
/// these are zeroed (Linux 6.7 and newer): small guests then start without page faults. Elsewhere all would be zeroed, and
/// giving the pages back is cheaper.
const KEEP_RESIDENT: usize = 2 << 20;

/// How an engine is made.
#[derive(Clone, Default)]
pub struct Config {
    /// How much a guest may take.
    pub limits: Limits,
    /// Whom an instance serves.
    pub isolation: Isolation,
    /// Where guests' log messages go. Without it they are dropped.
    pub log: Option<LogSink>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("limits", &self.limits)
            .field("isolation", &self.isolation)
            .field("log", &self.log.is_some())
            .finish()
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
        let with_scan = wasmtime::Engine::new(&wasmtime_config(&config.limits, true));
        let engine = with_scan
            .or_else(|_| wasmtime::Engine::new(&wasmtime_config(&config.limits, false)))
            .map_err(|error| {
                Status::new(
                    StatusCode::ResourceExhausted,
                    Blame::Host,
                    format!("expected an engine with {:?}: {error:#}", config.limits),
                )
            })?;
        let ticker = Ticker::start(&engine)?;
        let linker = api::linker(&engine)?;
        Ok(Self {
            shared: Shared::new(
                engine,
                linker,
                ticker,
                (config.limits, config.isolation, config.log),
            ),
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
    /// - PERMISSION_DENIED if it imports anything but the FFI API table.
    /// - RESOURCE_EXHAUSTED if it is larger than the limits.
    pub fn load(&self, wasm: &[u8]) -> Result<Arc<Module>> {
        Module::new(&self.shared, wasm).map(Arc::new)
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }
}

/// wasmtime's settings. Proposals that callbox has no use for are off: what is not there cannot fail.
fn wasmtime_config(limits: &Limits, pagemap_scan: bool) -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .epoch_interruption(true)
        .concurrency_support(false)
        .max_wasm_stack(limits.stack_bytes.max(1))
        .wasm_features(WasmFeatures::all(), false)
        .wasm_features(features(), true)
        .memory_may_move(false)
        .cranelift_opt_level(wasmtime::OptLevel::Speed)
        .wasm_backtrace_max_frames(NonZeroUsize::new(limits.backtrace_frames.saturating_add(1)))
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
    if pagemap_scan {
        pooling
            .pagemap_scan(wasmtime::Enabled::Yes)
            .linear_memory_keep_resident(KEEP_RESIDENT)
            .table_keep_resident(KEEP_RESIDENT);
    }
    pooling
}
