//! The baseline: wasmtime as one would use it without callbox, with the same settings.

use wasmtime::{
    Config, Enabled, Engine, Instance, InstancePre, Linker, Memory, Module,
    PoolingAllocationConfig, Store, TypedFunc,
};

/// A raw engine with the settings that callbox's have, deadlines included.
#[must_use]
pub fn engine() -> Engine {
    let mut pooling = PoolingAllocationConfig::new();
    pooling
        .total_core_instances(64)
        .total_memories(64)
        .total_tables(64)
        .max_memory_size(1 << 30)
        .table_elements(1 << 16)
        .linear_memory_keep_resident(2 << 20)
        .pagemap_scan(Enabled::Auto)
        .table_keep_resident(2 << 20);
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .concurrency_support(false)
        .memory_may_move(false)
        .allocation_strategy(pooling);
    Engine::new(&config).unwrap()
}

/// Compiles a module whose imports, if it has any, do nothing.
#[must_use]
pub fn module(engine: &Engine, wasm: &[u8]) -> InstancePre<()> {
    let module = Module::new(engine, wasm).unwrap();
    let mut linker = Linker::new(engine);
    linker.define_unknown_imports_as_traps(&module).unwrap();
    linker.instantiate_pre(&module).unwrap()
}

/// A raw instance.
pub struct Guest {
    /// The instance's store.
    pub store: Store<()>,
    /// The instance.
    pub instance: Instance,
    /// Its memory.
    pub memory: Memory,
}

impl Guest {
    /// Instantiates a module.
    #[must_use]
    pub fn new(pre: &InstancePre<()>) -> Self {
        let mut store = Store::new(pre.module().engine(), ());
        store.set_epoch_deadline(u64::MAX / 2);
        let instance = pre.instantiate(&mut store).unwrap();
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        Self {
            store,
            instance,
            memory,
        }
    }

    /// A target of typed FFI.
    pub fn target(&mut self, name: &str) -> TypedFunc<u32, u32> {
        self.instance.get_typed_func(&mut self.store, name).unwrap()
    }

    /// Reserves 64-byte aligned memory.
    pub fn reserve(&mut self, size: usize) -> usize {
        let end = self.memory.data_size(&self.store);
        let pages = size.div_ceil(64 << 10) as u64;
        self.memory.grow(&mut self.store, pages).unwrap();
        end
    }
}
