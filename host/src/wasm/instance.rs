//! Instances: a module's memory with an arena in it, and the calls into it.

mod arena;
mod bound;
mod enter;

use std::sync::Arc;

use wasmtime::{Store, WasmParams};

use self::bound::Bound;
use self::enter::{arm, disarm, enter, returned};
pub(super) use self::enter::{check_stack, forked, not_called};
use super::claim::{Claim, Exporter, GuestFunction, LinearMemory, Returned};
use super::memory::GuestMemory;
use super::module::Module;
use super::quota::Share;
use super::site::Site;
use super::state::GuestState;
use super::trap;
use crate::call::{CallBuffers, CallOptions, Functions};
use crate::frame::FrameImage;
use crate::values::{Result, Status};

/// Who begins a call or an execution: how it is run, and what targets can call back.
pub(super) type Caller<'a> = (&'a CallOptions, Option<&'a Arc<dyn Functions>>);

/// An instance that serves the call sites of one executable, one call at a time. One in which a call trapped, or was stopped,
/// is not used again: [`Instance::is_healthy`].
pub(super) struct Instance {
    store: Store<GuestState>,
    exports: Exporter,
    memory: LinearMemory,
    /// Where the arena begins.
    arena: u32,
    /// What each call site has here, made when it is first called.
    bound: Box<[Option<Bound>]>,
    healthy: bool,
}

impl Instance {
    /// Instantiates a module and reserves an arena of `arena_size` bytes for `sites` call sites.
    pub(super) fn new(
        module: &Module,
        (arena_size, sites): (usize, usize),
        share: Share,
        (options, functions): Caller<'_>,
    ) -> Result<Self> {
        let shared = &module.shared;
        let mut state = GuestState::new(Arc::clone(shared), Arc::clone(&module.grants), share);
        state.helpers_from = module.helpers_from;
        state.capabilities = module.granted.for_instance(shared);
        state.begin(options, functions);
        // It will serve other executions, too.
        let execution = state.leave_execution();
        let mut store = Store::new(&shared.engine, state);
        store.limiter(|state| state);
        store.epoch_deadline_callback(|mut context| match context.data_mut().interrupt.tick() {
            Ok(()) => {
                context.data().shared.ticker.note_activity();
                Ok(wasmtime::UpdateDeadline::Continue(1))
            }
            Err(interrupted) => Err(wasmtime::Error::new(interrupted)),
        });
        arm(&mut store, "the module")?;
        let instance = module.pre.instantiate(&mut store);
        disarm(&mut store);
        let instance = match instance {
            Ok(instance) => instance,
            Err(error) => {
                let status = trap::status(&error, store.data_mut(), "the module's start");
                let size = store.data().share.memory_bytes();
                shared.discarder.take_if_large(size, store);
                return Err(status);
            }
        };
        let exports = Exporter(instance);
        let memory = exports
            .memory_at(&mut store, &module.exports.memory)
            .ok_or_else(|| Status::internal("a memory that was checked is not exported"))?;
        store.data_mut().memory = Some(memory);
        returned(Claim::NONE, store.data_mut(), "the module's start")?;
        let mut new = Self {
            store,
            exports,
            memory,
            arena: 0,
            bound: std::iter::repeat_with(|| None).take(sites).collect(),
            healthy: true,
        };
        let initialized = new.initialize_module(module);
        match initialized.and_then(|()| new.reserve(module, arena_size)) {
            Ok(arena) => new.arena = arena,
            Err(status) => {
                new.discard();
                return Err(status);
            }
        }
        new.store.data_mut().return_to_execution(execution);
        Ok(new)
    }

    /// Drops it. For the memory of one that was broken off nobody waits.
    pub(super) fn discard(self) {
        match self.healthy {
            true => drop(self),
            false => {
                let shared = Arc::clone(&self.store.data().shared);
                let size = self.store.data().share.memory_bytes();
                shared.discarder.take_if_large(size, self);
            }
        }
    }

