//! The baseline: plain wasmtime with the settings that callbox uses. Nothing stops its guests.

use callbox::policy::Limits;
use callbox::wasm::ModuleFile;
use wasmtime::{
    Config, Enabled, Engine, Instance, InstancePre, Linker, Memory, MemoryType, Module,
    PoolingAllocationConfig, SharedMemory, Store, TypedFunc,
};

/// Makes a wasmtime engine with callbox's settings.
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
        .shared_memory(true)
        .concurrency_support(false)
        .memory_may_move(false)
        .allocation_strategy(pooling);
    Engine::new(&config).unwrap()
}

/// Compiles a module. Its imports, if any, become functions that do nothing.
#[must_use]
pub fn module(engine: &Engine, wasm: &[u8]) -> InstancePre<()> {
    let module = Module::new(engine, wasm).unwrap();
    let mut linker = Linker::new(engine);
    linker.define_unknown_imports_as_traps(&module).unwrap();
    linker.instantiate_pre(&module).unwrap()
}

/// Compiles a module as callbox does: rewritten, so that it could be stopped.
#[must_use]
pub fn stoppable_module(engine: &Engine, wasm: &[u8]) -> InstancePre<()> {
    let file = ModuleFile::read(wasm.to_vec(), &Limits::default()).unwrap();
    let module = Module::new(engine, &*file.rewritten().unwrap()).unwrap();
    let mut linker = Linker::new(engine);
    let stop = module.imports().find_map(|import| {
        let is_memory = import.ty().memory().is_some();
        is_memory.then(|| (import.module().to_owned(), import.name().to_owned()))
    });
    let (of, name) = stop.unwrap();
    let memory = SharedMemory::new(engine, MemoryType::shared(1, 1)).unwrap();
    linker
        .define(Store::new(engine, ()), &of, &name, memory)
        .unwrap();
    linker.define_unknown_imports_as_traps(&module).unwrap();
    linker.instantiate_pre(&module).unwrap()
}

/// A raw instance.
pub struct Guest {
    /// The instance's store.
    pub store: Store<()>,
    /// The instance.
    pub instance: Instance,
    /// The instance's memory.
    pub memory: Memory,
}

impl Guest {
    /// Instantiates a module.
    #[must_use]
    pub fn new(pre: &InstancePre<()>) -> Self {
        let mut store = Store::new(pre.module().engine(), ());
        let instance = pre.instantiate(&mut store).unwrap();
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        Self {
            store,
            instance,
            memory,
        }
    }

    /// Looks up a typed FFI target.
    pub fn target(&mut self, name: &str) -> TypedFunc<u32, u32> {
        self.instance.get_typed_func(&mut self.store, name).unwrap()
    }

    /// Reserves 64-byte aligned memory in the guest.
    pub fn reserve(&mut self, size: usize) -> usize {
        let end = self.memory.data_size(&self.store);
        let pages = size.div_ceil(64 << 10) as u64;
        self.memory.grow(&mut self.store, pages).unwrap();
        end
    }
}
