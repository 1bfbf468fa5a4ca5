//! The engine, which all modules and instances share.

use std::num::NonZeroUsize;
use std::sync::Arc;

use callbox_core::policy::{Grants, Isolation, Policy};
use callbox_core::values::Result;
use wasmtime::Enabled;

use crate::address_space::{self, AddressSpace, load_bytes};
use crate::allocation::{Allocation, PoolShare};
use crate::compiler::CompilerSettings;
use crate::compiler_threads;
use crate::failure::host_exhausted;
use crate::features::MAX_TABLES;
use crate::file::ModuleFile;
use crate::module::Module;
use crate::shared::EngineShared;
use crate::state::GuestState;
use crate::ticker::Ticker;
use crate::{Config, api, fork};

/// The bytes that the slots of freed instances keep for the next ones.
///
/// Small guests then start without page faults. The kernel must tell which pages are dirty (Linux
/// 6.7 and newer), so that only these are zeroed: zeroing all of them costs more than unmapping
/// them.
struct Kept {
    memory: usize,
    table: usize,
    /// The most slots without an instance that wait for the same module again.
    unused: u32,
}

impl Kept {
    const fn under(isolation: Isolation) -> Self {
        match isolation {
            // Each call makes an instance, and few are there at one time.
            Isolation::Fresh => Self {
                memory: 2 << 20,
                table: 512 << 10,
                unused: 16,
            },
            // Each call site has an instance. The slots of a thousand keep 70 MiB for as long as
            // the engine lives.
            Isolation::Executable => Self {
                memory: 64 << 10,
                table: 8 << 10,
                unused: 100,
            },
        }
    }
}

/// A wasmtime engine with callbox's settings and limits. A process needs one; clones share it.
/// Several hundred are possible, the first of which create instances faster.
///
/// A thread of its own drives deadlines. The thread does not survive in a forked child, so that the
/// calls of an engine from before a fork fail there: make another engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineShared>,
    /// The FFI API table.
    linker: Arc<wasmtime::Linker<GuestState>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

impl Drop for Engine {
    /// In a forked child, leaks the linker, as `EngineShared` does the rest.
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(Arc::clone(&self.linker));
        }
    }
}

impl Engine {
    /// Makes an engine with the default limits.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the machine lacks the memory or a thread.
    pub fn new() -> Result<Self> {
        Self::with_config(Config::default())
    }

    /// Makes an engine. [`Engine::allocation`] tells how it reserves address space.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the machine lacks the memory or a thread.
    pub fn with_config(config: Config) -> Result<Self> {
        Self::of_process(config, false)
    }

    /// Makes an engine in a process that will give up making threads and files, and reserving
    /// address space. All threads are started now, instances get their initial memory without
    /// files, and their stop words are reserved.
    ///
    /// # Errors
    /// As for [`Engine::with_config`].
    #[doc(hidden)]
    pub fn before_confinement(config: Config) -> Result<Self> {
        compiler_threads::start()?;
        let engine = Self::of_process(config, true)?;
        engine.shared.reserve_watches()?;
        Ok(engine)
    }

    fn of_process(config: Config, is_worker: bool) -> Result<Self> {
        let images = !is_worker;
        let (engine, allocation, pool_share) = allocate(&config.policy, images)?;
        let ticker = Ticker::start()?;
        let linker = Arc::new(api::linker(&engine)?);
        let address_space = AddressSpace::of(allocation, is_worker);
        let shared = EngineShared::new(engine, ticker, config, address_space, pool_share);
        shared.prepare_compiler();
        Ok(Self { shared, linker })
    }

    /// How the engine reserves address space for the memories of its instances.
    #[must_use]
    pub fn allocation(&self) -> Allocation {
        self.shared.allocation
    }

    /// Loads a module from the bytes of its file, with the policy's grants.
    ///
    /// The module is checked against the limits and the ABI, and compiled. None of its code runs.
    /// The size of the file alone bounds the time that this takes.
    ///
    /// # Errors
    /// All blamed on the guest:
    /// - INVALID_ARGUMENT if it is not a valid core module, has no memory, or has wrong metadata.
    /// - PERMISSION_DENIED if it imports anything but the FFI API table and granted functions.
    /// - RESOURCE_EXHAUSTED if it exceeds the limits.
    pub fn load(&self, wasm: &[u8]) -> Result<Arc<Module>> {
        self.load_with(wasm, &self.shared.policy.grants)
    }

    /// Loads a module with grants of its own, which replace the policy's. [`Policy::grants_for`]
    /// finds those that the policy has for a target.
    ///
    /// Directories are opened now, so that later changes of their paths make no difference.
    ///
    /// # Errors
    /// As for [`Engine::load`]. Blamed on the caller, for grants that cannot be given:
    /// INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED or FAILED_PRECONDITION, and UNIMPLEMENTED
    /// without the feature `capabilities`.
    pub fn load_with(&self, wasm: &[u8], grants: &Grants) -> Result<Arc<Module>> {
        Module::new(&self.shared, &self.linker, self.read(wasm)?, grants).map(Arc::new)
    }