    /// Whether it can be used again.
    pub(super) fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// Begins a call or an execution: sets when it is stopped, and how much it may log.
    #[inline]
    pub(super) fn begin(&mut self, (options, functions): Caller<'_>) {
        self.store.data_mut().begin(options, functions);
    }

    /// Ends a call or an execution.
    #[inline]
    pub(super) fn end(&mut self) {
        self.store.data_mut().end();
    }

    /// Begins another call of the same execution: what the limits give to each call, it gets anew.
    #[inline]
    pub(super) fn begin_next_call(&mut self) {
        let state = self.store.data_mut();
        state.interrupt.begin_next_call();
        state.fuel.begin_next_call();
        state.log_budget = state.shared.policy.limits.log_bytes;
    }

    /// Makes what a call site has here, if it is not made, and runs its stage `instantiate`.
    #[inline]
    pub(super) fn bind(&mut self, index: usize, site: &Site) -> Result<()> {
        match self.bound[index] {
            Some(_) => Ok(()),
            None => self.bind_new(index, site),
        }
    }

    /// Calls the target: copies the operands in, and the results out if it succeeds. The call site is bound, and the buffers are as
    /// many and as long as it says.
    #[inline]
    pub(super) fn execute<B: CallBuffers>(
        &mut self,
        index: usize,
        site: &Site,
        buffers: &mut B,
    ) -> Result<()> {
        self.set_functions(site);
        let Some(bound) = &self.bound[index] else {
            return Err(Status::internal("a call site was not bound"));
        };
        let arena = self.arena as usize;
        let frame = arena + site.layout.frame();
        let mut memory = self.memory.borrow(&mut self.store);
        memory.write("the call frame", frame, bound.image.bytes())?;
        for (operand, place) in site.layout.operands().iter().enumerate() {
            let room = memory.room("an operand", arena + place.offset, place.size)?;
            buffers.read(operand, 0, room);
        }
        bound
            .entry
            .call(&mut self.store, &mut self.healthy, &site.what)?;
        self.copy_results(site, buffers)
    }

    #[inline]
    fn copy_results<B: CallBuffers>(&mut self, site: &Site, buffers: &mut B) -> Result<()> {
        let arena = self.arena as usize;
        let memory = self.guest_memory();
        // What nobody reads has a size of 0.
        let sizes = site.result_sizes.iter().copied();
        for (result, (place, size)) in std::iter::zip(site.layout.results(), sizes).enumerate() {
            let bytes = memory.read("a result", arena + place.offset, size)?;
            buffers.write(result, 0, &bytes);
        }
        Ok(())
    }

    /// Runs `_initialize`, by which C and C++ modules run their constructors.
    fn initialize_module(&mut self, module: &Module) -> Result<()> {
        let Some(initialize) = self.typed_export::<(), ()>(module.exports.initialize.as_ref())
        else {
            return Ok(());
        };
        let what = "the module's _initialize";
        enter(&mut self.store, &mut self.healthy, &initialize, (), what)?;
        returned(Claim::NONE, self.store.data_mut(), what)
    }

    /// An export that was checked.
    fn function<P: WasmParams, R: Returned>(&mut self, name: &str) -> Result<GuestFunction<P, R>> {
        let function = self.exports.function(&mut self.store, name);
        function.map_err(|error| {
            Status::internal(format!(
                "an export that was checked is not there: {error:#}"
            ))
        })
    }

    /// Writes a call site's frame where it lies.
    fn write_frame(&mut self, site: &Site, image: &FrameImage) -> Result<()> {
        let at = self.arena as usize + site.layout.frame();
        self.guest_memory()
            .write("the call frame", at, image.bytes())
    }

    /// Says what the target of this call site may call back.
    #[inline]
    fn set_functions(&mut self, site: &Site) {
        let state = self.store.data_mut();
        if !(site.functions.is_empty() && state.callable.is_empty()) {
            state.callable = Arc::clone(&site.functions);
        }
    }

    fn guest_memory(&mut self) -> GuestMemory<'_> {
        self.memory.borrow(&mut self.store)
    }
}
