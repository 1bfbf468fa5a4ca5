//! Instances: a module's memory with an arena in it, and the calls into it.
//!
//! A target that fails by a status keeps its instance: it returned, in a state that it chose. A
//! target that traps or is interrupted did not, and its instance is dropped without running
//! anything in it again.

mod arena;
mod bound;
mod enter;

use std::sync::Arc;
use std::time::Instant;

use wasmtime::{Store, WasmParams};

use callbox_core::call::{CallBuffers, CallOptions, Functions};
use callbox_core::values::{Result, Status};

use self::bound::Bound;
use self::enter::{arm, check_growth, disarm, enter, in_wasm_mode, returned};
pub(crate) use self::enter::{check_stack, not_called};
use crate::address_space::Bytes;
use crate::claim::{Claim, Exporter, GuestFunction, LinearMemory, Returned};
use crate::discard::LARGE;
use crate::failure::caller_exhausted;
use crate::frame::FrameImage;
use crate::held_up::Making;
use crate::memory::GuestMemory;
use crate::module::Module;
use crate::places::{Place, Turn};
use crate::quota::{Share, too_many};
use crate::shared::Compiled;
use crate::site::Site;
use crate::state::{GuestState, NotStarted};
use crate::trap;

/// The context in which a call or an execution begins.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) options: &'a CallOptions,
    /// The functions that targets can call back.
    pub(crate) functions: Option<&'a Arc<dyn Functions>>,
    /// How the call began, if it has waited for its instance.
    pub(crate) begun: Option<Begun>,
}

/// How a call began whose instance was refused at first.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) at: Instant,
    /// The fuel that refused instances used.
    pub(crate) fuel_lost: u64,
}

/// An instance that could not be made.
pub(crate) struct Refused {
    pub(crate) status: Status,
    /// The bytes that the process lacked for it, if that is known.
    pub(crate) missing: Option<Bytes>,
    /// The fuel that it used, and that of those refused before it.
    pub(crate) fuel_lost: u64,
    /// Whether it used more than starts may that are begun again.
    pub(crate) lacks_fuel: bool,
    /// Whether what was made of it is freed in the background, which makes no more room than there
    /// was.
    pub(crate) is_being_freed: bool,
    /// The call's turn, if it lacked a place among the engine's instances.
    pub(crate) turn: Option<Turn>,
    /// Its place, if the pool of wasmtime had no room yet: a place becomes free before that.
    pub(crate) place: Option<Place>,
}

impl Refused {
    fn new(status: Status, state: &mut GuestState) -> Self {
        let is_begun_again = status.is_lack() && state.shared.policy.deterministic;
        let used = state.fuel.used();
        Self {
            lacks_fuel: is_begun_again && !state.fuel.give_back(used),
            fuel_lost: state.fuel.lost(),
            status,
            missing: state.missing,
            is_being_freed: state.share.memory_bytes() >= LARGE,
            turn: None,
            place: None,
        }
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self {
            status,
            missing: None,
            fuel_lost: 0,
            lacks_fuel: false,
            is_being_freed: false,
            turn: None,
            place: None,
        }
    }
}

/// The requirements on a new instance.
#[derive(Clone, Copy)]
pub(crate) struct Purpose {
    pub(crate) arena_size: usize,
    /// The number of call sites.
    pub(crate) sites: usize,
}

/// An instance that serves the call sites of one executable, one call at a time.
///
/// An instance in which a call trapped or was interrupted is not used again:
/// [`Instance::is_healthy`].
pub(crate) struct Instance {
    store: Store<GuestState>,
    exports: Exporter,
    memory: LinearMemory,
    /// The arena's offset in memory.
    arena: u32,
    /// The call sites' parts, made when each is first called.
    bound: Box<[Option<Bound>]>,
    healthy: bool,
    /// Dropped after the store, which has the code, too.
    _compiled: Arc<Compiled>,
}

impl Instance {
    /// Instantiates a module and reserves an arena for its call sites. A call that was refused a
    /// place has a `turn`.
    pub(crate) fn new(
        module: &Module,
        purpose: Purpose,
        mut share: Share,
        turn: Option<Turn>,
        caller: Caller<'_>,
    ) -> Result<Self, Refused> {
        let made = place(module, turn).and_then(|place| {
            share.set_place(Some(place));
            Self::start(module, purpose, share, caller)
        });
        made.map_err(|refused| Refused {
            status: refused.status.context(&module.label),
            ..refused
        })
    }