    /// Loads a module from a file that was read before, without reading it again.
    ///
    /// # Errors
    /// As for [`Engine::load_with`].
    pub fn load_file(&self, file: &ModuleFile, grants: &Grants) -> Result<Arc<Module>> {
        Module::new(&self.shared, &self.linker, file.clone(), grants).map(Arc::new)
    }

    fn read(&self, wasm: &[u8]) -> Result<ModuleFile> {
        let bytes = load_bytes(wasm.len()).saturating_add(wasm.len() as u64);
        let _room = self.shared.address_space.claim_for_module(bytes)?;
        ModuleFile::read(wasm.to_vec(), &self.shared.policy.limits)
    }

    /// Whether [`Engine::load`] would take this module from the cache.
    ///
    /// # Errors
    /// The reason why an entry would be rejected, or the error in the module.
    #[cfg(feature = "cache")]
    pub fn is_cached(&self, wasm: &[u8]) -> Result<bool> {
        match &self.shared.cache {
            Some(cache) => cache.has(&self.shared.cache_identity(&self.read(wasm)?)),
            None => Ok(false),
        }
    }

    /// Whether the engine was made in this process. If it was made before a fork, its calls fail
    /// with FAILED_PRECONDITION.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.shared.ticker.is_in_this_process()
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.shared.policy
    }
}

/// Makes wasmtime's engine with the best allocation that the process has address space for.
///
/// With `images`, the data of a module are merged when it is compiled.
fn allocate(policy: &Policy, images: bool) -> Result<(wasmtime::Engine, Allocation, PoolShare)> {
    let (mut allocation, mut share) = Allocation::choose(&policy.limits);
    let make = |mut config: wasmtime::Config| {
        config.memory_init_cow(images);
        // It takes a lock of wasmtime's signal handlers.
        let _forks_later = fork::forks_later();
        wasmtime::Engine::new(&config)
    };
    let mut made = match allocation {
        Allocation::Pooled => make(pooled(policy, true)).or_else(|_| make(pooled(policy, false))),
        other => make(on_demand(policy, other)),
    };
    if made.is_err() {
        // The machine has less than its limits say.
        (allocation, share) = (Allocation::Compact, PoolShare::none());
        made = make(on_demand(policy, allocation));
    }
    let engine = made.map_err(|error| {
        let advice = address_space::advice();
        host_exhausted(format!("an engine could not be made ({error:#}): {advice}"))
    })?;
    Ok((engine, allocation, share))
}

/// Returns wasmtime's settings: those that compiled code depends on, and those that apply when it
/// runs.
fn on_demand(policy: &Policy, allocation: Allocation) -> wasmtime::Config {
    let limits = &policy.limits;
    let mut config = CompilerSettings::of(policy, allocation).config();
    config
        // The compiler's thread pool does not survive in a forked child.
        .parallel_compilation(!fork::is_child())
        .max_wasm_stack(limits.stack_bytes.max(1))
        // One more than is shown, and one for a helper, which is not shown.
        .wasm_backtrace_max_frames(NonZeroUsize::new(limits.backtrace_frames.saturating_add(2)))
        .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable);
    // The stacks of asynchronous calls, of which there are none, must not be smaller.
    #[cfg(feature = "capabilities")]
    config.async_stack_size(limits.stack_bytes.max(2 << 20));
    config
}

/// The settings of an engine with a pool.
fn pooled(policy: &Policy, pagemap_scan: bool) -> wasmtime::Config {
    const PAGE: usize = 64 << 10;
    /// The bytes of an instance's tables of globals, imports and types, within their limits.
    const BASE: usize = 1 << 20;
    /// The bytes for each function in a table or an export.
    const FUNCTION: usize = 32;
    /// The validator accepts a million at most.
    const MOST_FUNCTIONS: usize = 1 << 20;
    let limits = &policy.limits;
    let memory = limits.memory_bytes.min(1 << 32).div_ceil(PAGE) * PAGE;
    let mut pooling = wasmtime::PoolingAllocationConfig::new();
    pooling
        .total_core_instances(limits.instances)
        .max_core_instance_size(BASE + limits.functions.min(MOST_FUNCTIONS) * FUNCTION)
        .total_memories(limits.instances)
        // wasmtime refuses to load a module with tables into a pool without any.
        .total_tables(limits.instances.max(1))
        .max_memory_size(memory)
        .table_elements(limits.table_elements)
        // Imported memories do not count.
        .max_memories_per_module(1)
        .max_tables_per_module(MAX_TABLES as u32);
    // wasmtime-wasi enables stacks for asynchronous calls, which callbox does not make: a thousand
    // per engine, of two mappings each.
    #[cfg(feature = "capabilities")]
    pooling.total_stacks(0);
    if pagemap_scan {
        let kept = Kept::under(policy.isolation);
        pooling
            .pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(kept.memory)
            .table_keep_resident(kept.table)
            .max_unused_warm_slots(kept.unused);
    }
    let mut config = on_demand(policy, Allocation::Pooled);
    config.allocation_strategy(wasmtime::InstanceAllocationStrategy::Pooling(pooling));
    config
}