    fn start(
        module: &Module,
        purpose: Purpose,
        share: Share,
        caller: Caller<'_>,
    ) -> Result<Self, Refused> {
        let mut store = new_store(module, share, caller)?;
        // The instance outlives the execution that makes it, and must not depend on it.
        let execution = store.data_mut().detach_execution();
        let mut new = Self::instantiate(module, store, purpose.sites)?;
        let initialized = new.initialize_module(module);
        match initialized.and_then(|()| new.reserve(module, purpose.arena_size)) {
            Ok(arena) => new.arena = arena,
            Err(status) => {
                let refused = Refused::new(status, new.store.data_mut());
                new.discard();
                return Err(refused);
            }
        }
        new.store.data_mut().attached = execution;
        Ok(new)
    }

    fn instantiate(
        module: &Module,
        mut store: Store<GuestState>,
        sites: usize,
    ) -> Result<Self, Refused> {
        const WHAT: &str = "the module's start";
        arm(&mut store, "the module")?;
        let instance = in_wasm_mode(&mut store, |store| {
            module.linked.pre(store)?.instantiate(store)
        });
        disarm(&mut store);
        if !module.has_start {
            store.data_mut().note_made();
        }
        // No look at the stop word interrupts wasmtime while it copies the module's data.
        let instance = instance.and_then(|instance| match store.data().interrupt.check_after() {
            Err(interrupted) if module.starts => Err(interrupted.into()),
            Err(interrupted) => Err(NotStarted(interrupted).into()),
            Ok(()) => Ok(instance),
        });
        let pool_is_full = matches!(&instance, Err(error) if trap::is_full_pool(error));
        let started = match instance {
            Ok(instance) => started(module, Exporter(instance), &mut store, WHAT),
            Err(error) => Err(trap::status_of(&error, store.data_mut(), WHAT)),
        };
        let (exports, memory) = match started {
            Ok(started) => started,
            Err(status) => {
                let mut refused = Refused::new(status, store.data_mut());
                if pool_is_full {
                    refused.place = store.data_mut().share.set_place(None);
                }
                if refused.is_being_freed {
                    let shared = Arc::clone(&store.data().shared);
                    let compiled = Arc::clone(&module.compiled);
                    shared.discarder.free((store, compiled));
                }
                return Err(refused);
            }
        };
        Ok(Self {
            store,
            exports,
            memory,
            arena: 0,
            bound: std::iter::repeat_with(|| None).take(sites).collect(),
            healthy: true,
            _compiled: Arc::clone(&module.compiled),
        })
    }

    /// Drops the instance. Its deleters run in the background, unless it trapped or was
    /// interrupted. A large memory is freed in the background, too.
    pub(crate) fn discard(mut self) {
        let state = self.store.data();
        let shared = Arc::clone(&state.shared);
        if !shared.ticker.is_in_this_process() {
            // In a forked child, threads that do not exist may hold the locks that dropping takes:
            // wasmtime's, those of the stop words, and the queues of the background threads.
            return std::mem::forget(self);
        }
        let is_large = state.share.memory_bytes() >= LARGE;
        if self.healthy && self.holds_state() {
            let end = Instant::now() + state.deletion_time();
            shared
                .discarder
                .run_deleters(move |cancel| self.unbind(end, cancel));
        } else if is_large {
            shared.discarder.free(self);
        }
    }

    /// The bytes of address space and of memory that it takes.
    pub(crate) fn takes(&self) -> Bytes {
        self.store.data().takes()
    }

    /// Whether the instance can be used again.
    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// Whether the instance may wait for its next call.
    #[inline]
    pub(crate) fn may_be_idle(&self) -> bool {
        let capabilities = self.store.data().capabilities.as_ref();
        self.healthy && capabilities.is_none_or(|capabilities| capabilities.may_be_idle())
    }

    /// Begins a call or an execution.
    #[inline]
    pub(crate) fn begin(&mut self, caller: Caller<'_>) {
        self.store
            .data_mut()
            .begin(caller.options, caller.functions, caller.begun);
    }

    /// Ends a call or an execution.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.store.data_mut().end();
    }

    /// Begins another call of the same execution, with the limits of a single call.
    #[inline]
    pub(crate) fn begin_next_call(&mut self) {
        self.store.data_mut().begin_next_call();
    }

    /// Prepares this instance for a call site on the first call: looks up its function, and runs
    /// its stage `instantiate`. After a call with other attributes, replaces the frame.
    #[inline]
    pub(crate) fn bind(&mut self, index: usize, site: &Site) -> Result<()> {
        match &self.bound[index] {
            Some(bound) if bound.site == site.id => Ok(()),
            Some(_) => {
                self.bind_frame(index, site);
                Ok(())
            }
            None => self
                .bind_new(index, site)
                .map_err(|status| site.in_module(status)),
        }
    }

    /// Calls the target: copies the operands in, and the results out if it succeeds.
    ///
    /// The call site must be bound, and the buffers must have its number and sizes. The frame is
    /// written anew each time, so that nothing the guest wrote into it reaches the next call.
    #[inline]
    pub(crate) fn execute<B: CallBuffers>(
        &mut self,
        index: usize,
        site: &Site,
        buffers: &mut B,
    ) -> Result<()> {
        self.call(index, site, buffers)
            .map_err(|status| site.in_module(status))
    }

    #[inline]
    fn call<B: CallBuffers>(&mut self, index: usize, site: &Site, buffers: &mut B) -> Result<()> {
        self.set_callable(site);
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
        // An unread result has a size of 0.
        let sizes = site.result_sizes.iter().copied();
        for (result, (place, size)) in std::iter::zip(site.layout.results(), sizes).enumerate() {
            let bytes = memory.read("a result", arena + place.offset, size)?;
            buffers.write(result, 0, &bytes);
        }
        Ok(())
    }

    /// Runs `_initialize`, by which C and C++ modules run their constructors.
    fn initialize_module(&mut self, module: &Module) -> Result<()> {
        const WHAT: &str = "the module's _initialize";
        match self.typed_export::<(), ()>(module.exports.initialize.as_ref()) {
            Some(initialize) => {
                enter(&mut self.store, &mut self.healthy, &initialize, (), WHAT)?;
                returned(Claim::SUCCESS, self.store.data_mut(), WHAT)
            }
            None => Ok(()),
        }
    }

    /// An export whose type was checked when the module was loaded.
    fn function<P: WasmParams, R: Returned>(&mut self, name: &str) -> Result<GuestFunction<P, R>> {
        let function = self.exports.function(&mut self.store, name);
        function.map_err(|error| {
            Status::internal(format!(
                "an export that was checked is not there: {error:#}"
            ))
        })
    }

    fn write_frame(&mut self, site: &Site, image: &FrameImage) -> Result<()> {
        let at = self.arena as usize + site.layout.frame();
        self.guest_memory()
            .write("the call frame", at, image.bytes())
    }

    /// Sets the functions that the call site's target may call back.
    #[inline]
    fn set_callable(&mut self, site: &Site) {
        let state = self.store.data_mut();
        if !(site.functions.is_empty() && state.callable.is_empty()) {
            state.callable = Arc::clone(&site.functions);
        }
    }

    fn guest_memory(&mut self) -> GuestMemory<'_> {
        self.memory.borrow(&mut self.store)
    }
}

/// A place among the engine's instances.
fn place(module: &Module, turn: Option<Turn>) -> Result<Place, Refused> {
    let shared = &module.shared;
    // In a forked child, threads that do not exist may hold the locks of the places and the ticker.
    shared.check_process("the module")?;
    let most = shared.policy.limits.instances;
    let place = match turn {
        Some(turn) => turn.take(),
        None => shared.places.take(most as usize),
    };
    place.map_err(|turn| Refused {
        turn: Some(turn),
        ..too_many(most).into()
    })
}

/// The exports of an instance that was made, and its memory.
///
/// # Errors
/// The failure that the start function set.
fn started(
    module: &Module,
    exports: Exporter,
    store: &mut Store<GuestState>,
    what: &str,
) -> Result<(Exporter, LinearMemory)> {
    let memory = exports
        .memory_at(&mut *store, &module.exports.memory)
        .ok_or_else(|| Status::internal("a memory that was checked is not exported"))?;
    store.data_mut().memory = Some(memory);
    check_growth(store.data(), what)?;
    returned(Claim::SUCCESS, store.data_mut(), what)?;
    Ok((exports, memory))
}

/// A store for an instance of the module, which the ticker stops.
fn new_store(
    module: &Module,
    share: Share,
    caller: Caller<'_>,
) -> Result<Store<GuestState>, Refused> {
    let making = Making::begin(caller.begun.map(|begun| begun.at));
    let shared = &module.shared;
    let room = shared.address_space.claim_instance();
    let room = room.map_err(|shortage| Refused {
        missing: Some(shortage.missing()),
        ..caller_exhausted(format!("no room for one more instance: {shortage}")).into()
    })?;
    let watch = shared.ticker.lease(&shared.engine)?;
    drop(room);
    let state_shared = Arc::clone(shared);
    let mut state = GuestState::new(state_shared, &module.grants, share, watch, making);
    state.helpers_from = module.helpers_from;
    state.record_bytes = module.record_bytes;
    state.capabilities = module.capabilities.for_instance(shared);
    state.begin(caller.options, caller.functions, caller.begun);
    let mut store = Store::new(&shared.engine, state);
    store.limiter(|state| state);
    Ok(store)
}
